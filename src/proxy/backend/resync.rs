//! Fills the pod index from a runtime's lists: at startup, after each reconnect, and when a call names an unknown id.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};

use super::Backend;
use crate::cri::status::code_name;
use crate::grpc::status::Status;
use crate::grpc::unary;
use crate::proxy::pod_index::PodIndex;
use crate::telemetry::BackgroundJob;

/// Minimum interval between two rounds: unknown ids are often simply wrong.
const MIN_RESYNC_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs until dropped. `wanted` is notified by the probe when the runtime comes up.
pub async fn run(backend: Arc<Backend>, index: Arc<PodIndex>, wanted: Arc<Notify>) {
    loop {
        tokio::select! {
            () = wanted.notified() => {}
            () = index.unknown_id() => {}
        }
        let began = Instant::now();
        let job = BackgroundJob::IndexResync.begin();
        job.set("criscope.backend", Arc::clone(backend.name()));
        match fill(&backend, &index).await {
            Ok((sandboxes, containers)) => {
                job.count("criscope.sandboxes", sandboxes);
                job.count("criscope.containers", containers);
                tracing::debug!(
                    event = "identity.resync",
                    criscope.backend = &**backend.name(),
                    sandboxes,
                    containers,
                    "identity index filled"
                );
            }
            Err(status) => {
                job.failed(code_name(status.code), &status.shown());
                tracing::debug!(
                    event = "identity.resync",
                    criscope.backend = &**backend.name(),
                    error.message = %status.shown(),
                    "identity index not filled"
                );
            }
        }
        drop(job);
        tokio::select! {
            () = sleep_until(began + MIN_RESYNC_INTERVAL) => {}
            // After a reconnect the lists are requested at once.
            () = wanted.notified() => wanted.notify_one(),
        }
    }
}

fn late(_: Elapsed) -> Status {
    Status::unavailable(format!("no answer for {LIST_TIMEOUT:?}"))
}

/// Requests both lists and adds them to the index. Returns the numbers of sandboxes and containers.
///
/// # Errors
/// The status of the list that failed.
pub async fn fill(backend: &Arc<Backend>, index: &PodIndex) -> Result<(usize, usize), Status> {
    let mut service = backend.service();
    let prefix = format!("/{}.RuntimeService", backend.health().api().package());
    let name = backend.name();
    let path = format!("{prefix}/ListPodSandbox");
    let listing = unary::each(&mut service, &path, &(), |sandbox| {
        index.insert_listed_sandbox(sandbox, name);
    });
    let sandboxes = timeout(LIST_TIMEOUT, listing).await.map_err(late)??;

    let path = format!("{prefix}/ListContainers");
    let listing = unary::each(&mut service, &path, &(), |container| {
        index.insert_listed_container(container, name);
    });
    let containers = timeout(LIST_TIMEOUT, listing).await.map_err(late)??;
    Ok((sandboxes, containers))
}
