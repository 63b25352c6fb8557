//! Serves calls on the main thread until the last has ended.

use std::sync::Arc;

use sd_notify::NotifyState;

use super::ServeError;
use super::build::ProcessParts;
use super::containerd_socket::ContainerdRoutes;
use super::handover;
use super::shutdown::ShutdownStages;
use crate::config::Config;
use crate::grpc::CriService;
use crate::proxy::listener::{self, BoundSocket};
use crate::proxy::sessions::SessionProxy;
use crate::proxy::stack;
use crate::watchdog;

/// Serves calls until the process stops, then drains. `second` is a socket that also serves containerd's services.
pub(super) async fn serve_calls(
    config: &Config,
    socket: BoundSocket,
    second: Option<(BoundSocket, CriService)>,
    built: &ProcessParts,
    proxy: Option<SessionProxy>,
    stages: &ShutdownStages,
) -> Result<(), ServeError> {
    tokio::spawn(Arc::clone(&built.heartbeat).run());
    watchdog::feed(Arc::clone(&built.heartbeat)).map_err(ServeError::Start)?;
    let activated = socket.is_activated();
    let (listener, _file) = socket.into_parts();
    tracing::info!(
        event = "started",
        service.version = env!("CARGO_PKG_VERSION"),
        server.address = %config.server.listen.display(),
        socket_activation = activated,
        "serving"
    );
    watchdog::notify(&[NotifyState::Ready]);
    handover::take_over(&config.story.state_dir);

    let parts = built.connection_parts(config.server.max_message_bytes, proxy);
    let connections = Arc::clone(&built.connections);
    let second = async {
        let Some((socket, containerd)) = second else {
            return Ok(0);
        };
        let (listener, _file) = socket.into_parts();
        listener::serve(
            listener,
            |peer| {
                let cri = stack::stack(&parts, peer);
                ContainerdRoutes::new(cri, containerd.clone())
            },
            Arc::clone(&connections),
            stages.drain.clone(),
            stages.cut_calls.clone(),
        )
        .await
    };
    let first = listener::serve(
        listener,
        |peer| stack::stack(&parts, peer),
        Arc::clone(&connections),
        stages.drain.clone(),
        stages.cut_calls.clone(),
    );
    let (first, second) = tokio::try_join!(first, second).map_err(ServeError::Serve)?;
    let cut = first + second;
    if cut > 0 && !stages.only_event_streams.is_cancelled() {
        tracing::warn!(
            event = "drain.cut",
            connections = cut,
            "connections had calls in flight after the drain timeout and were cut"
        );
    }
    Ok(())
}
