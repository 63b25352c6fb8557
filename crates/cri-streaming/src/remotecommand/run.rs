//! Runs a command between the streams of a client, over either transport.

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::status::CommandStatus;
use crate::context::SessionContext;
use crate::observe::SessionOutcome;
use crate::pipe::{RevocableOutput, counted};
use crate::request::SessionTarget;
use crate::runtime::{InputStream, OutputStream, RuntimeError, SessionStreams, TerminalSize};
use crate::session::SessionResult;

/// The client's side of a session, independent of the transport.
pub(super) struct ClientStreams {
    pub(super) stdin: Option<InputStream>,
    pub(super) stdout: Option<OutputStream>,
    pub(super) stderr: Option<OutputStream>,
    /// The stream for the result.
    pub(super) error: OutputStream,
    pub(super) resize: mpsc::Receiver<TerminalSize>,
    pub(super) gone: CancellationToken,
}

/// Runs the command between the streams of the client. Pending output is sent first, then the ends of the outputs, then the
/// result: clients wait for all three, or only for the result. The transport keeps this order however slowly the client
/// reads.
///
/// If the client disconnects, the session ends. The runtime's future continues in its own task until it has noticed.
pub(super) async fn run(
    context: &SessionContext,
    command: SessionTarget,
    version: u8,
    wire: ClientStreams,
) -> SessionResult {
    let [(stdout, to_stdout), (stderr, to_stderr)] = [wire.stdout, wire.stderr].map(|output| {
        let revocable = output.map(|output| RevocableOutput::new(output, context.meter.clone()));
        revocable.unzip()
    });
    let streams = SessionStreams {
        stdin: wire
            .stdin
            .map(|stdin| counted(stdin, context.meter.clone())),
        stdout: to_stdout,
        stderr: to_stderr,
        resize: wire.resize,
        gone: wire.gone.clone(),
    };
    let is_exec = matches!(command, SessionTarget::Exec(_));
    let failed = if is_exec {
        CommandStatus::NotRun
    } else {
        CommandStatus::NotAttached
    };
    let work = match command {
        SessionTarget::Exec(exec) => context.runtime.exec(exec, streams),
        SessionTarget::Attach(attach) => {
            let work = context.runtime.attach(attach, streams);
            Box::pin(async move { work.await.map(|()| 0) })
        }
    };
    let permit = context.permit.clone();
    let work = tokio::spawn(async move {
        let result = work.await;
        drop(permit);
        result
    });
    let end = tokio::select! {
        biased;
        // First, because a command may end as soon as it sees the client disconnect.
        () = wire.gone.cancelled() => return SessionOutcome::ClientGone.into(),
        ending = context.stop.fired() => {
            // Without a status, clients treat the end of the connection as success.
            send_status(wire.error, &CommandStatus::Cut(ending), version).await;
            return SessionOutcome::from(ending).into();
        }
        result = work => match result {
            Ok(Ok(code)) => CommandStatus::Code(code),
            Ok(Err(error)) => failed(error),
            Err(_) => failed(RuntimeError::Failed("internal error".into())),
        },
    };
    let ended = match &end {
        CommandStatus::Code(code) => SessionResult {
            proxied: None,
            outcome: SessionOutcome::Done,
            exit_code: is_exec.then_some(*code),
        },
        CommandStatus::NotRun(_) | CommandStatus::NotAttached(_) => SessionOutcome::Failed.into(),
        CommandStatus::Cut(ending) => SessionOutcome::from(*ending).into(),
    };
    for output in [stdout, stderr].into_iter().flatten() {
        // A disconnected client does not change how the command ended.
        let _ = output.finish().await;
    }
    send_status(wire.error, &end, version).await;
    ended
}

/// Sends the result, if the client is still connected.
async fn send_status(mut error: OutputStream, end: &CommandStatus, version: u8) {
    let _ = error.write_all(&end.message_for(version)).await;
    let _ = error.shutdown().await;
}
