//! Id-mapped mounts of containers in pods with a user namespace. They are made here rather than by the OCI runtime, so that they
//! work with every one (`docs/adr/0021-id-mapped-mounts.md`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use criscope_linux::rootfs::{self, IdMapped};
use oci_spec::runtime::Spec;

use super::bundle::Assembly;
use crate::error::{Error, Result};
use crate::store::{ContainerRecord, disk};

impl Assembly {
    /// Creates the id-mapped mounts of the request, each on `mapped/N`; returns the source of each container path.
    pub(super) fn mount_mapped(
        &self,
        dir: &Path,
        record: &ContainerRecord,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let mut mounted = BTreeMap::new();
        let Some(ids) = self.ids()? else {
            return Ok(mounted);
        };
        let mounts = record.config.mounts.iter();
        let wanted = mounts.filter(|mount| !mount.uid_mappings.is_empty() && mount.image.is_none());
        for (number, mount) in wanted.enumerate() {
            let source = Path::new(&mount.host_path);
            let target = bind(dir, &number.to_string(), source, &ids, false)?;
            mounted.insert(mount.container_path.clone(), target);
        }
        Ok(mounted)
    }

    /// Creates the mounts of a complete specification that have the option `idmap` or `ridmap`: bind mounts of CDI devices have it,
    /// and NRI plugins may set it. In other pods the option stays, for the OCI runtime.
    ///
    /// # Errors
    /// If a source does not exist, or its file system cannot map owners.
    pub(super) fn mount_by_options(&self, dir: &Path, spec: &mut Spec) -> Result<()> {
        let Some(ids) = self.ids()? else {
            return Ok(());
        };
        let mounts = spec.mounts_mut().iter_mut().flatten();
        for (number, mount) in mounts.enumerate() {
            let mut options = mount.options().clone().unwrap_or_default();
            let recursive = options.iter().any(|option| option == "ridmap");
            let has_option = recursive || options.iter().any(|option| option == "idmap");
            let has_own = mount.uid_mappings().iter().any(|ids| !ids.is_empty());
            let Some(source) = mount.source().clone() else {
                continue;
            };
            if has_own || !has_option {
                continue;
            }
            options.retain(|option| !matches!(option.as_str(), "idmap" | "ridmap"));
            let name = format!("option-{number}");
            let mapped = bind(dir, &name, &source, &ids, recursive)?;
            mount.set_source(Some(mapped)).set_options(Some(options));
        }
        Ok(())
    }
}

/// Mounts `source` on `mapped/NAME` in the directory of a container, and returns that path.
fn bind(dir: &Path, name: &str, source: &Path, ids: &IdMapped, recursive: bool) -> Result<PathBuf> {
    let parent = dir.join(rootfs::MAPPED);
    disk::make_dir(&parent)?;
    disk::let_pass(&parent)?;
    let found = source.canonicalize();
    let found = found.map_err(|e| Error::io("find", source, e))?;
    let target = parent.join(name);
    rootfs::bind(&found, &target, ids, recursive)?;
    Ok(target)
}
