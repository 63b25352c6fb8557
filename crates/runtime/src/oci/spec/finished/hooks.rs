//! Hooks: programs of the node that the OCI runtime runs as root, outside of the container's confinement.
//!
//! Each gets an explicit environment. runc before 1.3 gives a `createContainer` hook without one the environment of the container, in
//! the container's root directory; with `LD_PRELOAD=/proc/self/cwd/x.so` in an image, code of the image ran on the node. crun passes its
//! own environment. An empty list is replaced too: runc 1.3 takes it for no list (`startContainer`), others for no variables.

use std::path::{Component, Path};

use oci_spec::runtime::{Hook, Hooks, Spec};

use super::{FinishedSpec, Violation, violation};
use crate::oci::spec::process::DEFAULT_PATH;

/// The stage whose hooks run in the container, with the container's own programs.
const IN_CONTAINER: &str = "startContainer";

/// Completes the hooks of all stages.
pub(super) fn complete(spec: &mut Spec) {
    let Some(hooks) = spec.hooks_mut() else {
        return;
    };
    complete_stage(hooks.prestart_mut());
    complete_stage(hooks.create_runtime_mut());
    complete_stage(hooks.create_container_mut());
    complete_stage(hooks.start_container_mut());
    complete_stage(hooks.poststart_mut());
    complete_stage(hooks.poststop_mut());
}

fn complete_stage(hooks: &mut Option<Vec<Hook>>) {
    for hook in hooks.iter_mut().flatten() {
        if hook.env().as_ref().is_none_or(Vec::is_empty) {
            hook.set_env(Some(vec![DEFAULT_PATH.to_owned()]));
        }
        // With an empty list crun would start a program without its name.
        if hook.args().as_ref().is_some_and(Vec::is_empty) {
            hook.set_args(None);
        }
    }
}

fn stages(hooks: &Hooks) -> [(&'static str, &Option<Vec<Hook>>); 6] {
    [
        ("prestart", hooks.prestart()),
        ("createRuntime", hooks.create_runtime()),
        ("createContainer", hooks.create_container()),
        (IN_CONTAINER, hooks.start_container()),
        ("poststart", hooks.poststart()),
        ("poststop", hooks.poststop()),
    ]
}

/// Every hook has an absolute path that the container does not choose, an explicit environment, and a timeout above 0, if any.
pub(super) fn check(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let Some(hooks) = finished.spec.hooks() else {
        return Ok(());
    };
    for (stage, hooks) in stages(hooks) {
        for (number, hook) in hooks.iter().flatten().enumerate() {
            let field = format!("hooks.{stage}[{number}]");
            check_hook(&field, hook, stage == IN_CONTAINER)?;
        }
    }
    Ok(())
}

fn check_hook(field: &str, hook: &Hook, in_container: bool) -> Result<(), Violation> {
    let path = hook.path();
    if !is_plain_absolute(path) {
        let reason =
            format!("{path:?} is not an absolute path without `..` and control characters");
        return violation(format!("{field}.path"), reason);
    }
    // `/proc/self/cwd` and `/proc/self/root` may be directories of the container.
    if !in_container && path.starts_with("/proc") {
        let reason = format!("{path:?} is below /proc, which may lead into the container");
        return violation(format!("{field}.path"), reason);
    }
    if hook.args().iter().flatten().any(|arg| arg.contains('\0')) {
        return violation(format!("{field}.args"), "an argument has a zero byte");
    }
    if hook.timeout().is_some_and(|seconds| seconds <= 0) {
        return violation(format!("{field}.timeout"), "not above 0 seconds");
    }
    let field = format!("{field}.env");
    let Some(env) = hook.env().as_ref().filter(|env| !env.is_empty()) else {
        return violation(field, "not set: the hook would get that of the container");
    };
    for (number, entry) in env.iter().enumerate() {
        let (name, value) = entry.split_once('=').unwrap_or_default();
        if name.is_empty() || entry.contains('\0') {
            return violation(format!("{field}[{number}]"), "not of the form name=value");
        }
        // The working directory of a `createContainer` hook is the root directory of the container.
        if !in_container && name == "PATH" && !is_absolute_list(value) {
            let reason =
                "PATH has a directory that is not absolute, which may be one of the container";
            return violation(format!("{field}[{number}]"), reason);
        }
    }
    Ok(())
}

/// Returns whether all directories of a list such as `PATH` are absolute. An empty one is the working directory.
fn is_absolute_list(list: &str) -> bool {
    list.split(':').all(|path| path.starts_with('/'))
}

/// Returns whether a path is absolute, and leads where it seems to.
pub(super) fn is_plain_absolute(path: &Path) -> bool {
    let leads_up = path.components().any(|part| part == Component::ParentDir);
    let text = path.to_string_lossy();
    path.is_absolute() && !leads_up && !text.contains(char::is_control)
}
