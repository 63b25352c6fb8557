//! Block I/O and RDT classes of containers: named sets of limits that the administrator of the node defines in files, and that pods
//! choose by annotations. The files are those of containerd and CRI-O, which read them with github.com/intel/goresctrl.
//!
//! A class that cannot be applied refuses its container: it may protect its neighbours from it
//! (`docs/adr/0069-classes-of-block-io-and-rdt.md`).

mod annotations;
pub mod blockio;
pub mod rdt;
mod yaml;

use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxBlockIo, LinuxIntelRdt, Spec};

use self::annotations::Keys;
use self::rdt::RdtError;
use super::oci::spec::SpecError;
use super::sections::PodDefaults;
use criscope_cri::v1::{ContainerConfig, PodSandboxConfig};

/// Why a file of classes cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClassFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not YAML, does not have the form of such a file, or has an invalid value.
    #[error("{0}")]
    Invalid(String),
}

/// Why other files of classes cannot be put into effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The file of block I/O classes.
    #[error("runtime.blockio_config_file: {}: {source}", path.display())]
    Blockio {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ClassFileError,
    },
    /// The file of RDT classes, or the groups of resctrl.
    #[error("runtime.rdt_config_file: {0}")]
    Rdt(#[from] RdtError),
}

/// The classes of the node.
#[derive(Debug)]
pub(crate) struct Classes {
    settings: PodDefaults,
    rdt: rdt::Rdt,
}

impl Classes {
    /// Configures the RDT classes, and reads the file of block I/O classes once, for its errors: they are logged, and refuse the
    /// containers that have a class. Blocks.
    pub(crate) fn open(settings: &PodDefaults) -> Self {
        let classes = Self {
            settings: settings.clone(),
            rdt: rdt::Rdt::new(settings.rdt_config_file.clone()),
        };
        if let Some(path) = &settings.blockio_config_file
            && let Err(error) = blockio::Classes::read(path)
        {
            report_blockio(path, &error);
        }
        match (&settings.rdt_config_file, classes.rdt.applied()) {
            (Some(path), Err(error)) => rdt::report(path, &error),
            (None, _) | (_, Ok(_)) => {}
        }
        classes
    }

    /// The classes after a reload: the files are read, and RDT classes that have changed are configured. Blocks.
    ///
    /// # Errors
    /// If a file cannot be used that could be before, or that is another one: then the classes stay as they are. Others are logged, as
    /// at the start.
    pub(crate) fn after(&self, settings: &PodDefaults) -> Result<Self, ReloadError> {
        if let Some(path) = &settings.blockio_config_file
            && let Err(source) = blockio::Classes::read(path)
        {
            // The file is read again for each container, so a decision here is not final.
            if self.settings.blockio_config_file.as_ref() != Some(path) {
                let path = path.clone();
                return Err(ReloadError::Blockio { path, source });
            }
            report_blockio(path, &source);
        }
        Ok(Self {
            settings: settings.clone(),
            rdt: self.rdt.after(settings.rdt_config_file.as_deref())?,
        })
    }

    /// Sets the classes that a container has by annotations. Blocks.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] if a class is not defined, or may not be chosen; [`SpecError::Unsupported`] if the node has no classes,
    /// or their file is broken. They name the container, the class and the file.
    pub(crate) fn apply(
        &self,
        spec: &mut Spec,
        pod: &PodSandboxConfig,
        container: &ContainerConfig,
    ) -> Result<(), SpecError> {
        let name = container.metadata.as_ref();
        let name = name.map_or("", |metadata| metadata.name.as_str());
        let prefix = format!("container {name:?}: ");
        self.apply_blockio(spec, pod, container)
            .and_then(|()| self.apply_rdt(spec, pod, container))
            .map_err(|error| match error {
                SpecError::Invalid(text) => SpecError::Invalid(prefix + &text),
                SpecError::Unsupported(text) => SpecError::Unsupported(prefix + &text),
                other => other,
            })
    }

    fn apply_blockio(
        &self,
        spec: &mut Spec,
        pod: &PodSandboxConfig,
        container: &ContainerConfig,
    ) -> Result<(), SpecError> {
        let is_ignored = self.settings.blockio_config_file.is_none()
            && self.settings.ignore_blockio_not_enabled_errors;
        match Keys::BLOCKIO.class(pod, container) {
            Some((class, _)) if !is_ignored => {
                let limits = self.blockio(class)?;
                set_blockio(spec, limits);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn apply_rdt(
        &self,
        spec: &mut Spec,
        pod: &PodSandboxConfig,
        container: &ContainerConfig,
    ) -> Result<(), SpecError> {
        let Some((class, origin)) = Keys::RDT.class(pod, container) else {
            return Ok(());
        };
        match self.rdt.group(class, origin) {
            Ok(group) => set_rdt(spec, group),
            Err(error) if error.is_not_enabled() && self.settings.ignore_rdt_not_enabled_errors => {
            }
            Err(error) => {
                let text = format!("RDT class {class:?}: {error}");
                return Err(match error {
                    RdtError::Undefined { .. } | RdtError::Denied { .. } => {
                        SpecError::Invalid(text)
                    }
                    _ => SpecError::Unsupported(text),
                });
            }
        }
        Ok(())
    }

    /// Returns the limits of a block I/O class. The file is read again, since it and the devices of the node may have changed.
    ///
    /// # Errors
    /// As [`Self::apply`], without the container.
    pub(crate) fn blockio(&self, class: &str) -> Result<LinuxBlockIo, SpecError> {
        let Some(path) = &self.settings.blockio_config_file else {
            return Err(SpecError::Unsupported(format!(
                "block I/O class {class:?}: no classes are configured (runtime.blockio_config_file)"
            )));
        };
        let file = path.display();
        let classes =
            blockio::Classes::read(path).map_err(|error| blockio_error(class, path, &error))?;
        let found = classes.get(class).ok_or_else(|| {
            SpecError::Invalid(format!(
                "block I/O class {class:?} is not defined in {file}"
            ))
        })?;
        let resolved = found.resolve(&blockio::matching);
        let resolved = resolved.map_err(|error| blockio_error(class, path, &error))?;
        for pattern in &resolved.unmatched {
            tracing::warn!(target: "criscope::runtime::classes", event = "runtime.blockio", class, pattern, %file, "the node has no block device that the class names");
        }
        Ok(resolved.limits)
    }
}

fn report_blockio(path: &Path, error: &ClassFileError) {
    tracing::error!(target: "criscope::runtime::classes", event = "runtime.blockio", file = %path.display(), error.message = %error, "containers with a block I/O class cannot be created");
}

fn blockio_error(class: &str, file: &Path, error: &dyn std::fmt::Display) -> SpecError {
    let file = file.display();
    SpecError::Unsupported(format!("block I/O class {class:?}: {file}: {error}"))
}

fn set_blockio(spec: &mut Spec, limits: LinuxBlockIo) {
    let linux = spec.linux_mut().get_or_insert_default();
    let resources = linux.resources_mut().get_or_insert_default();
    resources.set_block_io(Some(limits));
}

/// `None` is the group of the whole system, in which every process is that is not put into another one.
fn set_rdt(spec: &mut Spec, group: Option<String>) {
    let rdt = group.map(|group| {
        let mut rdt = LinuxIntelRdt::default();
        rdt.set_clos_id(Some(group));
        rdt
    });
    spec.linux_mut().get_or_insert_default().set_intel_rdt(rdt);
}

/// Reads a file of classes.
fn read_text(path: &Path) -> Result<String, ClassFileError> {
    Ok(criscope_linux::untrusted::read_text(
        path,
        yaml::MAX_FILE_BYTES as u64,
    )?)
}

#[cfg(test)]
mod tests;
