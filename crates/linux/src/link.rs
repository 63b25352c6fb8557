//! Network interfaces of the calling thread's namespace: brings `lo` up, and reads the counters of all interfaces.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// Counters of one interface since it was created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Name of the interface.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Packets dropped on receipt.
    pub rx_dropped: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Send errors.
    pub tx_errors: u64,
    /// Packets dropped on sending.
    pub tx_dropped: u64,
}

/// `lo` is the first interface of every network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: i32 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const IFF_UP: u32 = 1;

/// Brings `lo` of the calling thread's network namespace up (rtnetlink(7)).
///
/// # Errors
/// The error of the kernel.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut request = Vec::with_capacity(32);
    // nlmsghdr: length, type, flags, sequence, port.
    request.extend(32_u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    request.extend(1_u32.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    // ifinfomsg: family, pad, type, index, flags, mask of the flags that change.
    request.extend([0_u8; 4]);
    request.extend(LOOPBACK.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    let fd = socket.as_raw_fd();
    sendto(fd, &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    // The kernel has answered when sendto returns, so this does not block.
    let mut answer = [0_u8; 512];
    let length = recv(fd, &mut answer, MsgFlags::MSG_DONTWAIT)?;
    match acknowledged(&answer[..length]) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not an rtnetlink acknowledgement",
        )),
    }
}

/// The errno (negative, or 0) of an acknowledgement.
fn acknowledged(message: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let errno = i32::from_ne_bytes(message.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(errno)
}

/// The counters of all interfaces of the calling thread's network namespace (`/proc/thread-self/net/dev`).
///
/// # Errors
/// If the file cannot be read, or does not have the format of proc(5).
pub fn counters() -> io::Result<Vec<Counters>> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    parse(&text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "net/dev is not as expected"))
}

/// proc_pid_net(5): two header lines, then lines of a name, a colon, eight numbers for received and eight for sent.
fn parse(text: &str) -> Option<Vec<Counters>> {
    text.lines().skip(2).map(line).collect()
}

fn line(line: &str) -> Option<Counters> {
    let (name, numbers) = line.rsplit_once(':')?;
    let numbers = numbers
        .split_ascii_whitespace()
        .map(|number| number.parse().ok())
        .collect::<Option<Vec<u64>>>()?;
    let &[
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        _,
        _,
        _,
        _,
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
        ..,
    ] = numbers.as_slice()
    else {
        return None;
    };
    Some(Counters {
        name: name.trim().to_owned(),
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_column() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:     1       2    3    4    5     6          7         8        9      10   11   12    13     14      15         16\n\
            eth0:18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let all = parse(text).expect("parses");
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].name.as_str(), all[0].rx_bytes, all[0].tx_bytes),
            ("lo", 1, 9)
        );
        assert_eq!((all[0].rx_dropped, all[0].tx_dropped), (4, 12));
        assert_eq!((all[1].name.as_str(), all[1].rx_bytes), ("eth0", u64::MAX));
    }

    #[test]
    fn a_truncated_line_is_an_error_and_not_zero() {
        assert_eq!(parse("a\nb\nlo: 1 2 3\n"), None);
        assert_eq!(
            parse("a\nb\nlo: 1 2 3 4 5 6 7 8 x 10 11 12 13 14 15 16\n"),
            None
        );
    }
}
