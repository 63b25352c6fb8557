//! The process at the other end of a connection.

use std::fs;
use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use crate::call::{Client, Peer};

/// Asks the kernel (SO_PEERCRED), once per connection. A process that has exited, or is in another PID namespace, has
/// no name.
pub fn identify(socket: &UnixStream) -> Peer {
    let pid = getsockopt(socket, PeerCredentials)
        .ok()
        .map(|credentials| credentials.pid())
        .filter(|pid| *pid > 0);
    let comm = pid
        .and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .map(|comm| printable(comm.trim_end()));
    Peer {
        client: comm.as_deref().map_or(Client::Other, Client::from_comm),
        pid,
        comm,
    }
}

/// Processes choose their own names, so unprintable characters are possible.
fn printable(comm: &str) -> Box<str> {
    comm.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (a, _b) = UnixStream::pair().expect("pair");
        let peer = identify(&a);
        assert_eq!(peer.pid, i32::try_from(std::process::id()).ok());
        assert_eq!(peer.client, Client::Other);
        assert!(peer.comm.is_some());
    }
}
