//! CreateContainer.

use std::sync::Arc;

use criscope_nri::api::Event;

use super::super::sandbox::teardown::blocking;
use super::bundle::{Assembled, Assembly};
use super::pod_config;
use super::stop_signal::StopSignal;
use super::volumes::{VolumeImage, find_volumes, hold_volumes, volume_limits};
use crate::call_context::CallContext;
use crate::error::{Error, Result, What, shown};
use crate::failpoint::{Failpoint, failpoint};
use crate::singleflight::fingerprint;
use crate::steps::{self, in_scope};
use crate::store::record::{VERSION, container_name};
use crate::store::{Container, ContainerRecord, ContainerState, Sandbox, disk};
use crate::{Runtime, id, validate};
use criscope_cri::v1::{self, ContainerConfig, ContainerEventType, CreateContainerRequest};
use criscope_image::{FoundImage, Image, ImageStore, LayerLease};

/// Annotation of a kubelet with the path of the termination message in the container (`pkg/kubelet/kuberuntime/labels.go`).
const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";

/// Fingerprint of a request to create a container. A kubelet that tries again changes the order of variables (those of services come
/// from a map) and the random name of the file for the termination message; it reads that of the container that there is.
pub(crate) fn create_fingerprint(sandbox_id: &str, mut config: ContainerConfig) -> u64 {
    config.envs.sort_by(|a, b| a.key.cmp(&b.key));
    if let Some(path) = config.annotations.get(TERMINATION_MESSAGE_PATH) {
        let files = config.mounts.iter_mut();
        for file in files.filter(|mount| mount.container_path == *path) {
            let directory = file.host_path.rfind('/').unwrap_or_default();
            file.host_path.truncate(directory);
        }
    }
    fingerprint(&(sandbox_id, config))
}

impl Runtime {
    /// Creates a container in a ready sandbox from a local image and returns its id. On failure everything created so far is
    /// removed. A caller that cancels and retries receives the container of its first call.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`], [`Error::State`], [`Error::Taken`], and system errors.
    pub async fn create_container(
        self: &Arc<Self>,
        request: CreateContainerRequest,
        call: &CallContext,
    ) -> Result<String> {
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        let config = request.config.as_ref();
        let metadata = config.and_then(|config| config.metadata.as_ref());
        if metadata.is_none_or(|metadata| metadata.name.is_empty()) {
            return Err(Error::invalid("the container config has no name"));
        }
        config.map_or(Ok(()), validate::container)?;
        let name = container_name(metadata, sandbox.record().config.metadata.as_ref());
        let print = create_fingerprint(&sandbox.id, request.config.clone().unwrap_or_default());
        let work = in_scope(Arc::clone(self).make_container(sandbox, request, name.clone()));
        self.singleflight
            .run(&name, print, call, |id| self.is_created(id), work)
            .await
    }

    fn is_created(&self, id: &str) -> bool {
        let found = self.store.containers.get(id);
        found.is_ok_and(|container| container.record().state == ContainerState::Created)
    }

    async fn make_container(
        self: Arc<Self>,
        sandbox: Arc<Sandbox>,
        request: CreateContainerRequest,
        name: String,
    ) -> Result<String> {
        let _guard = sandbox.op_lock.read().await;
        self.check_ready(&sandbox).await?;
        let pod = pod_config::current(&sandbox.record().config, request.sandbox_config);
        validate::sandbox(&pod)?;
        let mut config = request.config.unwrap_or_default();
        let images = self.images();
        let found = image_of(&images, &config)?;
        let volumes = find_volumes(&images, &config)?;
        self.check_policies(&sandbox, &config, &found, &volumes)
            .await?;
        // From here on images are known by their IDs: a name may be moved to another image at any time.
        let image = &found.image;
        let layers = images.layers(image.id.as_str())?;
        let volumes = hold_volumes(&images, volumes)?;
        let stop_signal = StopSignal::choose(&config, &image.config.stop_signal)?;
        let id = id::new_id()?;
        let reservation = self.store.container_names.reserve(&name, &id)?;
        config.image.get_or_insert_default();
        let image_name = name_of(&images, &found, config.image.as_ref());
        if let Some(text) = &stop_signal.remark {
            steps::remark(&image_name, text);
        }
        let record = ContainerRecord {
            version: VERSION,
            id: id.clone(),
            sandbox: sandbox.id.clone(),
            state: ContainerState::Making,
            image_id: image.id.to_string(),
            image_ref: reference(image),
            image_name,
            image_volumes: volumes.records,
            layers: layers.ids().to_vec(),
            handler: sandbox.record().handler.clone(),
            created_at: id::now(),
            log: log_path(&sandbox.record().config, &config),
            stop_signal: stop_signal.number,
            resources: config.resources().cloned().unwrap_or_default(),
            config,
            ..ContainerRecord::default()
        };
        // Until it is in the store.
        let unsynced = self.nri.block_sync(&self.steps).await;
        let container = self
            .assemble_container(&sandbox, pod, record, image, layers, volumes.held)
            .await?;
        let container = Arc::new(container);
        self.store.containers.insert(&id, Arc::clone(&container));
        reservation.keep();
        self.measure_container(&container);
        failpoint(Failpoint::ContainerCreated);
        self.emit_container_event(ContainerEventType::ContainerCreatedEvent, &container);
        self.nri_tell(Event::PostCreateContainer, &container).await;
        drop(unsynced);
        Ok(id)
    }

    /// Asks the signature policy of the pod's namespace for the image and for those of image volumes.
    async fn check_policies(
        &self,
        sandbox: &Sandbox,
        config: &v1::ContainerConfig,
        found: &FoundImage,
        volumes: &[VolumeImage],
    ) -> Result<()> {
        let record = sandbox.record();
        let metadata = record.config.metadata.as_ref();
        let namespace = metadata.map_or("", |metadata| &metadata.namespace);
        if let Some(spec) = &config.image {
            self.check_policy(found, spec, namespace).await?;
        }
        for volume in volumes {
            self.check_policy(&volume.found, &volume.spec, namespace)
                .await?;
        }
        Ok(())
    }

    /// Creates the directory, the root file system and the bundle; removes them all on failure.
    async fn assemble_container(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        pod: v1::PodSandboxConfig,
        mut record: ContainerRecord,
        image: &Image,
        layers: LayerLease,
        mut held: Vec<(String, LayerLease)>,
    ) -> Result<Container> {
        let dir = self.settings.paths.container(&record.id);
        let copy = self.settings.paths.copy(&record.id);
        let live = self.live();
        let assembly = Assembly {
            runtime: Arc::clone(self),
            volume_limits: volume_limits(&live.images, image)?,
            live,
            sandbox: sandbox.record(),
            pod,
            image: Arc::clone(&image.config),
            layers: layers.paths().to_vec(),
            volumes: held
                .iter()
                .map(|(path, layers)| (path.clone(), layers.paths().to_vec()))
                .collect(),
            target: self.target_of(sandbox, &record).await?,
        };
        let (id, pins, pod) = (record.id.clone(), self.pins.clone(), sandbox.id.clone());
        let attempted = self.nri_creating(&sandbox.record(), &record);
        let made = blocking(move || {
            disk::make_dir(&dir)?;
            let made = (|| {
                disk::write(&dir, &copy, &record)?;
                failpoint(Failpoint::ContainerRecorded);
                let Assembled { user, cgroup_path } = assembly.assemble(&dir, &record)?;
                record.user = (user.uid, user.gid, user.groups);
                record.cgroup_path = cgroup_path;
                record.state = ContainerState::Created;
                disk::write(&dir, &copy, &record)
            })();
            match made {
                Ok(()) => Ok(record),
                Err(error) => {
                    let unpinned = pins.unpin_target(&pod, &id).map_err(Error::from);
                    if let Err(left) = unpinned.and(super::remove::remove_dir(&dir, &copy)) {
                        tracing::warn!(target: "criscope::runtime::container::create", event = "runtime.undo", container.id = %id, error.message = %shown(&left), "a container that could not be created was not removed completely");
                    }
                    Err(error)
                }
            }
        });
        let record = match made.await {
            Ok(record) => record,
            Err(error) => {
                if let Some(attempted) = attempted {
                    self.nri_removed(attempted).await;
                }
                return Err(error);
            }
        };
        let mut all = vec![layers];
        all.extend(held.drain(..).map(|(_, layers)| layers));
        Ok(Container::new(&self.settings.paths, record, all))
    }
}

/// The image of a container. It must be local: the kubelet pulls it first.
fn image_of(images: &ImageStore, config: &v1::ContainerConfig) -> Result<FoundImage> {
    let name = config.image.as_ref().map_or("", |image| &image.image);
    if name.is_empty() {
        return Err(Error::invalid("the container config has no image"));
    }
    let found = images.find(name)?;
    let found = found.ok_or_else(|| Error::not_found(What::Image, name))?;
    match &found.image.artifact_type {
        Some(kind) => Err(Error::invalid(format!(
            "{name:?} is an artifact of type {kind:?}, which can be mounted but not run"
        ))),
        None => Ok(found),
    }
}

/// The image reference in ContainerStatus: a name with a digest, else the image id.
pub(super) fn reference(image: &Image) -> String {
    let digest = image.digests.first().cloned();
    digest.unwrap_or_else(|| image.id.to_string())
}

/// The image name to show: the one in the container's configuration if the image has it, else any of its names, else the
/// requested one.
fn name_of(images: &ImageStore, found: &FoundImage, requested: Option<&v1::ImageSpec>) -> String {
    let image = &found.image;
    let written = requested.map_or("", |requested| &requested.user_specified_image);
    let written = images.find(written).ok().flatten();
    let written = written.filter(|other| other.image.id == image.id);
    let name = written.and_then(|other| other.name);
    let name = name.as_ref().or(found.name.as_ref());
    let name = name.map(ToString::to_string);
    let mut names = image.tags.iter().chain(&image.digests);
    let name = name.or_else(|| names.next().cloned());
    name.unwrap_or_else(|| requested.map_or_else(String::new, |requested| requested.image.clone()))
}

/// `log_directory/log_path`; empty if either is empty.
fn log_path(pod: &v1::PodSandboxConfig, config: &v1::ContainerConfig) -> std::path::PathBuf {
    if pod.log_directory.is_empty() || config.log_path.is_empty() {
        return std::path::PathBuf::new();
    }
    std::path::Path::new(&pod.log_directory).join(&config.log_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(envs: [(&str, &str); 2], termination_file: &str, data: &str) -> ContainerConfig {
        let mount = |container_path: &str, host_path: String| v1::Mount {
            container_path: container_path.to_owned(),
            host_path,
            ..v1::Mount::default()
        };
        let path = "/dev/termination-log".to_owned();
        ContainerConfig {
            envs: envs
                .map(|(key, value)| v1::KeyValue {
                    key: key.to_owned(),
                    value: value.to_owned().into(),
                })
                .into(),
            mounts: vec![
                mount(&path, format!("/pods/u/containers/app/{termination_file}")),
                mount("/data", format!("/volumes/{data}")),
            ],
            annotations: [(TERMINATION_MESSAGE_PATH.to_owned(), path)].into(),
            ..ContainerConfig::default()
        }
    }

    #[test]
    fn a_retry_of_a_kubelet_has_the_fingerprint_of_the_first_try() {
        let print = |config| create_fingerprint("s1", config);
        let first = print(config([("A", "1"), ("B", "2")], "1a2b3c4d", "v"));
        assert_eq!(
            first,
            print(config([("B", "2"), ("A", "1")], "5e6f7a8b", "v"))
        );
        for other in [
            config([("A", "2"), ("B", "1")], "1a2b3c4d", "v"),
            config([("A", "1"), ("A", "2")], "1a2b3c4d", "v"),
            config([("A", "1"), ("B", "2")], "1a2b3c4d", "w"),
        ] {
            assert_ne!(first, print(other));
        }
        assert_ne!(
            print(config([("A", "1"), ("A", "2")], "x", "v")),
            print(config([("A", "2"), ("A", "1")], "x", "v"))
        );
    }
}
