//! The sandbox container of pods whose containers a shim of containerd runs: the shim starts with it, and takes the pod's network and
//! size from its specification. It runs a [`pause`] program of criscope, without an image, in the namespaces of the pod.
//!
//! The bundle is the directory of the sandbox: shims find bundles by the id.

mod cgroup;
mod pause;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use criscope_linux::rootfs;
use oci_spec::runtime::{Capability, Spec};

pub use self::cgroup::SandboxLimit;
use super::pid_namespace::{OOM_SCORE_ADJ, shares_pid_namespace, user};
use super::teardown::blocking;
use crate::Runtime;
use crate::container::{SPEC, write_private};
use crate::error::{Error, Result};
use crate::handler::Handler;
use crate::live::Live;
use crate::oci::ShimOptions;
use crate::oci::spec::{
    self, FinishRequest, Machine, PluginChanges, SandboxFacts, UserDatabase, cdi, hooks,
    sandbox_annotations, sandbox_sysctls,
};
use crate::shim_client::{self, Create, Shim, Verb};
use crate::store::{Sandbox, SandboxRecord};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::{self, NamespaceMode};

/// The path of the program in the container.
const PROGRAM: &str = "/pause";

/// The weight of its processor time under an OCI runtime, as of containerd's: its program waits.
const CPU_SHARES: i64 = 2;

/// The sysctl that the namespace of the pod has by its host name.
const HOST_NAME: &str = "kernel.hostname";

impl Runtime {
    /// Creates and starts the sandbox container, and with it the shim of containerd; returns its pid. If the containers share a PID
    /// namespace, it is the sandbox container's.
    pub(super) async fn make_sandbox_container(
        self: &Arc<Self>,
        record: &SandboxRecord,
        handler: &Handler,
        live: &Arc<Live>,
        shim: &Shim,
    ) -> Result<u32> {
        let (runtime, own, live) = (Arc::clone(self), record.clone(), Arc::clone(live));
        let written = blocking(move || runtime.write_sandbox_bundle(&own, &live));
        self.steps.step(RuntimeStep::Spec, None, written).await?;
        let id = &record.id;
        let creating = shim.create(Create {
            id: id.clone(),
            bundle: self.settings.paths.sandbox(id).display().to_string(),
            runtime: handler.call_create(id),
            ..Create::default()
        });
        let program = Some(handler.program());
        let steps = &self.steps;
        let pid = steps
            .step(RuntimeStep::OciCreate, program, creating)
            .await?;
        let starting = shim.start(Verb {
            id: id.clone(),
            runtime: handler.call(),
        });
        steps.step(RuntimeStep::OciStart, program, starting).await?;
        // Read again, as for a container: the first answer may have been the pid of the shim, whose PID namespace is the node's.
        let pid = shim.pid_of(id).await?.unwrap_or(pid);
        if shares_pid_namespace(record) {
            self.pin_pid_namespace(id, shim, pid).await?;
        }
        Ok(pid)
    }

    /// Kills and deletes the sandbox container, with which the shim of containerd ends.
    pub(super) async fn end_sandbox_container(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<()> {
        let record = sandbox.record();
        if !record.has_containerd_shim() {
            return Ok(());
        }
        let deleted = match self.live_shim(sandbox).await? {
            Some(shim) => {
                let handler = self.handler_of_pod(&record);
                let deleting = shim.delete(Verb {
                    id: record.id.clone(),
                    runtime: handler.call(),
                });
                let freezers = self.freezers_of_pod(&record);
                let deleting = self.thawing_in(&record.id, Some(freezers), Box::pin(deleting));
                let program = Some(handler.program());
                let step = self.steps.step(RuntimeStep::OciDelete, program, deleting);
                step.await
            }
            // Leftovers of the lost shim were deleted at once.
            None => return Ok(()),
        };
        match deleted {
            // The shim does not know the container: deleted before, or never created.
            Ok(()) | Err(shim_client::Error::NotFound(_)) => {
                self.remove_empty_sandbox_cgroup(&record).await;
                Ok(())
            }
            Err(shim_client::Error::Gone { .. }) => {
                self.end_containerd_shims(&record).await?;
                self.delete_abandoned_sandbox(&record).await;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the shims of containerd of a pod whose own shim is gone: nothing else can reach them, and they would keep the containers.
    pub(crate) async fn end_containerd_shims(&self, record: &SandboxRecord) -> Result<()> {
        if !record.has_containerd_shim() {
            return Ok(());
        }
        let bundle = self.settings.paths.sandbox(&record.id);
        shim_client::end_containerd_shim(&record.id, &bundle).await?;
        for container in self.store.containers_of(&record.id) {
            shim_client::end_containerd_shim(&container.id, container.dir()).await?;
        }
        Ok(())
    }

    /// Deletes the sandbox container of a pod whose shim of containerd is gone. A failure is logged: a shim that cannot be run, which
    /// may be the reason for the end of the pod, must not keep it from being removed.
    pub(crate) async fn delete_abandoned_sandbox(&self, record: &SandboxRecord) {
        if !record.has_containerd_shim() {
            return;
        }
        let dir = self.settings.paths.sandbox(&record.id);
        let handler = self.handler_of_pod(record);
        let deleting = handler.oci.delete_abandoned(&record.id, &dir);
        let freezers = self.freezers_of_pod(record);
        let deleting = self.thawing_in(&record.id, Some(freezers), Box::pin(deleting));
        let program = Some(handler.program());
        let step = self.steps.step(RuntimeStep::OciDelete, program, deleting);
        if let Err(error) = step.await {
            tracing::warn!(target: "criscope::runtime::sandbox::task", event = "runtime.delete", criscope.sandbox.id = %record.id, error.message = %error, "the sandbox container of a pod could not be deleted");
        }
        self.remove_sandbox_cgroup(record).await;
    }

    /// Writes the bundle of the sandbox container.
    fn write_sandbox_bundle(&self, record: &SandboxRecord, live: &Live) -> Result<()> {
        let dir = self.settings.paths.sandbox(&record.id);
        let root = dir.join("rootfs");
        write_root(&root).map_err(|error| Error::io("write", &root, error))?;
        if let Some(label) = &record.mount_label {
            rootfs::relabel(&root, label)?;
        }
        let spec = self.sandbox_spec(record, live, &root)?;
        let text = serde_json::to_vec(&spec)
            .map_err(|error| Error::Internal(format!("specification: {error}")))?;
        write_private(&dir.join(SPEC), &text)
    }

    fn sandbox_spec(&self, record: &SandboxRecord, live: &Live, root: &Path) -> Result<Spec> {
        let handler = live.handlers.get(&record.handler)?;
        let node = &live.settings.node;
        let sandbox = SandboxFacts {
            // The sandbox container has a PID namespace of its own, which the containers may share.
            pid: None,
            ..self.sandbox_facts(record)
        };
        let can_lower = node.all_capabilities.contains(&Capability::SysResource);
        let container = container(
            record,
            node.seccomp,
            can_lower,
            cpu_shares(handler.oci.shim.as_ref()),
        )?;
        let built = spec::build(&spec::Request {
            id: &record.id,
            pod: &record.config,
            container: &container,
            image: &spec::ImageConfig::default(),
            rootfs: root,
            users: &UserDatabase::default(),
            node,
            sandbox: &sandbox,
            handler: &handler.settings,
            host: &Machine,
            cdi: &cdi::Registry::default(),
            hooks: &hooks::Registry::default(),
        })?;
        let mut spec = built.spec;
        if !can_lower && let Some(process) = spec.process_mut() {
            process.set_oom_score_adj(None);
        }
        if let Some(linux) = spec.linux_mut() {
            // The namespaces of the pod have them; a shim with another kernel sets them there.
            let mut sysctls = sandbox_sysctls(&record.config, &node.policy)?;
            sysctls.remove(HOST_NAME);
            linux.set_sysctl(Some(sysctls.into_iter().collect()));
        }
        // runc refuses to set the sysctls of a namespace that it joins.
        if matches!(handler.oci.shim, Some(ShimOptions::Other { .. })) && sandbox.uts.is_some() {
            spec.set_hostname(Some(sandbox.hostname.clone()));
        }
        sandbox_annotations(
            &record.config,
            spec.annotations_mut().get_or_insert_default(),
        );
        // Nothing but the runtime has changed it: the rules about its values remain.
        let finishing = FinishRequest {
            requested: &spec.clone(),
            plugins: PluginChanges::default(),
            handler: &handler.settings,
            support: &handler.features.support,
            host: &Machine,
        };
        finishing.finish(&mut spec)?;
        Ok(spec)
    }
}

/// The weight of the processor time of the sandbox container; 0 for the default. gVisor runs all containers of the pod in its cgroup,
/// unless a part of the path above begins with `pod`: with the weight of a program that waits they took 19 s to start on a busy node.
fn cpu_shares(shim: Option<&ShimOptions>) -> i64 {
    match shim {
        Some(ShimOptions::Other { .. }) => 0,
        Some(ShimOptions::Runc { .. }) | None => CPU_SHARES,
    }
}

/// The sandbox container as if the kubelet had requested it.
fn container(
    record: &SandboxRecord,
    seccomp: bool,
    can_lower: bool,
    cpu_shares: i64,
) -> Result<v1::ContainerConfig> {
    let context = record.config.security_context();
    let (uid, gid) = user(record, context)?;
    let options = record.namespaces();
    let runtime_default = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
        ..Default::default()
    };
    let security_context = v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            drop_capabilities: vec!["ALL".to_owned()],
            ..Default::default()
        }),
        namespace_options: Some(v1::NamespaceOption {
            pid: if options.pid == NamespaceMode::Node as i32 {
                NamespaceMode::Node.into()
            } else {
                NamespaceMode::Container.into()
            },
            ..options
        }),
        run_as_user: Some(v1::Int64Value { value: uid.into() }),
        run_as_group: Some(v1::Int64Value { value: gid.into() }),
        readonly_rootfs: true,
        no_new_privs: true,
        seccomp: seccomp.then_some(runtime_default),
        ..Default::default()
    };
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata::default()),
        command: vec![PROGRAM.to_owned()],
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                cpu_shares,
                oom_score_adj: if can_lower { OOM_SCORE_ADJ.into() } else { 0 },
                ..Default::default()
            }),
            security_context: Some(security_context),
        }),
        ..Default::default()
    })
}

/// Creates the root directory: the program and the places of mounts.
fn write_root(root: &Path) -> io::Result<()> {
    for dir in ["dev", "etc", "proc", "sys"] {
        fs::create_dir_all(root.join(dir))?;
    }
    for file in ["hostname", "hosts", "resolv.conf"] {
        fs::write(root.join("etc").join(file), "")?;
    }
    let program = pause::program(std::env::consts::ARCH).ok_or_else(|| {
        let arch = std::env::consts::ARCH;
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("no program of a sandbox container for {arch}"),
        )
    })?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o555)
        .open(root.join(PROGRAM.trim_start_matches('/')))?;
    file.write_all(&program)
}
