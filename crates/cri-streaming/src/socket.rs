//! TCP options of the connections that carry sessions.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Keepalive detects a vanished peer after two minutes if no data is in flight; otherwise TCP gives up after about a
/// quarter of an hour. `TCP_USER_TIMEOUT` is not set: it would also end connections whose peer is alive but does not read
/// for a while, such as a terminal stopped with Ctrl-S.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Disables Nagle's algorithm and enables keepalive.
///
/// # Errors
/// If an option cannot be set, for example because the connection is already closed.
pub fn configure(tcp: &TcpStream) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    Ok(())
}
