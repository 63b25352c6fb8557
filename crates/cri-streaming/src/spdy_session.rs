//! The SPDY connection of a session and its shutdown.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::context::{LINGER_TIMEOUT, SessionContext};
use super::heartbeat;
use super::spdy::{
    CloseReason, ConnectionEnd, SpdyConnection, SpdyHandle, SpdyLimits, SpdyStreams,
};

/// The connection of one session.
pub(super) struct SpdySession {
    handle: SpdyHandle,
    driver: AbortOnDropHandle<ConnectionEnd>,
}

impl SpdySession {
    /// Starts SPDY on an upgraded connection.
    pub(super) fn begin<T>(
        context: &SessionContext,
        io: T,
        mut limits: SpdyLimits,
    ) -> (SpdyStreams, Self)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // A slow client still receives everything; see [`SpdySession::close`].
        limits.linger = context.idle_timeout;
        // The session enforces the idle timeout; the connection must not time out before it.
        limits.idle = limits.idle.saturating_add(2 * LINGER_TIMEOUT);
        let (streams, driver) = SpdyConnection::server(io, limits);
        let handle = driver.handle();
        let heartbeats = heartbeat::run_spdy(handle.clone(), context.activity.clone());
        let driver = async move {
            tokio::select! {
                end = driver => end,
                never = heartbeats => match never {},
            }
        };
        let carrier = Self {
            handle,
            driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        };
        (streams, carrier)
    }

    /// Closes the connection: queued data is sent, then the client has `LINGER_TIMEOUT` to close its side.
    pub(super) async fn close(mut self, context: &SessionContext) {
        self.handle.close();
        let sent = async {
            context.activity.shut().await;
            sleep(LINGER_TIMEOUT).await;
        };
        tokio::select! {
            _ = &mut self.driver => {}
            () = sent => {}
        }
    }

    /// Waits for the end of the connection, and returns the reason.
    pub(super) async fn reason(self) -> CloseReason {
        match self.driver.await {
            Ok(end) => end.reason,
            Err(_) => CloseReason::Closed,
        }
    }
}
