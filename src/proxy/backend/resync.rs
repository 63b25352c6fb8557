//! Reads a runtime's lists: at startup, after each reconnect, when a call names an unknown id, and once a minute. They fill the pod
//! index, and tell which pods ran before criscope.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Backend;
use crate::cri::lists::{Container, ListedContainer, ListedSandbox, RuntimeLists, Sandbox};
use crate::cri::peek::ContainerStatusAnswer;
use crate::cri::status::code_name;
use crate::cri::subject::ContainerState;
use crate::cri::v1::ContainerStatusRequest;
use crate::grpc::status::Status;
use crate::grpc::unary;
use crate::proxy::pod_index::PodIndex;
use crate::telemetry::BackgroundJob;

/// Minimum interval between two rounds: unknown ids are often simply wrong.
const MIN_RESYNC_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between two rounds that nothing asks for. They show changes that made no call through criscope. The kubelet requests the
/// same lists every second.
const MAX_RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of the status of a container.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives the lists of a runtime.
pub trait RuntimeListReceiver: Send + Sync {
    /// Takes both lists. Returns the ids of the containers whose status it wants.
    fn listed(&self, backend: &Arc<str>, lists: RuntimeLists) -> Vec<Arc<str>>;

    /// Takes the status of one of these containers.
    fn status(&self, container_id: &str, state: ContainerState);
}

/// What the lists of a runtime are for.
pub struct ResyncParts {
    /// The runtime.
    pub backend: Arc<Backend>,
    /// The index that the lists fill.
    pub index: Arc<PodIndex>,
    /// Receives the lists too.
    pub receiver: Arc<dyn RuntimeListReceiver>,
    /// Notified by the probe when the runtime comes up.
    pub wanted: Arc<Notify>,
}

impl std::fmt::Debug for ResyncParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResyncParts")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// Runs until dropped.
pub async fn run(parts: Arc<ResyncParts>) {
    let ResyncParts {
        backend,
        index,
        receiver,
        wanted,
    } = &*parts;
    loop {
        tokio::select! {
            () = wanted.notified() => {}
            () = index.unknown_id() => {}
            () = sleep(MAX_RESYNC_INTERVAL) => {}
        }
        let began = Instant::now();
        let job = BackgroundJob::IndexResync.begin();
        job.set("criscope.backend", Arc::clone(backend.name()));
        match fill(backend, index).await {
            Ok(lists) => {
                let (sandboxes, containers) = (lists.sandboxes.len(), lists.containers.len());
                job.count("criscope.sandboxes", sandboxes);
                job.count("criscope.containers", containers);
                tracing::debug!(
                    event = "identity.resync",
                    criscope.backend = &**backend.name(),
                    sandboxes,
                    containers,
                    "identity index filled"
                );
                let unknown = receiver.listed(backend.name(), lists);
                read_status(backend, &unknown, &**receiver).await;
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

/// Requests both lists and adds them to the index.
///
/// # Errors
/// The status of the list that failed.
pub async fn fill(backend: &Arc<Backend>, index: &PodIndex) -> Result<RuntimeLists, Status> {
    let mut service = backend.service();
    let name = backend.name();
    let mut lists = RuntimeLists::default();
    let path = runtime_path(backend, "ListPodSandbox");
    let listing = unary::each(&mut service, &path, &(), |sandbox: Sandbox| {
        let sandbox = ListedSandbox::from(sandbox);
        index.insert_listed_sandbox(&sandbox, name);
        lists.sandboxes.push(sandbox);
    });
    timeout(LIST_TIMEOUT, listing).await.map_err(late)??;

    let path = runtime_path(backend, "ListContainers");
    let listing = unary::each(&mut service, &path, &(), |container: Container| {
        let container = ListedContainer::from(container);
        index.insert_listed_container(&container, name);
        lists.containers.push(container);
    });
    timeout(LIST_TIMEOUT, listing).await.map_err(late)??;
    Ok(lists)
}

fn runtime_path(backend: &Backend, method: &str) -> String {
    let package = backend.health().api().package();
    format!("/{package}.RuntimeService/{method}")
}

/// Requests the status of these containers, one after the other. A container that is gone meanwhile has none; a runtime that does not
/// answer is asked no more.
async fn read_status(backend: &Backend, ids: &[Arc<str>], receiver: &dyn RuntimeListReceiver) {
    let path = runtime_path(backend, "ContainerStatus");
    let mut service = backend.service();
    for id in ids {
        let request = ContainerStatusRequest {
            container_id: id.to_string(),
            ..Default::default()
        };
        let call = unary::call::<_, _, ContainerStatusAnswer>(&mut service, &path, &request);
        let Ok(answer) = timeout(STATUS_TIMEOUT, call).await else {
            return;
        };
        if let Some(state) = answer.ok().and_then(|answer| answer.state()) {
            receiver.status(id, state);
        }
    }
}
