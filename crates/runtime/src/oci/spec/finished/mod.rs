//! The finished specification: after CDI devices, hooks and NRI plugins have had their say, and before it is written.
//!
//! Everything that they and annotations can add is checked here, by one list of rules. The sources are trusted with the node, but not
//! to be correct: a hook without an environment, for instance, would get the environment of the container, which the image chooses.

mod changes;
mod confinement;
mod environment;
mod hooks;
mod limits;
mod mounts;
mod process;

use oci_spec::runtime::{Linux, Process, Spec};

use super::error::SpecError;
use super::host::Host;
use super::support::RuntimeSupport;
use crate::sections::Handler;

/// A rule of finished specifications.
struct Rule {
    /// The name in errors.
    name: &'static str,
    check: fn(&FinishedSpec<'_>) -> Result<(), Violation>,
}

const fn rule(name: &'static str, check: fn(&FinishedSpec<'_>) -> Result<(), Violation>) -> Rule {
    Rule { name, check }
}

/// All rules, in the order in which they are checked.
const RULES: [Rule; 14] = [
    rule("hooks", hooks::check),
    rule("request", confinement::check_request),
    rule("namespaces", confinement::check_namespaces),
    rule("seccomp", confinement::check_seccomp),
    rule("cgroup", confinement::check_cgroup),
    rule("mounts", mounts::check),
    rule("process", process::check),
    rule("ids", process::check_ids),
    rule("devices", limits::check_devices),
    rule("resources", limits::check_resources),
    rule("sysctls", environment::check_sysctls),
    rule("annotations", environment::check_annotations),
    rule("network devices", environment::check_net_devices),
    rule("rdt", environment::check_rdt),
];

/// Why a rule does not hold. It names no values of variables and arguments, which may be secret.
#[derive(Debug)]
struct Violation {
    field: String,
    reason: String,
}

fn violation<T>(field: impl Into<String>, reason: impl Into<String>) -> Result<T, Violation> {
    Err(Violation {
        field: field.into(),
        reason: reason.into(),
    })
}

/// The changes of a container's confinement that NRI plugins have asked for. They may: a plugin has the power of root. Nothing else
/// may change it, and a change by mistake is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PluginChanges {
    /// `linux.namespaces`.
    pub namespaces: bool,
    /// `linux.seccomp`.
    pub seccomp: bool,
    /// `linux.cgroupsPath`.
    pub cgroup: bool,
}

/// The request that a finished specification is compared with.
pub struct FinishRequest<'a> {
    /// The specification of the request alone, without CDI devices, hooks and NRI plugins.
    pub requested: &'a Spec,
    /// The requests of NRI plugins.
    pub plugins: PluginChanges,
    /// The options of the runtime handler.
    pub handler: &'a Handler,
    /// The fields that its OCI runtime knows.
    pub support: &'a RuntimeSupport,
    /// Access to the machine.
    pub host: &'a dyn Host,
}

impl std::fmt::Debug for FinishRequest<'_> {
    /// Without the specification, which contains the environment.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishRequest")
            .field("plugins", &self.plugins)
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}

impl FinishRequest<'_> {
    /// Gives each hook without an environment one that no image chooses, and checks all rules. Returns which parts of the confinement,
    /// and which mounts of the request, differ from the request: they are logged.
    ///
    /// # Errors
    /// [`SpecError::Finished`] if a rule does not hold, and [`SpecError::Unsupported`] if the OCI runtime would ignore a field.
    pub fn finish(&self, spec: &mut Spec) -> Result<Vec<String>, SpecError> {
        hooks::complete(spec);
        let finished = FinishedSpec {
            spec,
            request: self,
        };
        for rule in &RULES {
            (rule.check)(&finished).map_err(|violation| SpecError::Finished {
                rule: rule.name,
                field: violation.field,
                reason: violation.reason,
            })?;
        }
        self.support.check(spec, self.host)?;
        Ok(changes::list(&FinishedSpec {
            spec,
            request: self,
        }))
    }
}

/// A finished specification, and its sources.
struct FinishedSpec<'a> {
    spec: &'a Spec,
    request: &'a FinishRequest<'a>,
}

impl FinishedSpec<'_> {
    fn process(&self) -> Option<&Process> {
        self.spec.process().as_ref()
    }

    fn linux(&self) -> Option<&Linux> {
        self.spec.linux().as_ref()
    }

    fn requested_process(&self) -> Option<&Process> {
        self.request.requested.process().as_ref()
    }

    fn requested_linux(&self) -> Option<&Linux> {
        self.request.requested.linux().as_ref()
    }
}

/// The names of all rules; a test must break each of them.
#[cfg(test)]
pub(super) fn rule_names() -> Vec<&'static str> {
    RULES.iter().map(|rule| rule.name).collect()
}
