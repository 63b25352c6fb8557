//! Detects clients that disconnect while their input is not being read.
//!
//! A command that does not read its input blocks its client: the connection is not read. If the client then disconnects,
//! its FIN is queued behind the unread input, or has not even left its machine because the receive window is full. A
//! blocked client is therefore periodically sent an empty frame that needs no response: an unsolicited pong (RFC 6455
//! section 5.5.3), or the reply to a PING that it never sent (SPDY/3 section 2.6.5). If the client has exited, its kernel
//! answers with a reset, and the next write fails. A client that has only shut down its own half is still connected, and a
//! client that waits for pongs sees that the server is alive.
//!
//! A ping would not work: the pong would have to pass the blocked direction, and clients read nothing until it is sent.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::session::ConnectionActivity;
use super::spdy::SpdyHandle;
use super::websocket::ControlQueue;

/// Interval of heartbeats to a blocked client; clients use the same interval for their pings.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// How often the connection is checked per interval.
const CHECKS_PER_INTERVAL: u32 = 5;

/// Heartbeats of a WebSocket connection.
pub(super) struct HeartbeatSender {
    pub(super) control: ControlQueue,
    pub(super) activity: ConnectionActivity,
}

impl HeartbeatSender {
    /// Waits for `work`, sending heartbeats while it blocks the client.
    pub(super) async fn during<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            match timeout(HEARTBEAT_INTERVAL, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    self.activity.expect_heartbeat();
                    self.control.heartbeat();
                }
            }
        }
    }
}

/// Sends heartbeats on a SPDY connection until it ends.
pub(super) async fn run_spdy(handle: SpdyHandle, activity: ConnectionActivity) -> Infallible {
    loop {
        handle.held_back().await;
        if is_not_read(&handle).await {
            activity.expect_heartbeat();
            handle.heartbeat();
        }
    }
}

/// Returns whether the connection was not read for the whole interval. A slow reader blocks the client most of the time,
/// but never for long: the end of the connection is noticed when it is read.
async fn is_not_read(handle: &SpdyHandle) -> bool {
    let before = handle.counters().bytes_in;
    for _ in 0..CHECKS_PER_INTERVAL {
        sleep(HEARTBEAT_INTERVAL / CHECKS_PER_INTERVAL).await;
        if !handle.is_held_back() || handle.counters().bytes_in != before {
            return false;
        }
    }
    true
}
