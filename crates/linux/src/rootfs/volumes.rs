//! The `Volumes` of an image: writable directories of the container, initialized with the image's content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::budget::{CopyBudget, CopyError, VolumeLimits};
use super::error::{At as _, Error, Result};
use super::{copy, inside, make_dir};

/// The directory of the volumes of the image, in a container's directory.
pub(super) const VOLUMES: &str = "volumes";

/// Creates a directory below `dir/volumes` for each of `volumes` (container paths as in the image) and copies the contents
/// of this path in `rootfs`, the mounted image, with owners, modes, attributes and times. Without contents the directory is
/// empty, with mode 0755 and the owner of the container's root. Returns the directories by container path.
///
/// The caller omits paths that the request mounts something on, and sets the SELinux labels of the directories.
///
/// # Errors
/// [`Error::Exists`] if they were created before, [`Error::Kind`] if the image has a file at the path,
/// [`Error::TooManyVolumes`], [`Error::OverBudget`] and [`Error::NoSpace`] for the limits of all volumes together. What was copied
/// until then is left to the caller, which removes the container's directory.
pub fn prepare_volumes<'a>(
    rootfs: &Path,
    volumes: impl IntoIterator<Item = &'a str>,
    dir: &Path,
    limits: &VolumeLimits,
) -> Result<BTreeMap<String, PathBuf>> {
    let volumes: BTreeSet<_> = volumes.into_iter().collect();
    let (count, most) = (volumes.len(), limits.max_volumes);
    if count > most {
        return Err(Error::TooManyVolumes { count, most });
    }
    if volumes.is_empty() {
        return Ok(BTreeMap::new());
    }
    if let Some(bad) = volumes
        .iter()
        .find(|path| path.split('/').all(|part| matches!(part, "" | ".")) || path.contains('\0'))
    {
        return Err(Error::Invalid(format!(
            "volume {bad:?} of the image cannot be mounted"
        )));
    }
    let root = inside::root(rootfs)?;
    let parent = dir.join(VOLUMES);
    make_dir(&parent, 0o755)?;
    let mut budget = CopyBudget::new(limits);
    let mut made = BTreeMap::new();
    for (number, volume) in volumes.into_iter().enumerate() {
        let target = parent.join(number.to_string());
        match fs::create_dir(&target) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists { path: target });
            }
            created => created.at("make", &target)?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match inside::resolve(&root, volume, flags) {
            Ok(source) => copy::copy(source, &target, &mut budget)
                .map_err(|error| copy_failed(error, volume, &target))?,
            Err(Errno::NOENT) => {
                let like = fs::metadata(rootfs).at("read", rootfs)?;
                chown(&target, Some(like.uid()), Some(like.gid()))
                    .at("set the owner of", &target)?;
                let mode = fs::Permissions::from_mode(0o755);
                fs::set_permissions(&target, mode).at("set the mode of", &target)?;
            }
            Err(Errno::NOTDIR) => {
                return Err(Error::Kind {
                    path: volume.to_owned(),
                    wanted: "directory",
                });
            }
            Err(error) => return Err(error).at("find a volume in", rootfs),
        }
        made.insert(volume.to_owned(), target);
    }
    Ok(made)
}

fn copy_failed(error: CopyError, volume: &str, target: &Path) -> Error {
    match error {
        CopyError::Io(source) => Error::Io {
            action: "copy the image's files to",
            path: target.to_owned(),
            source,
        },
        CopyError::OverBudget { limit } => Error::OverBudget {
            volume: volume.to_owned(),
            limit,
        },
        CopyError::NoSpace(shortage) => Error::NoSpace {
            path: target.to_owned(),
            shortage,
        },
    }
}
