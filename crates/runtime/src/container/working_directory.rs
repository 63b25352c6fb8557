//! The check of a container's working directory, before anything of the container runs.

use std::path::Path;

use criscope_linux::rootfs::{self, ContainerView};
use oci_spec::runtime::{Mount, Spec};

use crate::error::{Error, Result};
use crate::store::ContainerRecord;

/// Checks the working directory of a finished specification in the files that the container will have. OCI runtimes find out when the
/// container starts, and older ones can be led out of the container by it. Where links of the image lead to a missing directory, the
/// specification gets its path without links.
///
/// # Errors
/// [`Error::Invalid`] with the path, and the image if the path is the image's.
pub(super) fn check_working_directory(
    spec: &mut Spec,
    root: &Path,
    record: &ContainerRecord,
) -> Result<()> {
    let process = spec.process().as_ref();
    let Some(directory) = process.and_then(|process| process.cwd().to_str()) else {
        return Ok(());
    };
    if directory == "/" {
        return Ok(());
    }
    let mut view = ContainerView::new(root)?;
    for mount in spec.mounts().iter().flatten() {
        let Some(place) = mount.destination().to_str() else {
            continue;
        };
        match mount.source() {
            Some(source) if is_bind(mount) => view.mount(place, source)?,
            _ => view.mount_unknown(place)?,
        };
    }
    let created = view
        .check_working_directory(directory)
        .map_err(|error| match error {
            rootfs::Error::Invalid(reason) if record.config.working_dir.is_empty() => {
                let image = &record.image_name;
                Error::invalid(format!(
                    "working directory {directory:?} of image {image:?}: {reason}"
                ))
            }
            rootfs::Error::Invalid(reason) => {
                Error::invalid(format!("working directory {directory:?}: {reason}"))
            }
            error => error.into(),
        })?;
    if let Some((created, process)) = created.zip(spec.process_mut().as_mut()) {
        process.set_cwd(created);
    }
    Ok(())
}

/// Returns whether the source of a mount is a file of the node.
fn is_bind(mount: &Mount) -> bool {
    let options = mount.options().iter().flatten();
    let mut options = options.map(String::as_str);
    mount.typ().as_deref() == Some("bind") || options.any(|one| matches!(one, "bind" | "rbind"))
}
