//! StartContainer.

use std::sync::Arc;

use super::super::sandbox::teardown::blocking;
use super::bundle::SPEC;
use crate::call::steps::RuntimeStep;
use crate::cri::v1::ContainerEventType;
use crate::runtime::error::{Error, Result, shown};
use crate::runtime::failpoint::{Failpoint, failpoint};
use crate::runtime::handler::Handler;
use crate::runtime::shim_client::{Create, Shim, Stdio, Verb};
use crate::runtime::steps::in_scope;
use crate::runtime::store::{Container, ContainerState, Exit, Sandbox};
use crate::runtime::{Runtime, id};

/// What a container that could not be started exits with, as containerd has it.
const START_ERROR: i32 = 128;

impl Runtime {
    /// Starts a created container. One that cannot be started has exited, with the reason. One that the last daemon started
    /// without having said so is started.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::State`] if it was started before or its sandbox is not ready; what the OCI runtime said.
    pub async fn start_container(self: &Arc<Self>, id: &str) -> Result<()> {
        let container = self.store.containers.get(id)?;
        let runtime = Arc::clone(self);
        // A task of its own: it is started, or has failed and says so, whoever waits.
        let work = async move { runtime.start(&container).await };
        tokio::spawn(in_scope(work)).await?
    }

    async fn start(self: &Arc<Self>, container: &Arc<Container>) -> Result<()> {
        // The sandbox's turn first, as everywhere: to stop it waits for the turns of its containers.
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let _sandbox_turn = sandbox.turn.read().await;
        let _turn = container.turn.lock().await;
        let record = container.record();
        if record.state == ContainerState::Running && container.take_start() {
            return Ok(());
        }
        if record.state != ContainerState::Created {
            return Err(Error::state(format!(
                "container {} is {}, not created",
                container.id,
                record.state.name()
            )));
        }
        self.ready_for_processes(&sandbox).await?;
        // Nothing new of a handler that is not configured any more.
        self.handlers.get(&record.handler)?;
        let handler = self.handler_of(container);
        let starting = container.update(|record| record.state = ContainerState::Starting);
        starting.await?;
        failpoint(Failpoint::ContainerStarting);
        match self.launch(container, &sandbox, &handler).await {
            Ok(()) => {
                self.tell_container(ContainerEventType::ContainerStartedEvent, container);
                Ok(())
            }
            Err(error) => {
                let exit = Exit {
                    code: START_ERROR,
                    reason: "StartError".to_owned(),
                    message: error.to_string(),
                };
                // Before it is killed, or that would be its end.
                let told = container.ended(exit, id::now()).await;
                self.forget_process(container, &handler).await;
                if told {
                    if let Err(error) = self.unmount(container).await {
                        tracing::warn!(event = "runtime.unmount", container.id = %container.id, error = %shown(&error), "the root of a container that was not started stays mounted");
                    }
                    container.settle();
                    self.tell_container(ContainerEventType::ContainerStoppedEvent, container);
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
        let log = record.log.clone();
        blocking(move || super::log::make_dir(&log)).await?;
        let creating = async {
            let create = Create {
                id: container.id.clone(),
                bundle: container.dir().display().to_string(),
                stdio: Stdio {
                    tty: record.config.tty,
                    stdin: record.config.stdin,
                    stdin_once: record.config.stdin_once,
                    hold: false,
                    log: record.log.display().to_string(),
                    max_line: self.settings.max_log_line,
                },
                runtime: handler.call_create(),
            };
            shim.create(create).await
        };
        let pid = self
            .steps
            .step(RuntimeStep::OciCreate, Some(handler.program()), creating)
            .await?;
        // Before it runs: its end may be told at once.
        container.update(|record| record.pid = pid).await?;
        failpoint(Failpoint::ContainerMade);
        // Before it runs: it may have ended when this is known.
        let started_at = id::now();
        self.start_process(container, &shim, handler).await?;
        failpoint(Failpoint::ContainerStarted);
        learn_filter(handler, container);
        let runs = container.update(|record| {
            record.started_at = started_at;
            // It may have ended already.
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

/// Keeps what the runtime compiled for this container. Nobody waits for it: it serves the next one.
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
