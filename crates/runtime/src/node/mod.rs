//! The features of the node; see [`detect`].

mod apparmor;
mod capabilities;
mod files;
mod limits;
mod security;

use criscope_linux::cgroup::{self, Hierarchies};

use self::files::Files;
use super::code::GrpcCode as _;
use super::oci::spec::{CgroupDriver, NodeFacts};
use super::oci::version::Version;
use super::sections::PodDefaults;

pub use self::apparmor::DEFAULT_PROFILE;

/// The configuration of the node, and the features that the OCI runtime reports.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// The cgroup driver; `None` detects it.
    pub cgroup_driver: Option<CgroupDriver>,
    /// The defaults of pods.
    pub pods: PodDefaults,
    /// Output of the OCI runtime's `features`, if it has that command.
    pub runtime_features: Option<serde_json::Value>,
    /// The OCI runtime's version, for those without that command.
    pub runtime_version: Option<Version>,
}

/// Why the node cannot run containers as configured.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No cgroup hierarchy is mounted.
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    /// The driver is systemd, but systemd did not boot the machine.
    #[error("the cgroup driver is systemd, but the service manager of this machine is another")]
    NoSystemd,
    /// A file that exists on every Linux cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: &'static str,
        /// The cause.
        reason: String,
    },
}

impl NodeError {
    /// The gRPC code for callers.
    #[must_use]
    pub fn code(&self) -> tonic::Code {
        match self {
            Self::Cgroup(error) => error.code(),
            Self::NoSystemd => tonic::Code::FailedPrecondition,
            Self::File { .. } => tonic::Code::Internal,
        }
    }
}

/// Detects the features of this machine. Only reads files, with one exception: if AppArmor is enabled and the default
/// profile is not loaded, it is loaded. If that fails, or a configured profile is not loaded, `apparmor_default` has the
/// reason, which is also logged as a warning.
///
/// Blocks for some milliseconds.
///
/// # Errors
/// [`NodeError`] if no container could be created.
pub fn detect(options: &NodeOptions) -> Result<NodeFacts, NodeError> {
    let files = Files::new("/");
    let mut facts = facts(options, &files, &Hierarchies::detect()?)?;
    if facts.apparmor {
        facts.apparmor_default = apparmor::usable(&files, options.pods.apparmor_profile.as_deref());
    }
    Ok(facts)
}

/// Does everything that only reads files below a root.
fn facts(
    options: &NodeOptions,
    files: &Files,
    hierarchies: &Hierarchies,
) -> Result<NodeFacts, NodeError> {
    let pods = &options.pods;
    let kernel = security::kernel(files)?;
    let own = capabilities::Own::read(files)?;
    Ok(NodeFacts {
        cgroup_version: hierarchies.version(),
        cgroup_driver: driver(options.cgroup_driver, files)?,
        swap_accounting: limits::swap_accounting(hierarchies, files),
        hugetlb: hierarchies.has("hugetlb"),
        kernel,
        arch: std::env::consts::ARCH,
        seccomp: security::seccomp(files, options.runtime_features.as_ref()),
        apparmor: !pods.disable_apparmor && apparmor::is_on(files),
        apparmor_default: Err("it is off".to_owned()),
        selinux: pods.enable_selinux && security::selinux(files),
        recursive_read_only: security::recursive_read_only(
            kernel,
            options.runtime_features.as_ref(),
            options.runtime_version.as_ref(),
        ),
        default_capabilities: pods.default_capabilities.clone(),
        all_capabilities: own.bounding(),
        oom_score_adj_floor: limits::oom_score_adj_floor(
            files,
            pods.restrict_oom_score_adj || !own.may_lower_oom_score_adj(),
        )?,
        pids_limit: pods.pids_limit.try_into().unwrap_or(i64::MAX),
        policy: pods.clone(),
    })
}

/// Returns systemd if it booted the machine (sd_booted(3)), because it interferes with other managers in its cgroup
/// tree. The kubelet adopts this choice.
fn driver(configured: Option<CgroupDriver>, files: &Files) -> Result<CgroupDriver, NodeError> {
    let booted = files.exists("run/systemd/system");
    match configured {
        Some(CgroupDriver::Systemd) if !booted => Err(NodeError::NoSystemd),
        Some(driver) => Ok(driver),
        None if booted => Ok(CgroupDriver::Systemd),
        None => Ok(CgroupDriver::Cgroupfs),
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::Capability;

    use super::*;

    /// A machine that consists of files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().expect("dir");
        let common = [
            ("proc/sys/kernel/osrelease", "5.10.0-9-amd64\n"),
            (
                "proc/self/status",
                "Name:\tx\nCapEff:\t00000000a80425fb\nCapBnd:\t000001ffffffffff\nSeccomp:\t0\n",
            ),
            ("proc/self/oom_score_adj", "-999\n"),
        ];
        for (path, text) in common.iter().chain(files) {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below")).expect("dir");
            std::fs::write(path, text).expect("write");
        }
        let files = Files::new(dir.path());
        (dir, files)
    }

    fn hierarchies() -> Hierarchies {
        let table = b"1 2 0:3 / /none rw - cgroup cgroup rw,hugetlb\n";
        Hierarchies::parse(table).expect("mounted")
    }

    #[test]
    fn the_driver_is_systemd_only_if_it_booted_the_machine() {
        let (_plain, plain) = machine(&[]);
        let (_booted, booted) = machine(&[("run/systemd/system/x", "")]);
        use CgroupDriver::{Cgroupfs, Systemd};
        for (files, configured, expected) in [
            (&plain, None, Some(Cgroupfs)),
            (&booted, None, Some(Systemd)),
            (&booted, Some(Cgroupfs), Some(Cgroupfs)),
            (&plain, Some(Systemd), None),
        ] {
            assert_eq!(driver(configured, files).ok(), expected, "{configured:?}");
        }
    }

    #[test]
    fn facts_reflect_the_files_and_the_options() {
        let (_dir, files) = machine(&[
            ("sys/fs/selinux/enforce", "1"),
            (
                "proc/sys/kernel/seccomp/actions_avail",
                "kill_process allow\n",
            ),
        ]);
        let mut options = NodeOptions::default();
        options.pods.pids_limit = 100;
        let found = facts(&options, &files, &hierarchies()).expect("facts");
        assert_eq!(found.kernel, (5, 10));
        assert!(found.seccomp && !found.selinux && !found.apparmor);
        assert_eq!(found.all_capabilities.len(), 41);
        assert_eq!(found.default_capabilities.len(), 14);
        assert_eq!(found.oom_score_adj_floor, Some(-999), "no CAP_SYS_RESOURCE");
        assert_eq!(found.pids_limit, 100);
        options.pods.enable_selinux = true;
        options.pods.default_capabilities = vec![Capability::Chown];
        let found = facts(&options, &files, &hierarchies()).expect("facts");
        assert!(found.selinux);
        assert_eq!(found.default_capabilities, [Capability::Chown]);
    }

    #[test]
    fn with_cap_sys_resource_the_oom_score_has_a_floor_only_if_configured() {
        let all = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
        let (_dir, files) = machine(&[("proc/self/status", all)]);
        let mut options = NodeOptions::default();
        let found = facts(&options, &files, &hierarchies()).expect("facts");
        assert_eq!(found.oom_score_adj_floor, None);
        assert!(!found.seccomp, "the kernel does not mention it");
        options.pods.restrict_oom_score_adj = true;
        let found = facts(&options, &files, &hierarchies()).expect("facts");
        assert_eq!(found.oom_score_adj_floor, Some(-999));
    }
}
