//! The features of the node; see [`detect`].

mod apparmor;
mod capabilities;
mod files;
mod limits;
mod security;

use criscope_linux::cgroup::{self, Hierarchies};
use oci_spec::runtime::Capability;

use self::files::Files;
use super::code::GrpcCode as _;
use super::oci::spec::{CgroupDriver, CgroupVersion, NodeFacts, Policy, containerd_capabilities};
use super::oci::version::Version;

pub use self::apparmor::DEFAULT_PROFILE;

/// The configuration of the node, and the features that the OCI runtime reports.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// The cgroup driver; `None` detects it.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Containers get no cgroups and no limits.
    pub disable_cgroup: bool,
    /// AppArmor is not used, even if it is enabled.
    pub disable_apparmor: bool,
    /// The profile for `RuntimeDefault`, in place of the built-in one.
    pub apparmor_profile: Option<String>,
    /// SELinux is used if it is enabled.
    pub enable_selinux: bool,
    /// No container gets a lower `oom_score_adj` than the daemon. Without `CAP_SYS_RESOURCE` this always applies.
    pub restrict_oom_score_adj: bool,
    /// The default capabilities of containers; `None` means those of containerd.
    pub default_capabilities: Option<Vec<Capability>>,
    /// Maximum number of processes in a container; 0 for no limit.
    pub pids_limit: i64,
    /// Settings that apply to all pods.
    pub policy: Policy,
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
    let hierarchies = match Hierarchies::detect() {
        Err(cgroup::Error::NotMounted) if options.disable_cgroup => None,
        other => Some(other?),
    };
    let mut facts = facts(options, &files, hierarchies.as_ref())?;
    if facts.apparmor {
        facts.apparmor_default = apparmor::usable(&files, options.apparmor_profile.as_deref());
    }
    Ok(facts)
}

/// Does everything that only reads files below a root.
fn facts(
    options: &NodeOptions,
    files: &Files,
    hierarchies: Option<&Hierarchies>,
) -> Result<NodeFacts, NodeError> {
    let usable = hierarchies.filter(|_| !options.disable_cgroup);
    let kernel = security::kernel(files)?;
    let own = capabilities::Own::read(files)?;
    Ok(NodeFacts {
        cgroup_version: hierarchies.map_or(CgroupVersion::V2, Hierarchies::version),
        cgroup_driver: driver(options, files)?,
        swap_accounting: usable.is_some_and(|all| limits::swap_accounting(all, files)),
        hugetlb: usable.is_some_and(|all| all.has("hugetlb")),
        kernel,
        arch: std::env::consts::ARCH,
        seccomp: security::seccomp(files, options.runtime_features.as_ref()),
        apparmor: !options.disable_apparmor && apparmor::is_on(files),
        apparmor_default: Err("it is off".to_owned()),
        selinux: options.enable_selinux && security::selinux(files),
        recursive_read_only: security::recursive_read_only(
            kernel,
            options.runtime_features.as_ref(),
            options.runtime_version.as_ref(),
        ),
        default_capabilities: options
            .default_capabilities
            .clone()
            .unwrap_or_else(containerd_capabilities),
        all_capabilities: own.bounding(),
        oom_score_adj_floor: limits::oom_score_adj_floor(
            files,
            options.restrict_oom_score_adj || !own.may_lower_oom_score_adj(),
        )?,
        pids_limit: if usable.is_some() {
            options.pids_limit
        } else {
            0
        },
        policy: options.policy.clone(),
    })
}

/// Returns systemd if it booted the machine (sd_booted(3)), because it interferes with other managers in its cgroup
/// tree. The kubelet adopts this choice.
fn driver(options: &NodeOptions, files: &Files) -> Result<CgroupDriver, NodeError> {
    let booted = files.exists("run/systemd/system");
    match options.cgroup_driver {
        _ if options.disable_cgroup => Ok(CgroupDriver::Cgroupfs),
        Some(CgroupDriver::Systemd) if !booted => Err(NodeError::NoSystemd),
        Some(driver) => Ok(driver),
        None if booted => Ok(CgroupDriver::Systemd),
        None => Ok(CgroupDriver::Cgroupfs),
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_driver_is_systemd_only_if_it_booted_the_machine() {
        let (_plain, plain) = machine(&[]);
        let (_booted, booted) = machine(&[("run/systemd/system/x", "")]);
        let with = |cgroup_driver, disable_cgroup| NodeOptions {
            cgroup_driver,
            disable_cgroup,
            ..NodeOptions::default()
        };
        use CgroupDriver::{Cgroupfs, Systemd};
        for (files, options, expected) in [
            (&plain, with(None, false), Some(Cgroupfs)),
            (&booted, with(None, false), Some(Systemd)),
            (&booted, with(Some(Cgroupfs), false), Some(Cgroupfs)),
            (&plain, with(Some(Systemd), false), None),
            (&booted, with(None, true), Some(Cgroupfs)),
        ] {
            assert_eq!(driver(&options, files).ok(), expected, "{options:?}");
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
        let options = NodeOptions {
            pids_limit: 100,
            ..NodeOptions::default()
        };
        let found = facts(&options, &files, None).expect("facts");
        assert_eq!(found.kernel, (5, 10));
        assert!(found.seccomp && !found.selinux && !found.apparmor);
        assert_eq!(found.all_capabilities.len(), 41);
        assert_eq!(found.default_capabilities.len(), 14);
        assert_eq!(found.oom_score_adj_floor, Some(-999), "no CAP_SYS_RESOURCE");
        assert_eq!(found.pids_limit, 0, "there is no cgroup to limit");
        let options = NodeOptions {
            enable_selinux: true,
            default_capabilities: Some(vec![Capability::Chown]),
            ..options
        };
        let found = facts(&options, &files, None).expect("facts");
        assert!(found.selinux);
        assert_eq!(found.default_capabilities, [Capability::Chown]);
    }

    #[test]
    fn with_cap_sys_resource_the_oom_score_has_a_floor_only_if_configured() {
        let all = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
        let (_dir, files) = machine(&[("proc/self/status", all)]);
        let mut options = NodeOptions::default();
        let found = facts(&options, &files, None).expect("facts");
        assert_eq!(found.oom_score_adj_floor, None);
        assert!(!found.seccomp, "the kernel does not mention it");
        options.restrict_oom_score_adj = true;
        let found = facts(&options, &files, None).expect("facts");
        assert_eq!(found.oom_score_adj_floor, Some(-999));
    }
}
