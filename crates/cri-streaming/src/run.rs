//! One session, from the upgrade to its end.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::context::{LINGER, SessionContext, StopReason, StopSignal};
use super::observe::Outcome;
use super::request::{PendingSession, SessionRequest};
use super::server::Shared;
use super::session::{Activity, ActivityIo, ObservedSession, SessionInfo, SessionResult};
use super::upgrade::{NamedProtocol, Protocol};
use super::{portforward, remotecommand};

/// Timeout of the upgrade after it was granted; only the response needs to be written.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

/// A session after negotiation.
pub(super) struct NegotiatedSession {
    pending: PendingSession,
    name: &'static str,
    protocol: Protocol,
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
        if let (SessionRequest::Forward { ports, .. }, Protocol::Channels { .. }) =
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
    shared: Arc<Shared>,
    start: NegotiatedSession,
    upgrade: OnUpgrade,
    permit: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let transport = start.protocol.transport();
    let session = ObservedSession::begin(
        SessionInfo::of(&start.pending),
        transport,
        start.name,
        &shared.observers,
    );
    let Ok(Ok(upgraded)) = timeout(UPGRADE_TIMEOUT, upgrade).await else {
        return session.end(Outcome::ClientGone.into());
    };
    let activity = Activity::new();
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
                let _ = timeout(LINGER, work).await;
                Outcome::from(why).into()
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
        (SessionRequest::Remote(command, wanted), Protocol::Channels { version, base64 }) => {
            remotecommand::serve_websocket(context, io, (command, wanted), (version, base64)).await
        }
        (SessionRequest::Remote(command, wanted), Protocol::SpdyRemote(version)) => {
            remotecommand::serve_spdy(context, io, (command, wanted), version).await
        }
        (SessionRequest::Forward { sandbox, ports }, Protocol::Channels { base64, .. }) => {
            portforward::serve_websocket(context, io, sandbox, ports, base64).await
        }
        (SessionRequest::Forward { sandbox, .. }, Protocol::SpdyForward) => {
            portforward::serve_spdy(context, io, sandbox).await
        }
        (SessionRequest::Forward { sandbox, .. }, Protocol::Tunnel) => {
            let tunnel = portforward::Tunnel::new(io);
            portforward::serve_spdy(context, tunnel, sandbox).await
        }
        // Negotiation only chooses protocols of the session's kind.
        (SessionRequest::Remote(..), Protocol::SpdyForward | Protocol::Tunnel)
        | (SessionRequest::Forward { .. }, Protocol::SpdyRemote(_)) => Outcome::Protocol.into(),
    }
}
