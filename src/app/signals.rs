//! The signals that the daemon acts on.

use std::io;
use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::recorder::DumpWriter;
use crate::lifecycle::recorder::dumps::DumpReason;
use crate::reload::ConfigReloader;
use crate::watchdog;

/// SIGTERM and SIGINT stop, SIGUSR2 dumps the flight recorder.
pub(super) async fn watch(dumps: Arc<DumpWriter>, stop: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut user2 = signal(SignalKind::user_defined2())?;
    loop {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = user2.recv() => {
                dumps.ask(DumpReason::Signal, None);
                continue;
            }
        };
        tracing::info!(
            event = "stopping",
            signal = name,
            "stopping: calls in flight may finish"
        );
        watchdog::notify(&[NotifyState::Stopping]);
        stop.cancel();
        return Ok(());
    }
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
