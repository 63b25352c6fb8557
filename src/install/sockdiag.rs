//! The unix sockets of this network namespace and their peers: `sock_diag(7)`, the only interface that reports the peer of
//! a unix socket. `/proc/net/unix` does not.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use nix::sys::stat::{major, minor};

use crate::settings::lexical;

/// The server's end of a connection: a connected socket with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConnection {
    /// The path the server bound.
    pub path: PathBuf,
    /// The file it bound, which keeps its identity when it is renamed: inode and device, as the kernel numbers them.
    pub file: Option<(u32, u32)>,
    /// Inode of the client's socket.
    pub client: u32,
}

// linux/netlink.h
const NETLINK_HEADER_LENGTH: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
// linux/sock_diag.h and linux/unix_diag.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_UNIX: u8 = 1;
const UDIAG_SHOW_NAME: u32 = 0x1;
const UDIAG_SHOW_VFS: u32 = 0x2;
const UDIAG_SHOW_PEER: u32 = 0x4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_PEER: u16 = 2;
/// Length of `struct unix_diag_msg`.
const UNIX_DIAG_MESSAGE_LENGTH: usize = 16;
/// In `udiag_states` a bit per state; 1 is `TCP_ESTABLISHED`, which unix sockets use too.
const ESTABLISHED: u32 = 1 << 1;

/// The server's ends of all connections to sockets with a path.
///
/// # Errors
/// If the kernel lacks `unix_diag`, or does not answer.
pub fn served() -> io::Result<Vec<ServerConnection>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let to_kernel = NetlinkAddr::new(0, 0);
    sendto(
        socket.as_raw_fd(),
        &request(),
        &to_kernel,
        MsgFlags::empty(),
    )?;
    let mut found = Vec::new();
    // A dump comes in datagrams of at most 32 KiB (NLMSG_GOODSIZE and above).
    let mut buffer = vec![0; 64 << 10];
    while !read_some(&socket, &mut buffer, &mut found)? {}
    Ok(found)
}

/// Reads one datagram; returns true at the end of the dump.
fn read_some(
    socket: &OwnedFd,
    buffer: &mut [u8],
    found: &mut Vec<ServerConnection>,
) -> io::Result<bool> {
    let length = match recv(socket.as_raw_fd(), buffer, MsgFlags::empty()) {
        Err(Errno::EINTR) => return Ok(false),
        result => result?,
    };
    parse(buffer.get(..length).unwrap_or_default(), found)
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(NETLINK_HEADER_LENGTH + 24);
    bytes.extend(40_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend([0; 8]); // sequence and port
    bytes.extend([AF_UNIX, 0, 0, 0]); // family, protocol, padding
    bytes.extend(ESTABLISHED.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes()); // any inode
    bytes.extend((UDIAG_SHOW_NAME | UDIAG_SHOW_VFS | UDIAG_SHOW_PEER).to_ne_bytes());
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

fn parse(mut bytes: &[u8], found: &mut Vec<ServerConnection>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(payload) = bytes.get(NETLINK_HEADER_LENGTH..length) else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(payload, 0).map_or(0, |code| -code.cast_signed());
                return Err(io::Error::from_raw_os_error(code));
            }
            SOCK_DIAG_BY_FAMILY => found.extend(message(payload)),
            _ => {}
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct unix_diag_msg` and its attributes; `None` if it has no path or no peer.
fn message(payload: &[u8]) -> Option<ServerConnection> {
    let mut attributes = payload.get(UNIX_DIAG_MESSAGE_LENGTH..)?;
    let (mut path, mut file, mut client) = (None, None, None);
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length);
        let value = attributes.get(4..length)?;
        match kind {
            // An abstract name begins with a zero and is no path.
            UNIX_DIAG_NAME if value.starts_with(b"/") => {
                let end = value.iter().position(|byte| *byte == 0);
                let name = value.get(..end.unwrap_or(value.len()))?;
                path = Some(PathBuf::from(OsStr::from_bytes(name)));
            }
            // struct unix_diag_vfs
            UNIX_DIAG_VFS => file = u32_at(value, 0).zip(u32_at(value, 4)),
            UNIX_DIAG_PEER => client = u32_at(value, 0),
            _ => {}
        }
        attributes = attributes.get(aligned(length)..).unwrap_or_default();
    }
    Some(ServerConnection {
        path: path?,
        file,
        client: client?,
    })
}

/// Returns whether the path is a socket with another inode.
fn is_another(file: &Option<(u32, u32)>, path: &Path) -> bool {
    let inode = fs::metadata(path).map(|found| found.ino() & u64::from(u32::MAX));
    matches!((file, inode), (Some((known, _)), Ok(now)) if u64::from(*known) != now)
}

impl ServerConnection {
    /// Returns whether a client that connects to this path reaches the same socket: it has this name, or had another when it
    /// was bound, as a socket of systemd or one that was renamed into place.
    pub fn is_at(&self, path: &Path) -> bool {
        let same_name = lexical(&self.path) == lexical(path);
        let same_file = fs::metadata(path).is_ok_and(|found| {
            // The kernel gives the lower half of the inode, and 12 and 20 bits of its own numbers of the device.
            let [major, minor] = [major(found.dev()), minor(found.dev())];
            let device = (major << 20) | minor;
            self.file.is_some_and(|(inode, dev)| {
                u64::from(inode) == found.ino() & u64::from(u32::MAX) && u64::from(dev) == device
            })
        });
        // Some file systems show programs another device number.
        same_file || (same_name && !is_another(&self.file, path))
    }
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::testing::until;

    #[test]
    fn the_kernel_tells_who_is_at_the_other_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        let client = UnixStream::connect(&path).expect("connected");
        let _server = listener.accept().expect("accepted");
        let link = format!("/proc/self/fd/{}", client.as_raw_fd());
        let inode = std::fs::metadata(link).expect("there").ino();
        let client = u32::try_from(inode).expect("fits");
        // The list is read in pieces, and other sockets come and go meanwhile.
        until("our socket", || {
            let served = served().expect("answered");
            let mut ours = served.iter().filter(|served| served.client == client);
            ours.any(|served| served.path == path).then_some(())
        });
    }

    /// As our own listener does, and as systemd may: the kernel knows the first name only.
    #[test]
    fn a_socket_that_was_renamed_is_found_at_its_new_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let [first, path] = ["first.sock", "a.sock"].map(|name| directory.path().join(name));
        let listener = UnixListener::bind(&first).expect("bound");
        std::fs::rename(&first, &path).expect("renamed");
        let _client = UnixStream::connect(&path).expect("connected");
        let _server = listener.accept().expect("accepted");
        let found = until("our socket", || {
            let served = served().expect("answered");
            served.into_iter().find(|served| served.path == first)
        });
        assert!(found.is_at(&path), "{found:?}");
        // Another socket has the old name now.
        let _other = UnixListener::bind(&first).expect("bound");
        assert!(!found.is_at(&first), "{found:?}");
    }

    #[test]
    fn broken_answers_are_errors_or_nothing() {
        let mut found = Vec::new();
        let mut short = 100_u32.to_ne_bytes().to_vec();
        short.extend([0; 12]);
        assert!(parse(&short, &mut found).is_err());
        let mut error = 20_u32.to_ne_bytes().to_vec();
        error.extend(NLMSG_ERROR.to_ne_bytes());
        error.extend([0; 10]);
        error.extend((-2_i32).to_ne_bytes());
        let error = parse(&error, &mut found).expect_err("reported");
        assert_eq!(error.raw_os_error(), Some(2));
        assert_eq!(message(&[0; 3]), None);
        let mut looping = vec![0; UNIX_DIAG_MESSAGE_LENGTH];
        looping.extend([0; 8]);
        assert_eq!(message(&looping), None);
        assert!(found.is_empty());
    }
}
