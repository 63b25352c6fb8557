//! Finds the programs of the runtime handlers, and asks each for its features.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::BuiltinRuntimeError;
use super::probe::{self, OciRuntimeAnswers};
use crate::config;
use crate::runtime::node::{self, NodeOptions};
use crate::runtime::oci::spec::{CgroupDriver, CgroupVersion, NodeFacts, RuntimeSupport};
use crate::runtime::oci::{Filters, OciRuntime, ShimOptions};
use crate::runtime::sections::ProgramError;
use crate::runtime::{self, HandlerFeatures, LiveSettings, UsableHandler};

/// The first kernel whose overlayfs supports id-mapped layers.
const USER_NAMESPACES: (u32, u32) = (5, 19);

/// The usable handlers.
pub(super) struct UsableHandlers {
    pub(super) handlers: Vec<UsableHandler>,
    /// One of them.
    pub(super) default: String,
    /// The facts of the node with the OCI runtime of the default.
    pub(super) node: NodeFacts,
    /// Handlers that cannot be used.
    pub(super) missing: Vec<ProgramError>,
}

impl UsableHandlers {
    /// The settings of the runtime with these handlers.
    pub(super) fn into_settings(self, config: &config::Runtime) -> LiveSettings {
        LiveSettings {
            config: config.clone(),
            default_handler: self.default,
            handlers: self.handlers,
            node: self.node,
        }
    }

    /// Logs which handlers cannot be used.
    pub(super) fn report_missing(&self) {
        for missing in &self.missing {
            tracing::warn!(event = "runtime.handler", error.message = %missing, "a runtime handler cannot be used");
        }
    }
}

/// Finds the handlers; `search` is a list of directories like `PATH`.
///
/// # Errors
/// If the default handler cannot be used, or the node cannot run containers as configured.
pub(super) async fn find(
    config: &config::Runtime,
    search: &OsStr,
) -> Result<UsableHandlers, BuiltinRuntimeError> {
    let programs = config.handler_programs(search)?;
    let runtimes: Vec<_> = { programs.handlers.iter() }
        .map(|(handler, program)| oci_runtime(config, handler, program))
        .collect();
    let asked: Vec<_> = { programs.handlers.iter().zip(&runtimes) }
        .map(|((handler, _), oci)| asked(handler, oci))
        .collect();
    let answers = probe::ask_all(&asked).await;
    let mut handlers = Vec::new();
    let mut facts = None;
    let found = programs.handlers.iter().zip(runtimes).zip(answers);
    for (((handler, _), oci), answers) in found {
        let (settings, node) = detect(config, handler, oci, answers).await?;
        handlers.push(settings);
        if handler.name == programs.default {
            facts = Some(node);
        }
    }
    Ok(UsableHandlers {
        handlers,
        default: programs.default,
        node: facts.ok_or(ProgramError::NoRuntime)?,
        missing: programs.missing,
    })
}

/// Adds the features of its OCI runtime and of the node to a handler; returns also the facts of the node with this OCI runtime.
async fn detect(
    config: &config::Runtime,
    handler: &config::Handler,
    mut oci: OciRuntime,
    answers: OciRuntimeAnswers,
) -> Result<(UsableHandler, NodeFacts), BuiltinRuntimeError> {
    let is_shim = oci.shim.is_some();
    let takes_filters = !is_shim && answers.version.as_ref().is_some_and(Filters::supported_by);
    let support = RuntimeSupport::from_features(answers.features.as_ref());
    let node = node_facts(config, answers).await?;
    // With cgroup v1 a container has no cgroup namespace of its own; containerd refuses this, too.
    if handler.cgroup_writable && node.cgroup_version != CgroupVersion::V2 {
        return Err(BuiltinRuntimeError::CgroupWritable(handler.name.clone()));
    }
    oci.systemd_cgroup = handler
        .systemd_cgroup
        .unwrap_or(node.cgroup_driver == CgroupDriver::Systemd);
    let usable = UsableHandler {
        settings: handler.clone(),
        oci,
        features: HandlerFeatures {
            recursive_read_only: node.recursive_read_only,
            support,
            user_namespaces: !is_shim && node.kernel >= USER_NAMESPACES,
        },
        filters: takes_filters.then(Arc::default),
    };
    Ok((usable, node))
}

/// The facts of the node with the features of an OCI runtime, if there is one to ask.
async fn node_facts(
    config: &config::Runtime,
    answers: OciRuntimeAnswers,
) -> Result<NodeFacts, BuiltinRuntimeError> {
    let options = NodeOptions {
        runtime_features: answers.features,
        runtime_version: answers.version,
        cgroup_driver: config.cgroup_driver,
        pods: config.pods.clone(),
    };
    let facts = tokio::task::spawn_blocking(move || node::detect(&options)).await;
    Ok(facts.map_err(runtime::Error::from)??)
}

/// The OCI runtime of a handler with its options.
fn oci_runtime(config: &config::Runtime, handler: &config::Handler, program: &Path) -> OciRuntime {
    let shim = if handler.containerd_shim().is_none() {
        None
    } else if handler.has_runc_shim() {
        Some(ShimOptions::Runc {
            binary: handler.path.clone(),
            no_pivot: handler.no_pivot,
            no_new_keyring: handler.no_new_keyring,
        })
    } else {
        Some(ShimOptions::Other {
            config_path: handler.config_path.clone(),
            type_url: handler.type_url.clone(),
        })
    };
    OciRuntime {
        options: handler.options.clone(),
        limit: handler.timeout,
        systemd_cgroup: handler.systemd_cgroup.unwrap_or_default(),
        shim,
        ..OciRuntime::new(program, config.handler_root(handler))
    }
}

/// The OCI runtime that can be asked for its features: the one that runc's shim calls, and none of another shim.
fn asked(handler: &config::Handler, oci: &OciRuntime) -> Option<OciRuntime> {
    match oci.shim {
        None => Some(oci.clone()),
        Some(ShimOptions::Runc { .. }) => {
            let mut called = OciRuntime::new(handler.called_by_shim(), oci.root.clone());
            called.limit = oci.limit;
            Some(called)
        }
        Some(ShimOptions::Other { .. }) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use criscope_testkit::executable::executable;

    use super::*;
    use crate::config::{Config, FlagOverrides};

    /// A program that answers a call when all four calls of both programs have begun, and writes down each.
    fn program(dir: &Path, name: &str) -> String {
        let path = dir.join(name);
        let calls = ["one-version", "one-features", "two-version", "two-features"];
        let begun = calls.map(|call| format!("[ -e {call} ]")).join(" && ");
        let script = format!(
            "#!/bin/sh\ncd {dir}\n\
             case \"$*\" in *features) call=features answer='{{}}';; *) call=version answer='crun version 1';; esac\n\
             echo $call >> {name}-calls\n: > {name}-$call\n\
             until {begun}; do sleep 0.01; done\necho \"$answer\"\n",
            dir = dir.display(),
        );
        executable(&path, &script);
        path.display().to_string()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_oci_runtime_is_asked_once_and_all_at_the_same_time() {
        let dir = tempfile::tempdir().expect("dir");
        let (one, two) = (program(dir.path(), "one"), program(dir.path(), "two"));
        // A test must not load profiles into the kernel.
        let text = format!(
            "[runtime]\ndisable_apparmor = true\ndefault_handler = \"a\"\n\
             [runtime.handlers.a]\npath = \"{one}\"\n\
             [runtime.handlers.b]\npath = \"{two}\"\n\
             [runtime.handlers.c]\npath = \"{one}\"\n"
        );
        let config = Config::from_text("test", &text, &FlagOverrides::default()).expect("valid");
        let config = config.runtime.expect("built in");
        let found = find(&config, OsStr::new("")).await.expect("found");
        let filters = found.handlers.iter().map(|one| one.filters.is_some());
        assert!(filters.eq([true; 3]), "every call has got its answer");
        for name in ["one", "two"] {
            let calls = fs::read_to_string(dir.path().join(format!("{name}-calls")));
            let mut calls: Vec<_> = calls.expect("calls").lines().map(str::to_owned).collect();
            calls.sort();
            assert_eq!(calls, ["features", "version"], "{name}");
        }
    }
}
