//! The PID namespace shared by the containers of a pod: the shim creates it with an init, the daemon pins it and detects the exit
//! of the init.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use criscope_linux::namespace::{Kind, process_namespace};

use super::teardown::blocking;
use crate::error::{Error, Result, shown};
use crate::oci::spec::{AccountKind, account_id};
use crate::shim_client::{PidNamespace, Shim};
use crate::store::{Sandbox, SandboxRecord, SandboxState};
use crate::{Runtime, id};
use criscope_cri::v1::{LinuxSandboxSecurityContext, NamespaceMode};

/// Default user and group of the init: those of the pause image.
const UNPRIVILEGED: u32 = 65535;

/// `oom_score_adj` of the init, as of containerd's pause container: the OOM killer prefers the containers of the pod.
pub(super) const OOM_SCORE_ADJ: i32 = -998;

/// How long an init may take to exit after SIGKILL.
const DYING: Duration = Duration::from_secs(10);

impl Runtime {
    /// Creates the PID namespace of a pod if its containers share one; returns the pid of its init, or 0.
    pub(super) async fn create_pid_namespace(
        self: &Arc<Self>,
        record: &SandboxRecord,
        shim: &Shim,
    ) -> Result<u32> {
        if !shares_pid_namespace(record) {
            return Ok(0);
        }
        let request = self.pid_namespace_request(record).await?;
        let init = shim.pid_namespace(request).await?;
        self.pin_pid_namespace(&record.id, shim, init).await?;
        Ok(init)
    }

    pub(super) async fn pid_namespace_request(
        self: &Arc<Self>,
        record: &SandboxRecord,
    ) -> Result<PidNamespace> {
        let users = self.pinned(&record.id, Kind::User);
        let join = [Kind::Net, Kind::Ipc, Kind::Uts]
            .into_iter()
            .filter_map(|kind| self.pinned(&record.id, kind))
            .map(|path| path.display().to_string())
            .collect();
        let context = record.config.security_context();
        let (uid, gid) = user(record, context)?;
        let groups = context.map_or(&[][..], |context| &context.supplemental_groups);
        let groups = groups
            .iter()
            .map(|group| account_id(AccountKind::SupplementalGroup, *group));
        let runtime = Arc::clone(self);
        let id = record.id.clone();
        Ok(PidNamespace {
            users: users.map_or_else(String::new, |path| path.display().to_string()),
            join,
            cgroups: blocking(move || Ok(runtime.make_init_cgroup(&id))).await?,
            uid,
            gid,
            groups: groups.collect::<std::result::Result<_, _>>()?,
            label: record.process_label.clone().unwrap_or_default(),
            oom_score_adj: OOM_SCORE_ADJ,
            mount_label: record.mount_label.clone().unwrap_or_default(),
        })
    }

    /// Pins the PID namespace of the init. Its pid cannot have been reused: the shim, which reaps the init, still reports it
    /// after the namespace was opened.
    pub(crate) async fn pin_pid_namespace(&self, id: &str, shim: &Shim, init: u32) -> Result<()> {
        let namespace = process_namespace(init);
        if init == 0 || shim.state().await?.pid_namespace != init {
            return Err(init_ended_error(id));
        }
        Ok(self.pins.pin_pid(id, namespace?).await?)
    }

    /// Checks that containers can be created in a sandbox: it is ready, and the init of a shared PID namespace is alive.
    ///
    /// # Errors
    /// [`Error::State`], with the actual state.
    pub(crate) async fn check_ready(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        sandbox.ready()?;
        self.check_init(sandbox).await?;
        sandbox.ready()
    }

    /// Queries the shim whether the init of a shared PID namespace is alive. The event of its exit may not have arrived.
    pub(crate) async fn check_init(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        if sandbox.record().pid_namespace != 0
            && let Some(shim) = self.live_shim(sandbox).await?
            && shim.state().await?.pid_namespace == 0
        {
            self.init_ended(sandbox, id::now()).await;
        }
        Ok(())
    }

    /// Records that the init of a shared PID namespace has exited, and with it all containers: the sandbox is then stopped. `at`
    /// is when that was seen, in nanoseconds since 1970.
    pub(crate) async fn init_ended(&self, sandbox: &Sandbox, at: i64) {
        let record = sandbox.record();
        if record.state != SandboxState::Ready || record.pid_namespace == 0 {
            return;
        }
        tracing::warn!(target: "criscope::runtime::sandbox::pid_namespace", event = "runtime.sandbox", criscope.sandbox.id = %sandbox.id, "the init of a shared PID namespace, or the sandbox container, has exited: the pod is no longer ready");
        let mut is_first = false;
        // The init is gone, even if the record cannot be written.
        let ended = sandbox.note(|record| {
            is_first = record.state == SandboxState::Ready;
            record.state = SandboxState::Stopped;
            record.pid_namespace = 0;
        });
        ended.await;
        if is_first {
            self.tell_init_exit(sandbox, at);
        }
    }

    /// Creates the cgroup of a pod's init: next to the shims', so that no limit of the pod applies, and separate from theirs,
    /// because a container with CAP_SYS_ADMIN can enter its cgroup namespace. On failure the init stays in its shim's cgroup.
    fn make_init_cgroup(&self, id: &str) -> Vec<String> {
        let Some(hierarchies) = &self.hierarchies else {
            return Vec::new();
        };
        match hierarchies.make(&self.init_cgroup(id)) {
            Ok(cgroup) => cgroup.dirs().map(|dir| dir.display().to_string()).collect(),
            Err(error) => {
                tracing::debug!(target: "criscope::runtime::sandbox::pid_namespace", event = "runtime.cgroup", error.message = %error, "the init of a pod stays in the cgroup of its shim");
                Vec::new()
            }
        }
    }

    /// Removes the cgroup of the init, and kills the init unless it died with its shim.
    pub(super) async fn remove_init_cgroup(&self, id: &str) -> Result<()> {
        let Some(hierarchies) = &self.hierarchies else {
            return Ok(());
        };
        let found = hierarchies.at(&self.init_cgroup(id));
        let cgroup = found.map_err(|error| Error::Internal(error.to_string()))?;
        let removed = blocking(move || {
            if cgroup.exists() {
                let removed = cgroup.remove(DYING);
                removed.map_err(|error| Error::Internal(error.to_string()))?;
            }
            Ok(())
        });
        // Not an error: no other part of the pod depends on it.
        if let Err(error) = removed.await {
            tracing::warn!(target: "criscope::runtime::sandbox::pid_namespace", event = "runtime.cgroup", criscope.sandbox.id = %id, error.message = %shown(&error), "the cgroup of a pod's init could not be removed");
        }
        Ok(())
    }

    /// The last part is the id of the sandbox and nothing else: the kubelet and cAdvisor find the sandbox by it.
    fn init_cgroup(&self, id: &str) -> PathBuf {
        Path::new(&self.settings.shim_cgroup).join(id)
    }
}

/// Returns whether the containers of a sandbox share a PID namespace.
pub(crate) fn shares_pid_namespace(record: &SandboxRecord) -> bool {
    record.namespaces().pid == NamespaceMode::Pod as i32
}

fn init_ended_error(id: &str) -> Error {
    Error::state(format!(
        "pod sandbox {id}: the init of its shared PID namespace has exited"
    ))
}

/// User and group of the init, as ids inside the pod's user namespace.
pub(super) fn user(
    record: &SandboxRecord,
    context: Option<&LinuxSandboxSecurityContext>,
) -> Result<(u32, u32)> {
    let options = record.namespaces().userns_options;
    // At most the highest id that the pod's user namespace maps.
    let unprivileged = options.map_or(UNPRIVILEGED, |users| {
        let mappings = users.uids.iter().chain(&users.gids);
        let last = mappings.map(|mapping| mapping.length.saturating_sub(1));
        last.min().unwrap_or(UNPRIVILEGED).min(UNPRIVILEGED)
    });
    let user = context.and_then(|context| context.run_as_user.as_ref());
    let group = context.and_then(|context| context.run_as_group.as_ref());
    Ok((
        user.map_or(Ok(unprivileged), |user| {
            account_id(AccountKind::User, user.value)
        })?,
        group.map_or(Ok(unprivileged), |group| {
            account_id(AccountKind::Group, group.value)
        })?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1::{self, Int64Value};

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
    fn the_init_runs_as_the_requested_user_or_an_unprivileged_one() {
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
    fn in_a_user_namespace_the_init_runs_as_a_mapped_user() {
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
