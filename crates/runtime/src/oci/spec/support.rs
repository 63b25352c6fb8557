//! Fields that a specification may have only if the OCI runtime knows them. Runtimes ignore fields that they do not know, so that a container
//! would start without its device.

use oci_spec::runtime::{Linux, LinuxIntelRdt, Mount, Process, Spec};
use serde_json::Value;

use super::error::SpecError;
use super::host::Host;

/// The version of the OCI specification that has `process.scheduler` and `process.ioPriority`.
const WITH_SCHEDULING: (u64, u64) = (1, 1);
/// Options of bind mounts that came after version 1.0 of the specification. Runtimes take an option that they do not know for data of
/// the file system, which the kernel ignores for a bind mount.
const NEW_MOUNT_OPTIONS: [&str; 19] = [
    "nosymfollow",
    "ratime",
    "rdev",
    "rdiratime",
    "rexec",
    "rnoatime",
    "rnodev",
    "rnodiratime",
    "rnoexec",
    "rnorelatime",
    "rnostrictatime",
    "rnosuid",
    "rnosymfollow",
    "rrelatime",
    "rro",
    "rrw",
    "rstrictatime",
    "rsuid",
    "rsymfollow",
];

/// The optional fields that an OCI runtime knows, from its `features` (OCI runtime specification, "Features Structure").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeSupport {
    /// `linux.netDevices`: runc 1.4, crun 1.22.
    pub net_devices: bool,
    /// `linux.intelRdt`; `None` if the runtime does not say, as before runc 1.2. Those refuse it themselves if they cannot.
    pub intel_rdt: Option<bool>,
    /// `linux.intelRdt.schemata`: runc 1.4.
    pub rdt_schemata: bool,
    /// `linux.intelRdt.enableMonitoring`: runc 1.4.
    pub rdt_monitoring: bool,
    /// `linux.memoryPolicy`: runc 1.4, crun 1.24.
    pub memory_policy: bool,
    /// `process.scheduler` and `process.ioPriority`, which the document does not name: runc 1.2 and crun 1.8.6, by the version of the
    /// specification that they report.
    pub scheduling: bool,
    /// `mounts[].uidMappings` and `gidMappings`, and the options `idmap` and `ridmap`: runc 1.2, crun 1.9.
    pub mapped_mounts: bool,
    /// Which of [`NEW_MOUNT_OPTIONS`] it does not know, one bit each; none if it does not say, as before runc 1.1 and crun 1.8.6.
    unknown_options: u32,
}

impl RuntimeSupport {
    /// From the output of `features`; `None` if the runtime has no such verb, or none that could be asked.
    #[must_use]
    pub fn from_features(features: Option<&Value>) -> Self {
        let features = features.unwrap_or(&Value::Null);
        let version = features.pointer("/ociVersionMax").and_then(Value::as_str);
        let options = features.pointer("/mountOptions");
        Self {
            net_devices: flag(features, "/linux/netDevices/enabled") == Some(true),
            intel_rdt: flag(features, "/linux/intelRdt/enabled"),
            rdt_schemata: flag(features, "/linux/intelRdt/schemata") == Some(true),
            rdt_monitoring: flag(features, "/linux/intelRdt/monitoring") == Some(true),
            memory_policy: features
                .pointer("/linux/memoryPolicy")
                .is_some_and(Value::is_object),
            scheduling: version
                .and_then(minor)
                .is_some_and(|minor| minor >= WITH_SCHEDULING),
            mapped_mounts: flag(features, "/linux/mountExtensions/idmap/enabled") == Some(true),
            unknown_options: options.map_or(0, unknown_options),
        }
    }

    /// Checks a complete specification: CDI devices, NRI plugins and requests set these fields.
    ///
    /// # Errors
    /// [`SpecError::Unsupported`] if the OCI runtime would ignore a field, or the node has no resctrl.
    pub fn check(&self, spec: &Spec, host: &dyn Host) -> Result<(), SpecError> {
        for mount in spec.mounts().iter().flatten() {
            self.check_mount(mount)?;
        }
        if let Some(process) = spec.process() {
            self.check_process(process)?;
        }
        match spec.linux() {
            Some(linux) => self.check_linux(linux, host),
            None => Ok(()),
        }
    }

    fn check_mount(&self, mount: &Mount) -> Result<(), SpecError> {
        let mut mappings = [mount.uid_mappings(), mount.gid_mappings()]
            .into_iter()
            .flatten();
        if !self.mapped_mounts && mappings.any(|ids| !ids.is_empty()) {
            let path = mount.destination().display();
            return Err(ignored(&format!("mount at {path}: uidMappings")));
        }
        if !is_bind(mount) {
            // A file system refuses unknown options.
            return Ok(());
        }
        let mut options = mount.options().iter().flatten();
        if let Some(option) = options.find(|option| self.ignores_option(option)) {
            let path = mount.destination().display();
            return Err(ignored(&format!("mount at {path}: option {option}")));
        }
        Ok(())
    }

    fn ignores_option(&self, option: &str) -> bool {
        match option {
            "idmap" | "ridmap" => !self.mapped_mounts,
            option => place(option).is_some_and(|at| self.unknown_options >> at & 1 == 1),
        }
    }

    fn check_process(&self, process: &Process) -> Result<(), SpecError> {
        if self.scheduling {
            return Ok(());
        }
        if process.scheduler().is_some() {
            return Err(ignored("process.scheduler"));
        }
        if process.io_priority().is_some() {
            return Err(ignored("process.ioPriority"));
        }
        Ok(())
    }

    fn check_linux(&self, linux: &Linux, host: &dyn Host) -> Result<(), SpecError> {
        let devices = linux.net_devices().as_ref();
        if !self.net_devices && devices.is_some_and(|devices| !devices.is_empty()) {
            return Err(ignored("linux.netDevices"));
        }
        if !self.memory_policy && linux.memory_policy().is_some() {
            return Err(ignored("linux.memoryPolicy"));
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
        if table.lines().any(|line| line.contains(" - resctrl ")) {
            Ok(())
        } else {
            Err(SpecError::Unsupported(
                "linux.intelRdt: resctrl is not mounted on this node (/sys/fs/resctrl)".to_owned(),
            ))
        }
    }
}

fn flag(features: &Value, path: &str) -> Option<bool> {
    features.pointer(path)?.as_bool()
}

fn ignored(field: &str) -> SpecError {
    SpecError::Unsupported(format!(
        "{field}: the OCI runtime does not support it, and would start the container without it"
    ))
}

/// Major and minor number of a version such as `1.1.0+dev`.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn place(option: &str) -> Option<usize> {
    NEW_MOUNT_OPTIONS.iter().position(|one| *one == option)
}

fn unknown_options(known: &Value) -> u32 {
    let Some(known) = known.as_array() else {
        return 0;
    };
    let names = NEW_MOUNT_OPTIONS.iter().enumerate();
    names
        .filter(|(_, name)| !known.iter().any(|one| one == *name))
        .fold(0, |bits, (at, _)| bits | 1 << at)
}

fn is_bind(mount: &Mount) -> bool {
    let mut options = mount.options().iter().flatten();
    mount.typ().as_deref() == Some("bind")
        || options.any(|option| matches!(option.as_str(), "bind" | "rbind"))
}
