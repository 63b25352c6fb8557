//! The signals that the daemon acts on.

use std::io;
use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::handover::{self, HandoverParts};
use crate::lifecycle::recorder::DumpWriter;
use crate::lifecycle::recorder::dumps::DumpReason;
use crate::reload::ConfigReloader;
use crate::watchdog;

/// SIGTERM and SIGINT stop, SIGWINCH hands over, SIGUSR2 dumps the flight recorder.
pub(super) async fn watch(dumps: Arc<DumpWriter>, mut handover: HandoverParts) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut user2 = signal(SignalKind::user_defined2())?;
    let mut hand_over = signal(SignalKind::window_change())?;
    let name = loop {
        tokio::select! {
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
            _ = user2.recv() => {
                dumps.ask(DumpReason::Signal, None);
            }
            _ = hand_over.recv() => handover.requested().await,
        }
    };
    tracing::info!(
        event = "stopping",
        signal = name,
        "stopping: calls in flight may finish"
    );
    let stages = handover.stages.clone();
    if !stages.is_handed_over() {
        watchdog::notify(&[NotifyState::Stopping]);
        handover::end_predecessors(&handover.state_dir);
    }
    stages.stop(handover.server.drain_timeout).await;
    Ok(())
}

/// SIGHUP reloads. Apart from the others: a reload calls OCI runtimes, which may take their time.
pub(super) async fn reload(
    mut reloader: ConfigReloader,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let reloads = async {
        while hangup.recv().await.is_some() {
            reloader.reload().await;
        }
    };
    stop.run_until_cancelled(reloads).await;
    Ok(())
}
