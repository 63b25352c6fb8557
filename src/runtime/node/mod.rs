//! What the node can: see [`detect`].

mod apparmor;
mod capabilities;
mod files;
mod limits;
mod security;

use criscope_linux::cgroup::{self, Hierarchies};
use oci_spec::runtime::Capability;

use self::files::Files;
use super::code::GrpcCode as _;
use super::oci::runtime::Version;
use super::oci::spec::{CgroupDriver, CgroupVersion, NodeFacts, Policy, containerd_capabilities};

pub use self::apparmor::DEFAULT_PROFILE;

/// What the configuration says of the node, and what the OCI runtime says of itself.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Who makes cgroups; `None` finds out.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Containers get no cgroup of their own and no limits.
    pub disable_cgroup: bool,
    /// AppArmor is left alone though it is on.
    pub disable_apparmor: bool,
    /// The profile `RuntimeDefault` stands for, if it is not ours.
    pub apparmor_profile: Option<String>,
    /// SELinux is used where it is on.
    pub enable_selinux: bool,
    /// No container goes below the daemon's own `oom_score_adj`. So it is anyway without `CAP_SYS_RESOURCE`.
    pub restrict_oom_score_adj: bool,
    /// What a container gets that asks for nothing; `None` is what containerd gives.
    pub default_capabilities: Option<Vec<Capability>>,
    /// The most processes of a container, 0 for no limit of ours.
    pub pids_limit: i64,
    /// What is said of all pods.
    pub policy: Policy,
    /// The answer of the OCI runtime's `features`, of those that have the verb.
    pub runtime_features: Option<serde_json::Value>,
    /// The OCI runtime's version, for those that have not.
    pub runtime_version: Option<Version>,
}

/// Why the node cannot run containers as configured.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There are no cgroups.
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    /// systemd is to make the cgroups, but did not boot the machine.
    #[error("the cgroup driver is systemd, but the service manager of this machine is another")]
    NoSystemd,
    /// A file that every Linux has cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: &'static str,
        /// Why.
        reason: String,
    },
}

impl NodeError {
    /// What a gRPC caller is told.
    #[must_use]
    pub fn code(&self) -> tonic::Code {
        match self {
            Self::Cgroup(error) => error.code(),
            Self::NoSystemd => tonic::Code::FailedPrecondition,
            Self::File { .. } => tonic::Code::Internal,
        }
    }
}

/// Finds out what this machine can. Reads files only, but for one thing: where AppArmor is on and the default profile
/// is not loaded, it is loaded. If that fails, or one that the options name is not loaded, `apparmor_default` and a warning
/// say why.
///
/// Blocks for some milliseconds.
///
/// # Errors
/// [`NodeError`] when containers could not be made at all.
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

/// All that is read from files below a root.
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

/// systemd where it booted the machine: it fights whoever else makes cgroups in its tree, and the kubelet asks us which
/// one it is. sd_booted(3) says how to tell.
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

    /// A machine of files.
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
    fn the_driver_is_systemd_only_where_it_booted_the_machine() {
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
    fn facts_follow_the_files_and_the_options() {
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
    fn who_may_lower_its_score_has_no_floor_unless_told() {
        let all = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
        let (_dir, files) = machine(&[("proc/self/status", all)]);
        let mut options = NodeOptions::default();
        let found = facts(&options, &files, None).expect("facts");
        assert_eq!(found.oom_score_adj_floor, None);
        assert!(!found.seccomp, "a kernel without a word of it");
        options.restrict_oom_score_adj = true;
        let found = facts(&options, &files, None).expect("facts");
        assert_eq!(found.oom_score_adj_floor, Some(-999));
    }
}
