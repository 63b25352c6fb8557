//! Clients that go while nobody takes what they have sent.
//!
//! A command that does not read its input holds back its client: the connection is not read. If the client goes then, its
//! end stands behind the input, or has not even left its machine, because there is no room for what comes before. So a
//! client that is held back is sent, now and then, something that says nothing and wants no answer: a pong that it did not
//! ask for (RFC 6455 section 5.5.3), or the answer to a PING that it never sent (SPDY/3 section 2.6.5). For a client that
//! has gone its system answers with a reset, and then the next one cannot be written. One that has only ended its own half
//! is still there, and clients that wait for pongs see that we are, too.
//!
//! Not a ping: its answer would have to take the very way that is blocked, and clients read nothing until it has left.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::session::Activity;
use super::spdy::Handle;
use super::websocket::Control;

/// How long a client is held back before each. Those of clients themselves come as often.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

/// How often it is looked meanwhile whether it is still held back.
const LOOKS: u32 = 5;

/// For the connection of a WebSocket.
pub(super) struct Heartbeat {
    pub(super) control: Control,
    pub(super) activity: Activity,
}

impl Heartbeat {
    /// Waits for something that holds back the client as long as it takes.
    pub(super) async fn during<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        loop {
            match timeout(INTERVAL, &mut work).await {
                Ok(done) => return done,
                Err(_) => {
                    self.activity.expect_heartbeat();
                    self.control.heartbeat();
                }
            }
        }
    }
}

/// For a SPDY connection, as long as there is one.
pub(super) async fn of_spdy(handle: Handle, activity: Activity) -> Infallible {
    loop {
        handle.held_back().await;
        if is_not_read(&handle).await {
            activity.expect_heartbeat();
            handle.heartbeat();
        }
    }
}

/// Whether nothing is read of a connection for the whole interval. One whose reader is only slow is held back most of the
/// time, but not for long: its end is seen when it is read.
async fn is_not_read(handle: &Handle) -> bool {
    let before = handle.counters().bytes_in;
    for _ in 0..LOOKS {
        sleep(INTERVAL / LOOKS).await;
        if !handle.is_held_back() || handle.counters().bytes_in != before {
            return false;
        }
    }
    true
}
