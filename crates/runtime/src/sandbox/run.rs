//! RunPodSandbox.

use std::path::PathBuf;
use std::sync::Arc;

use criscope_cni::Attached;
use criscope_linux::namespace::{self, Kind};
use criscope_linux::sysctl::Sysctl;
use criscope_linux::{log_file, rootfs};

use super::files;
use super::namespaces;
use super::teardown::blocking;
use crate::call_context::CallContext;
use crate::error::{Error, Result, shown};
use crate::failpoint::{Failpoint, failpoint};
use crate::handler::Handler;
use crate::live::Live;
use crate::sections::PodDefaults;
use crate::selinux::Lease;
use crate::singleflight::fingerprint;
use crate::steps::in_scope;
use crate::store::record::{VERSION, sandbox_name};
use crate::store::{Sandbox, SandboxRecord, SandboxState, disk};
use crate::{Runtime, id, validate};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::{ContainerEventType, NamespaceMode, PodSandboxConfig, RunPodSandboxRequest};

impl Runtime {
    /// Creates a sandbox and returns its id. On failure everything created so far is removed.
    ///
    /// A caller that cancels and retries receives the sandbox of its first call.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Taken`], [`Error::Network`], and system errors.
    pub async fn run_pod_sandbox(
        self: &Arc<Self>,
        request: RunPodSandboxRequest,
        call: &CallContext,
    ) -> Result<String> {
        let config = request.config.as_ref();
        let metadata = config.and_then(|config| config.metadata.as_ref());
        if metadata.is_none_or(|metadata| metadata.name.is_empty() || metadata.uid.is_empty()) {
            return Err(Error::invalid("the sandbox config has no name and uid"));
        }
        config.map_or(Ok(()), validate::sandbox)?;
        let name = sandbox_name(metadata);
        let work = in_scope(Arc::clone(self).make_sandbox(request.clone()));
        let print = fingerprint(&(&request.config, &request.runtime_handler));
        self.singleflight
            .run(&name, print, call, |id| self.is_ready(id), work)
            .await
    }

    fn is_ready(&self, id: &str) -> bool {
        let found = self.store.sandboxes.get(id);
        found.is_ok_and(|sandbox| sandbox.ready().is_ok())
    }

    async fn make_sandbox(self: Arc<Self>, request: RunPodSandboxRequest) -> Result<String> {
        let live = self.live();
        let handler = live.handlers.get(&request.runtime_handler)?;
        let mut record = SandboxRecord {
            version: VERSION,
            id: id::new_id()?,
            state: SandboxState::Making,
            config: request.config.unwrap_or_default(),
            asked_handler: request.runtime_handler,
            handler: handler.settings.name.clone(),
            oci: Some(handler.oci.clone()),
            created_at: id::now(),
            boot: self.boot.clone(),
            ..SandboxRecord::default()
        };
        record.log_directory = resolved_log_directory(&record.config).await?;
        namespaces::mappings(&record)?;
        self.check_userns(&record, handler)?;
        self.prepare_cgroup_migration();
        // Held until the sandbox is in the store, whose records then reserve its labels.
        let _labels = self.label(&mut record)?;
        let id = record.id.clone();
        let name = self.store.sandbox_names.reserve(&record.name(), &id)?;
        let sandbox = Arc::new(Sandbox::new(&self.settings.paths, record));
        self.write_record(&sandbox).await?;
        failpoint(Failpoint::SandboxRecorded);
        self.store.making.insert(&id, Arc::clone(&sandbox));
        let made = self.set_up(&sandbox, handler, &live).await;
        // Until it is in the store.
        let _unsynced = self.nri.block_sync(&self.steps).await;
        let made = match made {
            Ok(()) => self.nri_run_pod(&sandbox).await,
            failed => failed,
        };
        if made.is_ok() {
            self.store.sandboxes.insert(&id, Arc::clone(&sandbox));
            self.measure_pod_files(&sandbox);
        }
        self.store.making.remove(&id);
        match made {
            Ok(()) => {
                name.keep();
                failpoint(Failpoint::SandboxReady);
                self.keep_init(&sandbox);
                self.emit_sandbox_event(ContainerEventType::ContainerCreatedEvent, &sandbox);
                self.emit_sandbox_event(ContainerEventType::ContainerStartedEvent, &sandbox);
                Ok(id)
            }
            Err(error) => {
                if let Err(left) = self.undo_sandbox(&sandbox).await {
                    // The sandbox stays in the store, so that the kubelet removes it and frees its name.
                    tracing::warn!(target: "criscope::runtime::sandbox::run", event = "runtime.undo", criscope.sandbox.id = %id, error.message = %shown(&left), "a sandbox that could not be created was not removed completely");
                    let stopped = sandbox.update(|record| record.state = SandboxState::Stopped);
                    if stopped.await.is_ok() {
                        self.store.sandboxes.insert(&id, sandbox);
                        name.keep();
                    }
                }
                Err(error)
            }
        }
    }

    /// Creates the directories of a sandbox and writes its record.
    async fn write_record(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let (paths, record) = (self.settings.paths.clone(), sandbox.record());
        let work = sandbox.work(move || {
            let (dir, copy) = (paths.sandbox(&record.id), paths.copy(&record.id));
            let recorded = disk::make_dir(&dir)
                .and_then(|()| disk::write(&dir, &copy, &*record))
                .and_then(|()| disk::make_dir(&paths.pod(&record.id)));
            recorded.inspect_err(|_| {
                // On a full disk the directory may exist without a record.
                let _as_an_orphan_at_the_next_start =
                    disk::remove_copy(&copy).and_then(|()| disk::remove(&dir));
            })
        });
        work.await
    }

    /// Creates all parts of a sandbox, concurrently where possible. No part is still being created when this returns.
    async fn set_up(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        handler: &Handler,
        live: &Arc<Live>,
    ) -> Result<()> {
        let record = sandbox.record();
        let hostname = files::hostname(&record.config, record.own_host_name());
        let files = self.write_files(&record, &hostname);
        let network = self.make_network(sandbox, &hostname, handler, &live.settings.node.policy);
        let shim = self.launch_shim(&sandbox.id);
        let (files, network, shim) = tokio::join!(files, network, shim);
        // Set even if another part failed, so that the rollback shuts the shim down.
        let shim = shim?;
        sandbox.set_shim(Some(shim.clone()));
        files?;
        let network = network?;
        let pid_namespace = if handler.has_containerd_shim() {
            let making = self.make_sandbox_container(&record, handler, live, &shim);
            making.await?
        } else {
            self.create_pid_namespace(&record, &shim).await?
        };
        let ready = sandbox.update(|record| {
            record.state = SandboxState::Ready;
            record.pid_namespace = pid_namespace;
            if let Some(network) = network {
                record.ip = network.ip;
                record.additional_ips = network.additional_ips;
                record.networks = network.networks;
            }
        });
        ready.await?;
        self.watch(sandbox, &shim);
        Ok(())
    }

    async fn write_files(&self, record: &SandboxRecord, hostname: &str) -> Result<()> {
        let (paths, record, hostname) = (
            self.settings.paths.clone(),
            record.clone(),
            hostname.to_owned(),
        );
        let work = blocking(move || {
            // The pod's root user may change the files.
            let owner = match namespaces::mappings(&record)? {
                Some(mappings) => mappings.host(0, 0),
                None => (0, 0),
            };
            files::write(&paths.sandbox(&record.id), &record.config, &hostname, owner)?;
            if record.namespaces().ipc != NamespaceMode::Node as i32 {
                let shm = rootfs::Shm {
                    owner,
                    label: record.mount_label.clone(),
                    ..rootfs::Shm::default()
                };
                rootfs::mount_shm(&paths.shm(&record.id), &shm)?;
            }
            failpoint(Failpoint::SandboxFiles);
            Ok(())
        });
        let steps = &self.steps;
        steps.step(RuntimeStep::SandboxFiles, None, work).await
    }

    /// Creates the namespaces and attaches the network. The record is synced before a plugin allocates an address, so that the
    /// address is released after a power failure; the sync runs concurrently with the creation of the namespaces.
    async fn make_network(
        &self,
        sandbox: &Arc<Sandbox>,
        hostname: &str,
        handler: &Handler,
        policy: &PodDefaults,
    ) -> Result<Option<Attached>> {
        let record = &*sandbox.record();
        let request = namespaces::request(record, hostname, policy)?;
        let making = self.pins.make(&record.id, request);
        let making = self.steps.step(RuntimeStep::Namespaces, None, making);
        if record.host_network() {
            making.await?;
            failpoint(Failpoint::SandboxNamespaces);
            return Ok(None);
        }
        let dir = sandbox.dir().to_owned();
        let syncing = sandbox.work(move || disk::sync_record(&dir));
        let (made, synced) = tokio::join!(making, syncing);
        made?;
        synced?;
        failpoint(Failpoint::SandboxNamespaces);
        let pod = self.pod_of(record).await?;
        let adding = handler.cni.add(&pod);
        let attached = self
            .steps
            .step(RuntimeStep::NetworkAttach, None, adding)
            .await?;
        failpoint(Failpoint::SandboxNetwork);
        self.set_interface_sysctls(record, policy).await?;
        Ok(Some(attached))
    }

    async fn set_interface_sysctls(
        &self,
        record: &SandboxRecord,
        policy: &PodDefaults,
    ) -> Result<()> {
        let sysctls = namespaces::interface_sysctls(record, policy)?;
        if sysctls.is_empty() {
            return Ok(());
        }
        let path = self.pins.path(&record.id, Kind::Net);
        let written = namespace::run_in(
            move || namespace::open(&path),
            Kind::Net,
            move || sysctls.iter().try_for_each(Sysctl::write),
        )
        .await?;
        Ok(written.map_err(namespace::Error::from)?)
    }

    /// Assigns the SELinux labels of a sandbox, if SELinux is enabled on the node.
    fn label(&self, record: &mut SandboxRecord) -> Result<Option<Lease>> {
        let Some(labels) = &self.labels else {
            return Ok(None);
        };
        let context = record.config.security_context();
        let options = context.and_then(|context| context.selinux_options.as_ref());
        let others = self.store.sandboxes.all().into_iter();
        let others = others.filter_map(|sandbox| sandbox.record().process_label.clone());
        let lease = labels.lease(options, others)?;
        record.process_label = Some(lease.process.clone());
        record.mount_label = Some(lease.file.clone());
        Ok(Some(lease))
    }

    /// Checks that the handler supports user namespaces if the pod has one.
    fn check_userns(&self, record: &SandboxRecord, handler: &Handler) -> Result<()> {
        if namespaces::mappings(record)?.is_none() {
            return Ok(());
        }
        if handler.features.user_namespaces {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "runtime handler {:?} does not support user namespaces",
            handler.settings.name
        )))
    }
}

/// The log directory of a pod without links; `None` without one. An earlier sandbox of the same pod may have left a link.
async fn resolved_log_directory(config: &PodSandboxConfig) -> Result<Option<PathBuf>> {
    if config.log_directory.is_empty() {
        return Ok(None);
    }
    let directory = PathBuf::from(&config.log_directory);
    blocking(move || Ok(Some(log_file::resolve(&directory)?))).await
}
