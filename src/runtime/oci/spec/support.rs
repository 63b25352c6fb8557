//! What a specification may ask for only if the OCI runtime knows it. Runtimes ignore fields that they do not know, so that a container
//! would start without its device.

use oci_spec::runtime::{LinuxIntelRdt, Spec};
use serde_json::Value;

use super::error::SpecError;
use super::host::Host;

/// The optional fields that an OCI runtime knows, from its `features` (OCI runtime specification, "Features Structure").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeSupport {
    /// `linux.netDevices`: runc 1.4.
    pub net_devices: bool,
    /// `linux.intelRdt`; `None` if the runtime does not say, as before runc 1.2. Those refuse it themselves if they cannot.
    pub intel_rdt: Option<bool>,
    /// `linux.intelRdt.schemata`: runc 1.4.
    pub rdt_schemata: bool,
    /// `linux.intelRdt.enableMonitoring`: runc 1.4.
    pub rdt_monitoring: bool,
}

impl RuntimeSupport {
    /// From the output of `features`; `None` if the runtime has no such verb, or none that could be asked.
    #[must_use]
    pub fn of_features(features: Option<&Value>) -> Self {
        let told = |path: &str| features.and_then(|all| all.pointer(path)?.as_bool());
        Self {
            net_devices: told("/linux/netDevices/enabled") == Some(true),
            intel_rdt: told("/linux/intelRdt/enabled"),
            rdt_schemata: told("/linux/intelRdt/schemata") == Some(true),
            rdt_monitoring: told("/linux/intelRdt/monitoring") == Some(true),
        }
    }

    /// Checks a complete specification: CDI devices and NRI plugins set these fields.
    ///
    /// # Errors
    /// [`SpecError::Unsupported`] if the OCI runtime would ignore a field, or the node has no resctrl.
    pub fn check(&self, spec: &Spec, host: &dyn Host) -> Result<(), SpecError> {
        let Some(linux) = spec.linux() else {
            return Ok(());
        };
        let devices = linux.net_devices().as_ref();
        if !self.net_devices && devices.is_some_and(|devices| !devices.is_empty()) {
            return Err(ignored("linux.netDevices"));
        }
        match linux.intel_rdt() {
            Some(rdt) => self.check_rdt(rdt, host),
            None => Ok(()),
        }
    }

    fn check_rdt(&self, rdt: &LinuxIntelRdt, host: &dyn Host) -> Result<(), SpecError> {
        if self.intel_rdt == Some(false) {
            return Err(ignored("linux.intelRdt"));
        }
        let schemata = rdt.schemata().as_ref();
        if !self.rdt_schemata && schemata.is_some_and(|lines| !lines.is_empty()) {
            return Err(ignored("linux.intelRdt.schemata"));
        }
        if !self.rdt_monitoring && *rdt.enable_monitoring() == Some(true) {
            return Err(ignored("linux.intelRdt.enableMonitoring"));
        }
        let path = std::path::Path::new("/proc/self/mountinfo");
        let table = host.read(path).map_err(|source| SpecError::Io {
            path: path.to_owned(),
            source,
        })?;
        match table.lines().any(|line| line.contains(" - resctrl ")) {
            true => Ok(()),
            false => Err(SpecError::Unsupported(
                "linux.intelRdt: resctrl is not mounted on this node (/sys/fs/resctrl)".to_owned(),
            )),
        }
    }
}

fn ignored(field: &str) -> SpecError {
    SpecError::Unsupported(format!(
        "{field}: the OCI runtime does not support it, and would start the container without it"
    ))
}
