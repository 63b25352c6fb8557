//! The owner of the other end of a TCP connection on this machine (sock_diag(7)).
//!
//! The kernel looks one connection up by its addresses and ports, so this takes as long on a node with many connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

// linux/netlink.h
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
// linux/sock_diag.h and linux/inet_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Length of `struct inet_diag_msg`, which attributes may follow.
const MESSAGE_BYTES: usize = 72;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;
/// `ENOENT`: no such connection.
const NOT_FOUND: i32 = 2;

/// Returns the user who made the socket at `client` that is connected to `server`. `None` if there is none in the network
/// namespace of the calling thread: the client is on another machine or in another namespace, or has closed its socket. The
/// kernel gives a closed one to root, no matter who made it.
///
/// # Errors
/// If the kernel does not answer.
pub fn owner(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    // An IPv4 client of an IPv6 listener.
    let (client, server) = (canonical(client), canonical(server));
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let fd = socket.as_raw_fd();
    let request = request(client, server);
    sendto(fd, &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    // The kernel has answered when sendto returns, so this does not block.
    let mut answer = [0_u8; 1024];
    let length = recv(fd, &mut answer, MsgFlags::MSG_DONTWAIT)?;
    parse(&answer[..length], client, server)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The ports and addresses at the beginning of `struct inet_diag_sockid`.
fn ends(client: SocketAddr, server: SocketAddr) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[..2].copy_from_slice(&client.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&server.port().to_be_bytes());
    bytes[4..20].copy_from_slice(&octets(client.ip()));
    bytes[20..].copy_from_slice(&octets(server.ip()));
    bytes
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]); // sequence and port
    let (family, interface) = match client {
        SocketAddr::V4(_) => (AF_INET, 0),
        SocketAddr::V6(address) => (AF_INET6, address.scope_id()),
    };
    bytes.extend([family, IPPROTO_TCP, 0, 0]); // no attributes, padding
    bytes.extend(u32::MAX.to_ne_bytes()); // any state
    bytes.extend(ends(client, server));
    bytes.extend(interface.to_ne_bytes());
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

fn parse(answer: &[u8], client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let kind = answer.get(4..6).ok_or_else(malformed)?;
    let payload = answer.get(HEADER_BYTES..).ok_or_else(malformed)?;
    match u16::from_ne_bytes([kind[0], kind[1]]) {
        NLMSG_ERROR => match number(payload, 0).map(|code| -code.cast_signed()) {
            Some(NOT_FOUND) => Ok(None),
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Err(malformed()),
        },
        SOCK_DIAG_BY_FAMILY if payload.len() >= MESSAGE_BYTES => {
            let (uid, inode) = (number(payload, 64), number(payload, 68));
            // Without an inode it is no longer a socket of a process. A listener may be found instead of the connection.
            let is_open = payload[1] == TCP_ESTABLISHED && inode != Some(0);
            let is_it = names(payload, client, server);
            Ok(uid.filter(|_| is_open && is_it))
        }
        _ => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an answer of the kernel")
}

/// Returns whether an answer is about this connection. An IPv6 socket may be connected to an IPv4 address.
fn names(answer: &[u8], client: SocketAddr, server: SocketAddr) -> bool {
    let expected = match answer[0] {
        AF_INET6 => ends(ipv6_mapped(client), ipv6_mapped(server)),
        _ => ends(client, server),
    };
    answer[4..40] == expected
}

fn ipv6_mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use nix::unistd::{Uid, geteuid, setfsuid};

    use super::*;

    const NOBODY: u32 = 65534;

    /// Connects as a user, and accepts.
    fn connected(listener: &TcpListener, to: SocketAddr, uid: u32) -> (TcpStream, TcpStream) {
        // For the sockets of this thread alone.
        let connecting = thread::spawn(move || {
            setfsuid(Uid::from_raw(uid));
            TcpStream::connect(to).expect("connected")
        });
        let client = connecting.join().expect("a thread");
        (client, listener.accept().expect("accepted").0)
    }

    fn owner_of(accepted: &TcpStream, client: SocketAddr) -> Option<u32> {
        owner(client, accepted.local_addr().expect("local")).expect("answered")
    }

    #[test]
    fn the_owner_of_a_connection_is_found_until_it_is_closed() {
        let root = geteuid().is_root();
        let users = if root {
            vec![0, NOBODY, 7]
        } else {
            vec![geteuid().as_raw()]
        };
        for (listen, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::ffff:127.0.0.1"),
        ] {
            let listener = TcpListener::bind(listen).expect("bound");
            let port = listener.local_addr().expect("local").port();
            let to = SocketAddr::new(to.parse().expect("address"), port);
            for uid in &users {
                let (client, accepted) = connected(&listener, to, *uid);
                let peer = accepted.peer_addr().expect("peer");
                assert_eq!(owner_of(&accepted, peer), Some(*uid), "{listen} {to}");
                drop(client);
                assert_eq!(owner_of(&accepted, peer), None, "{listen} {to}");
            }
        }
    }

    #[test]
    fn a_client_elsewhere_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("local");
        let far = "192.0.2.1:4711".parse().expect("address");
        assert_eq!(owner(far, address).expect("answered"), None);
        // The kernel finds the listener, which is no connection.
        assert_eq!(owner(address, far).expect("answered"), None);
    }

    #[test]
    fn malformed_answers_are_errors() {
        let address = "127.0.0.1:1".parse().expect("address");
        for length in 0..HEADER_BYTES + MESSAGE_BYTES {
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            parse(&answer, address, address).expect_err("too short");
        }
    }
}
