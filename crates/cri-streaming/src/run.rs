//! One session, from the upgrade to its end.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::context::{LINGER_TIMEOUT, SessionContext, StopReason, StopSignal};
use super::observe::SessionOutcome;
use super::request::{PendingSession, SessionRequest};
use super::session::{ActivityIo, ConnectionActivity, ObservedSession, SessionInfo, SessionResult};
use super::state::ServerState;
use super::upgrade::{NamedProtocol, SessionProtocol};
use super::{portforward, remotecommand};

/// Timeout of the upgrade after it was granted; only the response needs to be written.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// A session after negotiation.
pub(super) struct NegotiatedSession {
    pending: PendingSession,
    name: &'static str,
    protocol: SessionProtocol,
}

impl NegotiatedSession {
    /// Checks that the protocol supports the request.
    ///
    /// # Errors
    /// An error with the message for the client.
    pub(super) fn new(
        pending: PendingSession,
        (name, protocol): NamedProtocol,
    ) -> Result<Self, &'static str> {
        if let (SessionRequest::Forward { ports, .. }, SessionProtocol::Channels { .. }) =
            (&pending.request, protocol)
        {
            match ports.len() {
                0 => return Err("the request names no port"),
                1..=portforward::MAX_PORTS => {}
                _ => return Err("the request names too many ports"),
            }
        }
        Ok(Self {
            pending,
            name,
            protocol,
        })
    }
}

/// Runs a session after the upgrade.
pub(super) async fn session(
    shared: Arc<ServerState>,
    start: NegotiatedSession,
    upgrade: OnUpgrade,
    permit: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let transport = start.protocol.transport();
    let session = ObservedSession::begin(
        SessionInfo::from_pending(&start.pending),
        transport,
        start.name,
        &shared.observers,
    );
    let Ok(Ok(upgraded)) = timeout(UPGRADE_TIMEOUT, upgrade).await else {
        return session.end(SessionOutcome::ClientGone.into());
    };
    let activity = ConnectionActivity::new();
    let (ending, is_ending) = StopSignal::new();
    let context = SessionContext {
        runtime: Arc::clone(&shared.runtime),
        meter: session.meter(),
        activity: activity.clone(),
        creation_timeout: shared.config.creation_timeout,
        idle_timeout: shared.config.idle_timeout,
        stop: is_ending,
        permit: Arc::new(permit),
    };
    let io = ActivityIo::new(TokioIo::new(upgraded), activity.clone());
    let ended = {
        let work = serve(&context, start, io);
        tokio::pin!(work);
        let by_itself = tokio::select! {
            ended = &mut work => Ok(ended),
            () = activity.silent_for(shared.config.idle_timeout) => Err(StopReason::Idle),
            () = stop.cancelled() => Err(StopReason::Shutdown),
        };
        match by_itself {
            Ok(ended) => ended,
            Err(why) => {
                ending.send_replace(Some(why));
                // Time for the status to reach the client, if it reads.
                let _ = timeout(LINGER_TIMEOUT, work).await;
                SessionOutcome::from(why).into()
            }
        }
    };
    // An observer of the end may reuse the permit immediately.
    drop(context);
    session.end(ended);
}

pub(super) async fn serve<T>(
    context: &SessionContext,
    start: NegotiatedSession,
    io: T,
) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match (start.pending.request, start.protocol) {
        (
            SessionRequest::Remote(command, wanted),
            SessionProtocol::Channels { version, base64 },
        ) => {
            remotecommand::serve_websocket(context, io, (command, wanted), (version, base64)).await
        }
        (SessionRequest::Remote(command, wanted), SessionProtocol::SpdyRemote(version)) => {
            remotecommand::serve_spdy(context, io, (command, wanted), version).await
        }
        (SessionRequest::Forward { sandbox, ports }, SessionProtocol::Channels { base64, .. }) => {
            portforward::serve_websocket(context, io, sandbox, ports, base64).await
        }
        (SessionRequest::Forward { sandbox, .. }, SessionProtocol::SpdyForward) => {
            portforward::serve_spdy(context, io, sandbox).await
        }
        (SessionRequest::Forward { sandbox, .. }, SessionProtocol::Tunnel) => {
            let tunnel = portforward::WebSocketTunnel::new(io);
            portforward::serve_spdy(context, tunnel, sandbox).await
        }
        // Negotiation only chooses protocols of the session's kind.
        (SessionRequest::Remote(..), SessionProtocol::SpdyForward | SessionProtocol::Tunnel)
        | (SessionRequest::Forward { .. }, SessionProtocol::SpdyRemote(_)) => {
            SessionOutcome::Protocol.into()
        }
    }
}
