//! The PID namespace of a pod whose containers share their processes: made with the shim, pinned, and noticed when it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use criscope_linux::namespace::{Kind, of_process};

use super::teardown::blocking;
use crate::cri::v1::{LinuxSandboxSecurityContext, NamespaceMode};
use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result, shown};
use crate::runtime::shim_client::{PidNamespace, Shim};
use crate::runtime::store::{Sandbox, SandboxRecord, SandboxState};

/// User and group of the init, where the pod asks for none: those of the pause image.
const NOBODY: u32 = 65535;

/// Of the init, as of containerd's pause container: the last of its pod to be killed for want of memory.
const OOM_SCORE_ADJ: i32 = -998;

/// How long an init may take to end once it is killed.
const DYING: Duration = Duration::from_secs(10);

impl Runtime {
    /// Makes the PID namespace of a pod, where its containers share one; returns the pid of its init, 0 without.
    pub(super) async fn share_processes(
        self: &Arc<Self>,
        record: &SandboxRecord,
        shim: &Shim,
    ) -> Result<u32> {
        if !shares_processes(record) {
            return Ok(0);
        }
        let wanted = self.wanted(record).await?;
        let init = shim.pid_namespace(wanted).await?;
        self.pin_processes(&record.id, shim, init).await?;
        Ok(init)
    }

    async fn wanted(self: &Arc<Self>, record: &SandboxRecord) -> Result<PidNamespace> {
        let pin = |kind| {
            let path = self.pins.path(&record.id, kind);
            Some(path.display().to_string()).filter(|_| path.exists())
        };
        let linux = record.config.linux.as_ref();
        let context = linux.and_then(|linux| linux.security_context.as_ref());
        let (uid, gid) = user(record, context)?;
        let groups = context.map_or(&[][..], |context| &context.supplemental_groups);
        let groups = groups.iter().map(|group| id("group", *group));
        let runtime = Arc::clone(self);
        let id = record.id.clone();
        Ok(PidNamespace {
            users: pin(Kind::User).unwrap_or_default(),
            join: [Kind::Net, Kind::Ipc, Kind::Uts]
                .into_iter()
                .filter_map(pin)
                .collect(),
            cgroups: blocking(move || Ok(runtime.make_init_cgroup(&id))).await?,
            uid,
            gid,
            groups: groups.collect::<Result<_>>()?,
            label: record.process_label.clone().unwrap_or_default(),
            oom_score_adj: OOM_SCORE_ADJ,
        })
    }

    /// Pins the PID namespace of this init. That it is the init's is known because the shim, which reaps it, still has it after
    /// the namespace was opened: until then no other process can have had its number.
    pub(in crate::runtime) async fn pin_processes(
        &self,
        id: &str,
        shim: &Shim,
        init: u32,
    ) -> Result<()> {
        let namespace = of_process(init);
        if init == 0 || shim.state().await?.pid_namespace != init {
            return Err(no_processes(id));
        }
        Ok(self.pins.pin_pid(id, namespace?).await?)
    }

    /// Whether a sandbox can have containers, and still has the processes they share.
    ///
    /// # Errors
    /// [`Error::State`], with the state.
    pub(in crate::runtime) async fn ready_for_processes(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<()> {
        sandbox.ready()?;
        if shares_processes(&sandbox.record()) {
            self.check_processes(sandbox).await?;
        }
        sandbox.ready()
    }

    /// Asks the shim whether the init of a shared PID namespace is there. Also for what a shim of version 1 does not tell.
    pub(in crate::runtime) async fn check_processes(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<()> {
        if sandbox.record().pid_namespace != 0
            && let Some(shim) = self.live_shim(sandbox).await?
            && shim.state().await?.pid_namespace == 0
        {
            self.processes_ended(sandbox).await;
        }
        Ok(())
    }

    /// The init of a shared PID namespace has ended, and all containers with it: nothing more can run in the sandbox.
    pub(in crate::runtime) async fn processes_ended(&self, sandbox: &Sandbox) {
        let record = sandbox.record();
        if record.state != SandboxState::Ready || record.pid_namespace == 0 {
            return;
        }
        tracing::warn!(event = "runtime.sandbox", sandbox.id = %sandbox.id, "the init of a shared PID namespace has ended: the pod is not ready any more");
        // True whether it can be written or not.
        let ended = sandbox.note(|record| {
            record.state = SandboxState::Stopped;
            record.pid_namespace = 0;
        });
        ended.await;
    }

    /// The cgroup of a pod's init: beside the shims, so that no limit of the pod ends it, and its own, because a container with
    /// CAP_SYS_ADMIN can enter its cgroup namespace. Where none can be made it stays in the shim's.
    fn make_init_cgroup(&self, id: &str) -> Vec<String> {
        let Some(hierarchies) = &self.hierarchies else {
            return Vec::new();
        };
        match hierarchies.make(&self.init_cgroup(id)) {
            Ok(cgroup) => cgroup.dirs().map(|dir| dir.display().to_string()).collect(),
            Err(error) => {
                tracing::debug!(event = "runtime.cgroup", %error, "the init of a pod stays in the cgroup of its shim");
                Vec::new()
            }
        }
    }

    /// Removes it, with the init that the end of the shim has ended.
    pub(super) async fn remove_init_cgroup(&self, id: &str) -> Result<()> {
        let Some(hierarchies) = &self.hierarchies else {
            return Ok(());
        };
        let found = hierarchies.at(&self.init_cgroup(id));
        let cgroup = found.map_err(|error| Error::Internal(error.to_string()))?;
        let removed = blocking(move || match cgroup.exists() {
            true => cgroup
                .remove(DYING)
                .map_err(|error| Error::Internal(error.to_string())),
            false => Ok(()),
        });
        // Nothing of the pod depends on it.
        if let Err(error) = removed.await {
            tracing::warn!(event = "runtime.cgroup", sandbox.id = %id, error = %shown(&error), "the cgroup of a pod's init stays");
        }
        Ok(())
    }

    fn init_cgroup(&self, id: &str) -> PathBuf {
        Path::new(&self.settings.shim_cgroup).join(format!("init-{id}"))
    }
}

/// Whether the containers of a sandbox share their processes.
pub(in crate::runtime) fn shares_processes(record: &SandboxRecord) -> bool {
    record.namespaces().pid == NamespaceMode::Pod as i32
}

fn no_processes(id: &str) -> Error {
    Error::state(format!(
        "pod sandbox {id}: the init of its shared PID namespace has ended"
    ))
}

fn id(what: &str, asked: i64) -> Result<u32> {
    let id = u32::try_from(asked).ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| Error::invalid(format!("{asked} is no {what} id")))
}

/// User and group of the init, as the pod's user namespace has them.
fn user(
    record: &SandboxRecord,
    context: Option<&LinuxSandboxSecurityContext>,
) -> Result<(u32, u32)> {
    let options = record.namespaces().userns_options;
    // Somebody whom the pod's user namespace knows.
    let nobody = options.map_or(NOBODY, |users| {
        let mappings = users.uids.iter().chain(&users.gids);
        let last = mappings.map(|mapping| mapping.length.saturating_sub(1));
        last.min().unwrap_or(NOBODY).min(NOBODY)
    });
    let asked = context.and_then(|context| context.run_as_user.as_ref());
    let group = context.and_then(|context| context.run_as_group.as_ref());
    Ok((
        asked.map_or(Ok(nobody), |asked| id("user", asked.value))?,
        group.map_or(Ok(nobody), |asked| id("group", asked.value))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::v1::{self, Int64Value};

    fn record(context: LinuxSandboxSecurityContext) -> SandboxRecord {
        SandboxRecord {
            config: v1::PodSandboxConfig {
                linux: Some(v1::LinuxPodSandboxConfig {
                    security_context: Some(context),
                    ..Default::default()
                }),
                ..Default::default()
            },
            ..SandboxRecord::default()
        }
    }

    fn user_of(context: &LinuxSandboxSecurityContext) -> Result<(u32, u32)> {
        user(&record(context.clone()), Some(context))
    }

    #[test]
    fn the_init_is_who_the_pod_asks_for_or_nobody() {
        let mut context = LinuxSandboxSecurityContext::default();
        assert_eq!(user_of(&context).expect("valid"), (65535, 65535));
        context.run_as_user = Some(Int64Value { value: 1000 });
        context.run_as_group = Some(Int64Value { value: 0 });
        assert_eq!(user_of(&context).expect("valid"), (1000, 0));
        for value in [-1, i64::from(u32::MAX), i64::MAX] {
            context.run_as_user = Some(Int64Value { value });
            user_of(&context).expect_err("no user");
        }
    }

    #[test]
    fn in_a_user_namespace_it_is_somebody_known_there() {
        let mapping = |length| v1::IdMapping {
            length,
            host_id: 100_000,
            container_id: 0,
        };
        let context = LinuxSandboxSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                userns_options: Some(v1::UserNamespace {
                    mode: NamespaceMode::Pod.into(),
                    uids: vec![mapping(65536)],
                    gids: vec![mapping(1000)],
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(user_of(&context).expect("valid"), (999, 999));
    }
}
