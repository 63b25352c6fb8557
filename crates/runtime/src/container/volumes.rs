//! Image volumes, the `Volumes` of images, and the target container whose PID namespace another container joins.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criscope_linux::namespace::process_namespace;
use criscope_linux::rootfs::{self, MountRequest, Rootfs, VolumeLimits};

use super::bundle::Assembly;
use super::create::reference;
use crate::Runtime;
use crate::error::{Error, Result, What};
use crate::shim_client::State;
use crate::store::record::ImageVolume;
use crate::store::{ContainerRecord, Sandbox};
use criscope_cri::v1::{ContainerConfig, ImageSpec, Mount, NamespaceMode};
use criscope_image::{FoundImage, Image, ImageStore, LayerLease};

/// Number of `Volumes` of an image: each is a mount in the container, which the OCI runtime makes one by one. Images of public
/// registries have a dozen at most.
const MAX_VOLUMES: usize = 128;
/// Bytes that the copies for the `Volumes` of an image may take besides the size of the image.
const SPARE_VOLUME_BYTES: u64 = 64 << 20;
/// Files that the copies may have besides those of the image: as many as take these bytes in blocks of 4 KiB.
const SPARE_VOLUME_FILES: u64 = SPARE_VOLUME_BYTES / 4096;

/// Limits of the copies to the `Volumes` of an image for one container: about as much as the image takes. That is enough for all
/// of its files once, and an image can multiply itself only by a little: by volumes that are links to one directory, or that contain
/// each other. As much space stays free on the disk as with pulls.
pub(super) fn volume_limits(images: &ImageStore, image: &Image) -> Result<VolumeLimits> {
    let layers = images.layer_usage(image.id.as_str())?;
    let files = layers.iter().map(|layer| layer.inodes);
    let files = files.fold(0, u64::saturating_add);
    Ok(VolumeLimits {
        max_volumes: MAX_VOLUMES,
        max_bytes: image.size.saturating_add(SPARE_VOLUME_BYTES),
        max_files: files.saturating_add(SPARE_VOLUME_FILES),
        min_free: images.min_free(),
    })
}

/// The image of an image volume.
pub(super) struct VolumeImage {
    container_path: String,
    pub(super) spec: ImageSpec,
    pub(super) found: FoundImage,
}

/// Image volumes whose layers are held.
pub(super) struct HeldVolumes {
    /// By container path.
    pub(super) held: Vec<(String, LayerLease)>,
    pub(super) records: BTreeMap<String, ImageVolume>,
}

/// Looks up the images of all image volumes of a container.
pub(super) fn find_volumes(
    images: &ImageStore,
    config: &ContainerConfig,
) -> Result<Vec<VolumeImage>> {
    let volumes = image_mounts(config).map(|(mount, spec)| {
        if !mount.readonly {
            return Err(Error::invalid(format!(
                "image volume at {} must be read-only",
                mount.container_path
            )));
        }
        let found = images.find(&spec.image)?;
        Ok(VolumeImage {
            container_path: mount.container_path.clone(),
            spec: spec.clone(),
            found: found.ok_or_else(|| Error::not_found(What::Image, &spec.image))?,
        })
    });
    volumes.collect()
}

/// Takes leases on the layers of image volumes.
pub(super) fn hold_volumes(images: &ImageStore, volumes: Vec<VolumeImage>) -> Result<HeldVolumes> {
    let (mut held, mut records) = (Vec::new(), BTreeMap::new());
    for volume in volumes {
        let image = &volume.found.image;
        let layers = images.layers(image.id.as_str())?;
        let record = ImageVolume {
            image_id: image.id.to_string(),
            image_ref: reference(image),
            layers: layers.ids().to_vec(),
        };
        records.insert(volume.container_path.clone(), record);
        held.push((volume.container_path, layers));
    }
    Ok(HeldVolumes { held, records })
}

impl Runtime {
    /// Pins the PID namespace of the target container, if the request has one (namespace mode TARGET).
    pub(super) async fn target_of(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        record: &ContainerRecord,
    ) -> Result<Option<PathBuf>> {
        let context = record.config.security_context();
        let options = context.and_then(|context| context.namespace_options.as_ref());
        let Some(options) = options.filter(|o| o.pid == NamespaceMode::Target as i32) else {
            return Ok(None);
        };
        if sandbox.record().has_containerd_shim() {
            // The pid of the target may belong to a virtual machine.
            return Err(Error::Unsupported(
                "containers of a shim of containerd cannot join the PID namespace of another one"
                    .to_owned(),
            ));
        }
        let target = self.store.containers.get(&options.target_id)?;
        let found = target.record();
        if found.sandbox != record.sandbox {
            return Err(Error::invalid(format!(
                "target container {} belongs to another pod",
                target.id
            )));
        }
        target.running()?;
        let namespace = process_namespace(found.pid);
        // The shim, which reaps the target, is queried after the namespace was opened: if it still reports the process, the pid
        // was not reused in between.
        let shim = self.live_shim(sandbox).await?;
        let state = match &shim {
            Some(shim) => shim.state().await?,
            None => State::default(),
        };
        let mut processes = state.processes.iter();
        let runs = processes.any(|process| {
            let is_it = process.target.container == target.id && process.target.exec.is_empty();
            is_it && process.exit.is_none() && process.pid == found.pid
        });
        if !runs {
            return Err(Error::state(format!(
                "target container {} is not running",
                target.id
            )));
        }
        let pinned = self.pins.pin_target(&sandbox.id, &record.id, namespace?);
        Ok(Some(pinned.await?))
    }
}

impl Assembly {
    /// Mounts the image volumes, each below `images/N`; returns the source of each container path.
    pub(super) fn mount_volumes(
        &self,
        dir: &Path,
        record: &ContainerRecord,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let mut mounted = BTreeMap::new();
        for (number, (mount, image)) in image_mounts(&record.config).enumerate() {
            let layers = self
                .volumes
                .iter()
                .find(|(path, _)| *path == mount.container_path);
            let Some((_, layers)) = layers else { continue };
            let root = Rootfs::new(dir.join(rootfs::IMAGES).join(number.to_string())).mount(
                &MountRequest {
                    layers: layers.clone(),
                    read_only: true,
                    label: self.file_label(record),
                    ids: self.ids()?,
                },
            )?;
            let source = below(&root, mount, image)?;
            mounted.insert(mount.container_path.clone(), source);
        }
        Ok(mounted)
    }

    /// Creates the directories of these `Volumes` of the image with its files; returns them by container path.
    ///
    /// # Errors
    /// [`Error::Exhausted`], with the image and the limit, if they do not fit.
    pub(super) fn copy_volumes<'a>(
        &self,
        root: &Path,
        volumes: impl Iterator<Item = &'a str>,
        dir: &Path,
        record: &ContainerRecord,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let copied = rootfs::prepare_volumes(root, volumes, dir, &self.volume_limits);
        copied.map_err(|error| error_of_image(&record.image_name, error))
    }
}

/// Adds the name of the image to an error about its files.
pub(super) fn error_of_image(image: &str, error: rootfs::Error) -> Error {
    match error {
        rootfs::Error::TooManyVolumes { .. }
        | rootfs::Error::OverBudget { .. }
        | rootfs::Error::NoSpace { .. } => Error::Exhausted(format!("image {image}: {error}")),
        rootfs::Error::Kind { .. } | rootfs::Error::Invalid(_) => {
            Error::invalid(format!("image {image}: {error}"))
        }
        error => error.into(),
    }
}

/// The image volumes of the request; if several have the same path, only the last one, which hides the others.
pub(super) fn image_mounts(config: &ContainerConfig) -> impl Iterator<Item = (&Mount, &ImageSpec)> {
    let last: HashMap<_, _> = config
        .mounts
        .iter()
        .enumerate()
        .map(|(number, mount)| (&mount.container_path, number))
        .collect();
    let mounts = config.mounts.iter().enumerate();
    mounts.filter_map(move |(number, mount)| {
        let image = mount
            .image
            .as_ref()
            .filter(|image| !image.image.is_empty())?;
        (last[&mount.container_path] == number).then_some((mount, image))
    })
}

/// The mounted part of an image: its root, or `image_sub_path`, which must stay inside the root.
fn below(root: &Path, mount: &Mount, image: &ImageSpec) -> Result<PathBuf> {
    if mount.image_sub_path.is_empty() {
        return Ok(root.to_owned());
    }
    below_root(root, Path::new(&mount.image_sub_path)).ok_or_else(|| {
        Error::invalid(format!(
            "image {} has no {:?} to mount",
            image.image, mount.image_sub_path
        ))
    })
}

/// The real path of a file or directory in `root`; `None` if it does not exist, or is not inside.
fn below_root(root: &Path, path: &Path) -> Option<PathBuf> {
    let inside = path.components().all(|part| {
        matches!(
            part,
            std::path::Component::Normal(_) | std::path::Component::CurDir
        )
    });
    if !inside {
        return None;
    }
    // Symbolic links of the image must not lead out of it.
    let root = root.canonicalize().ok()?;
    let real = root.join(path).canonicalize().ok()?;
    real.starts_with(&root).then_some(real)
}
