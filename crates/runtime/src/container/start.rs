//! StartContainer.

use std::sync::Arc;

use criscope_nri::api::Event;

use super::super::sandbox::teardown::blocking;
use super::bundle::SPEC;
use crate::error::{Error, Result, shown};
use crate::failpoint::{Failpoint, failpoint};
use crate::handler::Handler;
use crate::shim_client::{Create, Shim, Stdio, Verb};
use crate::steps::in_scope;
use crate::store::{Container, ContainerState, Exit, Sandbox};
use crate::{Runtime, id};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::ContainerEventType;

/// The exit code of a container that could not be started, as in containerd.
const START_ERROR: i32 = 128;

impl Runtime {
    /// Starts a created container. On failure, the container has exited with the reason `StartError`. Succeeds for a container
    /// that the previous daemon started without responding.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::State`] if it was started before or its sandbox is not ready; the error of the OCI runtime.
    pub async fn start_container(self: &Arc<Self>, id: &str) -> Result<()> {
        let container = self.store.containers.get(id)?;
        let runtime = Arc::clone(self);
        // Spawned, so that the start completes even if the caller cancels.
        let work = async move { runtime.start(&container).await };
        tokio::spawn(in_scope(work)).await?
    }

    async fn start(self: &Arc<Self>, container: &Arc<Container>) -> Result<()> {
        // Lock order: sandbox before container, since stopping a sandbox takes the locks of its containers.
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let _sandbox_guard = sandbox.op_lock.read().await;
        let _guard = container.op_lock.lock().await;
        let record = container.record();
        if record.state == ContainerState::Running && container.take_repeated_start() {
            return Ok(());
        }
        if record.state != ContainerState::Created {
            return Err(Error::state(format!(
                "container {} is {}, not created",
                container.id,
                record.state.in_error()
            )));
        }
        self.check_ready(&sandbox).await?;
        // A container does not start with a handler that is no longer configured.
        let live = self.live();
        live.handlers.get(&record.handler)?;
        let handler = live.handlers.for_pod(&sandbox.record());
        self.prepare_cgroup_migration();
        let starting = container.update(|record| record.state = ContainerState::Starting);
        starting.await?;
        failpoint(Failpoint::ContainerStarting);
        match self.launch(container, &sandbox, &handler).await {
            Ok(()) => {
                self.emit_container_event(ContainerEventType::ContainerStartedEvent, container);
                self.nri_tell(Event::PostStartContainer, container).await;
                Ok(())
            }
            Err(error) => {
                let exit = Exit {
                    code: START_ERROR,
                    reason: "StartError".to_owned(),
                    message: error.to_string(),
                    signal: None,
                };
                // Recorded before the kill; otherwise the exit caused by the kill would be recorded.
                let first = container.ended(exit, id::now()).await;
                self.forget_process(container, &handler).await;
                if first {
                    if let Err(error) = self.unmount(container).await {
                        tracing::warn!(target: "criscope::runtime::container::start", event = "runtime.unmount", container.id = %container.id, error.message = %shown(&error), "the root file system of a container that failed to start could not be unmounted");
                    }
                    self.nri_stopped(container).await;
                    container.settle();
                    self.emit_container_event(ContainerEventType::ContainerStoppedEvent, container);
                }
                Err(error)
            }
        }
    }

    async fn launch(
        self: &Arc<Self>,
        container: &Arc<Container>,
        sandbox: &Arc<Sandbox>,
        handler: &Arc<Handler>,
    ) -> Result<()> {
        let shim = self.shim_of(sandbox).await?;
        let record = container.record();
        let (pod, logged) = (sandbox.record(), container.record());
        let log = super::log::path_of(&pod, &logged);
        let log = blocking(move || {
            log.as_deref().map_or(Ok(()), super::log::prepare)?;
            Ok(log.unwrap_or_default())
        });
        let log = log.await?;
        let max_line = self.live().settings.config.max_container_log_line_size;
        let creating = async {
            let create = Create {
                id: container.id.clone(),
                bundle: container.dir().display().to_string(),
                stdio: Stdio {
                    tty: record.config.tty,
                    stdin: record.config.stdin,
                    stdin_once: record.config.stdin_once,
                    hold: false,
                    log: log.display().to_string(),
                    max_line: max_line.try_into().unwrap_or(u32::MAX),
                },
                runtime: handler.call_create(&sandbox.id),
            };
            shim.create(create).await
        };
        let pid = self
            .steps
            .step(RuntimeStep::OciCreate, Some(handler.program()), creating)
            .await?;
        // Before the start: the exit event may arrive immediately.
        container.update(|record| record.pid = pid).await?;
        failpoint(Failpoint::ContainerMade);
        self.nri_start(sandbox, container).await?;
        // Taken before the start: the process may have exited by the time the shim responds.
        let started_at = id::now();
        self.start_process(container, &shim, handler).await?;
        failpoint(Failpoint::ContainerStarted);
        learn_filter(handler, container);
        // A shim of containerd may know the pid only now, and have answered the create with its own (runwasi's).
        let pid = if handler.has_containerd_shim() {
            shim.pid_of(&container.id).await.ok().flatten()
        } else {
            None
        };
        let runs = container.update(|record| {
            record.started_at = started_at;
            record.pid = pid.unwrap_or(record.pid);
            // The process may have exited already.
            if record.state == ContainerState::Starting {
                record.state = ContainerState::Running;
            }
        });
        runs.await?;
        Ok(())
    }

    async fn start_process(
        &self,
        container: &Container,
        shim: &Shim,
        handler: &Handler,
    ) -> Result<()> {
        let starting = async {
            let verb = Verb {
                id: container.id.clone(),
                runtime: handler.call(),
            };
            shim.start(verb).await
        };
        let steps = &self.steps;
        Ok(steps
            .step(RuntimeStep::OciStart, Some(handler.program()), starting)
            .await?)
    }
}

/// Caches, in the background, the seccomp filter that the OCI runtime compiled for this container.
fn learn_filter(handler: &Arc<Handler>, container: &Arc<Container>) {
    if handler.filters.is_none() {
        return;
    }
    let (handler, container) = (Arc::clone(handler), Arc::clone(container));
    tokio::task::spawn_blocking(move || {
        let state = handler.oci.root.join(&container.id);
        if let Some(filters) = &handler.filters {
            filters.learn(&container.dir().join(SPEC), &state);
        }
    });
}
