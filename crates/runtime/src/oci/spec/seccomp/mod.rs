//! Seccomp profiles: the built-in default, and profile files of the node.
//!
//! A profile is JSON in Docker's format: an architecture map, and rules that apply only to some architectures, capabilities or
//! kernels. [`evaluate`] turns it into the plain filter of the runtime specification. A profile that already is such a filter is
//! handled in the same way.
//!
//! `default.json` is the built-in profile. Like those of other runtimes, it allows everything that ordinary programs need,
//! and no call that creates namespaces, mounts, loads kernel code or sets clocks without the corresponding capability.

use std::collections::HashSet;
use std::path::Path;

use oci_spec::runtime::{
    Arch, Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag,
    LinuxSyscall,
};
use serde::Deserialize;

use super::capabilities::capabilities;
use super::error::SpecError;
use super::facts::NodeFacts;
use super::host::Host;
use super::labels::requested_profile;
use criscope_cri::v1::LinuxContainerSecurityContext;
use criscope_cri::v1::security_profile::ProfileType;
use criscope_settings::SeccompProfile;

/// The profile of `RuntimeDefault`.
const DEFAULT: &str = include_str!("default.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: LinuxSeccompAction,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<Arch>>,
    #[serde(default)]
    arch_map: Vec<ArchMap>,
    flags: Option<Vec<LinuxSeccompFilterFlag>>,
    listener_path: Option<std::path::PathBuf>,
    listener_metadata: Option<String>,
    #[serde(default)]
    syscalls: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMap {
    architecture: Arch,
    #[serde(default)]
    sub_architectures: Vec<Arch>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    names: Vec<String>,
    /// The older form: a single name.
    name: Option<String>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    args: Option<Vec<LinuxSeccompArg>>,
    #[serde(default)]
    includes: Option<Filter>,
    #[serde(default)]
    excludes: Option<Filter>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    caps: Vec<String>,
    arches: Vec<String>,
    min_kernel: Option<String>,
}

/// The container and machine that a profile is evaluated for.
#[derive(Debug)]
pub struct Target<'a> {
    /// The architecture, as in `std::env::consts::ARCH`.
    pub arch: &'a str,
    /// The kernel, major and minor.
    pub kernel: (u32, u32),
    /// The bounding set of the container.
    pub capabilities: &'a HashSet<Capability>,
}

/// The seccomp filter of a container: none if it is privileged or `Unconfined`; without a request, the filter of the node's policy.
pub(super) fn container_seccomp(
    context: &LinuxContainerSecurityContext,
    node: &NodeFacts,
    host: &dyn Host,
) -> Result<Option<LinuxSeccomp>, SpecError> {
    #[expect(deprecated, reason = "older kubelets send the path")]
    let requested = requested_profile(context.seccomp.as_ref(), &context.seccomp_profile_path)?;
    if context.privileged {
        return Ok(None);
    }
    let (kind, reference) = requested.unwrap_or_else(|| unset(&node.policy.unset_seccomp_profile));
    if kind == ProfileType::Unconfined {
        return Ok(None);
    }
    if !node.seccomp {
        return Err(SpecError::Unsupported(
            "seccomp is not supported on this node".to_owned(),
        ));
    }
    let sets = capabilities(context, node);
    let none = HashSet::new();
    let target = Target {
        arch: node.arch,
        kernel: node.kernel,
        capabilities: sets.bounding().as_ref().unwrap_or(&none),
    };
    if kind == ProfileType::RuntimeDefault {
        return evaluate("default", DEFAULT, &target).map(Some);
    }
    let path = Path::new(reference.strip_prefix("localhost/").unwrap_or(&reference));
    if !path.is_absolute() {
        return Err(SpecError::Invalid(format!(
            "seccomp profile {} is not an absolute path",
            path.display()
        )));
    }
    let text = host.read(path).map_err(|source| SpecError::Io {
        path: path.to_owned(),
        source,
    })?;
    evaluate(&path.to_string_lossy(), &text, &target).map(Some)
}

/// The profile of a container without a request.
fn unset(policy: &SeccompProfile) -> (ProfileType, String) {
    match policy {
        SeccompProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SeccompProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SeccompProfile::Localhost(path) => (ProfileType::Localhost, path.display().to_string()),
    }
}

/// The built-in profile for a target.
pub fn default_profile(target: &Target<'_>) -> Result<LinuxSeccomp, SpecError> {
    evaluate("default", DEFAULT, target)
}

/// Evaluates a profile for a target, keeping the rules whose conditions hold. `name` is used in errors only.
pub fn evaluate(name: &str, text: &str, target: &Target<'_>) -> Result<LinuxSeccomp, SpecError> {
    let profile: Profile =
        serde_json::from_str(text).map_err(|error| profile_error(name, error.to_string()))?;
    if profile.architectures.is_some() && !profile.arch_map.is_empty() {
        let reason = "architectures and archMap exclude each other";
        return Err(profile_error(name, reason.to_owned()));
    }
    let mut rules = Vec::new();
    for rule in profile.syscalls {
        let applies = rule.applies(target);
        if applies.map_err(|reason| profile_error(name, reason))? {
            rules.push(syscall(rule));
        }
    }
    let mut to = LinuxSeccomp::default();
    to.set_default_action(profile.default_action)
        .set_default_errno_ret(profile.default_errno_ret)
        .set_architectures(
            profile
                .architectures
                .or_else(|| architectures(&profile.arch_map, target)),
        )
        .set_flags(profile.flags)
        .set_listener_path(profile.listener_path)
        .set_listener_metadata(profile.listener_metadata)
        .set_syscalls(Some(rules));
    Ok(to)
}

fn profile_error(name: &str, reason: String) -> SpecError {
    SpecError::Profile {
        name: name.to_owned(),
        reason,
    }
}

impl Rule {
    fn applies(&self, target: &Target<'_>) -> Result<bool, String> {
        let included = match &self.includes {
            Some(filter) => filter.holds(target)?.all(),
            None => true,
        };
        let excluded = match &self.excludes {
            Some(filter) => filter.holds(target)?.any(),
            None => false,
        };
        Ok(included && !excluded)
    }
}

fn syscall(rule: Rule) -> LinuxSyscall {
    let mut names = rule.names;
    names.extend(rule.name);
    let mut to = LinuxSyscall::default();
    to.set_names(names)
        .set_action(rule.action)
        .set_errno_ret(rule.errno_ret)
        .set_args(rule.args.filter(|args| !args.is_empty()));
    to
}

/// The architecture of the target and the ones that its kernel also supports.
fn architectures(map: &[ArchMap], target: &Target<'_>) -> Option<Vec<Arch>> {
    let native = match target.arch {
        "x86_64" => Arch::ScmpArchX86_64,
        "aarch64" => Arch::ScmpArchAarch64,
        "s390x" => Arch::ScmpArchS390x,
        "riscv64" => Arch::ScmpArchRiscv64,
        "powerpc64" => Arch::ScmpArchPpc64le,
        "loongarch64" => Arch::ScmpArchLoongarch64,
        _ => return None,
    };
    let entry = map.iter().find(|entry| entry.architecture == native)?;
    let mut all = vec![native];
    all.extend(entry.sub_architectures.iter().copied());
    Some(all)
}

impl Target<'_> {
    /// Returns whether the container has a capability. It never has one that is unknown here.
    fn has_capability(&self, name: &str) -> bool {
        let bare = name.strip_prefix("CAP_").unwrap_or(name);
        let parsed: Result<Capability, _> = bare.parse();
        parsed.is_ok_and(|capability| self.capabilities.contains(&capability))
    }
}

/// Which conditions of a filter hold; `None` for absent ones.
struct Holds {
    all_caps: Option<bool>,
    any_cap: Option<bool>,
    arch: Option<bool>,
    kernel: Option<bool>,
}

impl Holds {
    /// Returns whether every condition of an include holds.
    fn all(&self) -> bool {
        [self.all_caps, self.arch, self.kernel]
            .iter()
            .all(|held| held.unwrap_or(true))
    }

    /// Returns whether any condition of an exclude holds.
    fn any(&self) -> bool {
        [self.any_cap, self.arch, self.kernel].contains(&Some(true))
    }
}

impl Filter {
    fn holds(&self, target: &Target<'_>) -> Result<Holds, String> {
        let arch = match target.arch {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        let kernel = match &self.min_kernel {
            None => None,
            Some(text) => {
                let parsed = text
                    .split_once('.')
                    .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
                let wanted: (u32, u32) = parsed.ok_or_else(|| format!("kernel version {text}"))?;
                Some(target.kernel >= wanted)
            }
        };
        let (caps, arches) = (&self.caps, &self.arches);
        Ok(Holds {
            all_caps: (!caps.is_empty())
                .then(|| caps.iter().all(|name| target.has_capability(name))),
            any_cap: (!caps.is_empty())
                .then(|| caps.iter().any(|name| target.has_capability(name))),
            arch: (!arches.is_empty()).then(|| arches.iter().any(|one| one == arch)),
            kernel,
        })
    }
}

#[cfg(test)]
mod closed;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(filter: &LinuxSeccomp, name: &str) -> Vec<LinuxSyscall> {
        let rules = filter.syscalls().iter().flatten();
        rules
            .filter(|rule| rule.names().iter().any(|one| one == name))
            .filter(|rule| rule.action() == LinuxSeccompAction::ScmpActAllow)
            .cloned()
            .collect()
    }

    #[test]
    fn the_default_profile_follows_capabilities_architecture_and_kernel() {
        let none = HashSet::new();
        let admin = HashSet::from([Capability::SysAdmin]);
        let chroot = HashSet::from([Capability::SysChroot]);
        for (arch, kernel, caps, name, expected) in [
            ("x86_64", (6, 1), &none, "openat", true),
            ("x86_64", (6, 1), &none, "mount", false),
            ("x86_64", (6, 1), &admin, "mount", true),
            ("x86_64", (6, 1), &none, "chroot", false),
            ("x86_64", (6, 1), &chroot, "chroot", true),
            ("x86_64", (6, 1), &none, "ptrace", true),
            ("x86_64", (4, 4), &none, "ptrace", false),
            ("x86_64", (6, 1), &none, "arch_prctl", true),
            ("aarch64", (6, 1), &none, "arch_prctl", false),
            ("x86_64", (6, 1), &none, "io_uring_setup", false),
            ("x86_64", (6, 1), &none, "keyctl", false),
            ("x86_64", (6, 1), &none, "clone3", false),
            ("x86_64", (6, 1), &admin, "clone3", true),
        ] {
            let target = Target {
                arch,
                kernel,
                capabilities: caps,
            };
            let filter = default_profile(&target).expect("present");
            assert_eq!(
                !allowed(&filter, name).is_empty(),
                expected,
                "{arch} {kernel:?} {name}"
            );
        }
    }

    #[test]
    fn clone_creates_no_namespace_without_the_capability() {
        let none = HashSet::new();
        let target = Target {
            arch: "x86_64",
            kernel: (6, 1),
            capabilities: &none,
        };
        let filter = default_profile(&target).expect("present");
        let rules = allowed(&filter, "clone");
        assert_eq!(rules.len(), 1);
        let args = rules[0].args().clone().expect("present");
        assert_eq!(args[0].value(), 0x7e02_0000);
        assert_eq!(
            filter.architectures().as_deref(),
            Some(&[Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32][..])
        );
    }

    #[test]
    fn a_plain_filter_is_kept_and_invalid_profiles_are_rejected() {
        let none = HashSet::new();
        let target = Target {
            arch: "x86_64",
            kernel: (6, 1),
            capabilities: &none,
        };
        let plain = r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"],
            "syscalls":[{"name":"chmod","action":"SCMP_ACT_ERRNO","errnoRet":13}]}"#;
        let filter = evaluate("plain", plain, &target).expect("present");
        let rules = filter.syscalls().clone().expect("present");
        assert_eq!(rules[0].names(), &["chmod".to_owned()]);
        assert_eq!(rules[0].errno_ret(), Some(13));
        for nonsense in ["", "{}", r#"{"defaultAction":"ALLOW"}"#] {
            assert!(
                evaluate("nonsense", nonsense, &target).is_err(),
                "{nonsense}"
            );
        }
    }
}
