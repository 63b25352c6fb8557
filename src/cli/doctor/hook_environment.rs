//! Checks whether the OCI runtimes of handlers give hooks the environment of the image.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::output::ReportFinding;
use crate::app::OciVersion;
use crate::config::{Handler, Runtime};

const TOPIC: &str = "hooks";
const HINT: &str = "update runc to 1.3; criscope gives every hook an environment, but does not see hooks that a program between it and runc adds, such as nvidia-container-runtime";

/// A warning for each handler whose OCI runtime does. Programs that are missing are reported with the runtime.
pub(super) fn check(runtime: &Runtime, search: &OsStr) -> Vec<ReportFinding> {
    let Ok(found) = runtime.handler_programs(search) else {
        return Vec::new();
    };
    let findings = found.handlers.iter().filter_map(|(handler, program)| {
        let program = oci_program(handler, program, search)?;
        let version = version(&program, search)?;
        let text = format!(
            "handler {}: {} is runc {}, which gives createContainer hooks without env the environment of the image, and runs them as root on the node (the class of CVE-2025-23266)",
            handler.name,
            program.display(),
            version.version,
        );
        let is_affected = version.gives_hooks_the_image_environment();
        is_affected.then(|| ReportFinding::warn(TOPIC, text).hint(HINT))
    });
    findings.collect()
}

/// The OCI runtime of a handler, which a shim of containerd may call. Other shims have hooks of their own.
pub(super) fn oci_program(handler: &Handler, program: &Path, search: &OsStr) -> Option<PathBuf> {
    if handler.containerd_shim().is_none() {
        return handler.misfit().is_none().then(|| program.to_owned());
    }
    if !handler.has_runc_shim() {
        return None;
    }
    let called = handler.called_by_shim();
    let mut programs = std::env::split_paths(search).map(|dir| dir.join(called));
    programs.find(|path| path.is_file())
}

pub(super) fn version(program: &Path, search: &OsStr) -> Option<OciVersion> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .env("PATH", search)
        .stdin(Stdio::null());
    let output = command.output().ok()?;
    OciVersion::parse(&String::from_utf8_lossy(&output.stdout))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use criscope_testkit::executable::executable;

    use super::super::super::output::FindingLevel;
    use super::*;
    use crate::config::{Config, FlagOverrides};

    #[test]
    fn old_versions_of_runc_are_named_also_behind_a_shim() {
        let dir = tempfile::tempdir().expect("dir");
        let search = dir.path().as_os_str();
        let text = "[runtime]\ndefault_handler = \"runc\"\n[runtime.handlers.runc]\n[runtime.handlers.crun]\n\
            [runtime.handlers.behind]\nruntime_type = \"io.containerd.runc.v2\"\n\
            [runtime.handlers.kata]\nruntime_type = \"io.containerd.kata.v2\"\n";
        let config = Config::from_text("c", text, &FlagOverrides::default());
        let runtime = config.expect("valid").runtime.expect("built in");
        let program = |name: &str, says: &str| {
            let path = dir.path().join(name);
            // Replaced, not rewritten: the kernel refuses to write to a program that runs.
            let _ = fs::remove_file(&path);
            executable(&path, &format!("#!/bin/sh\necho \"{says}\"\n"));
        };
        for shim in ["containerd-shim-runc-v2", "containerd-shim-kata-v2"] {
            program(shim, "runc version 1.0.0");
        }
        program("crun", "crun version 1.8.1");
        program("runc", "runc version 1.1.5+ds1");
        let found = check(&runtime, search);
        let mut named: Vec<_> = found
            .iter()
            .map(|one| (one.level, one.text.as_str()))
            .collect();
        named.sort();
        assert_eq!(named.len(), 2, "{named:?}");
        for ((level, text), handler) in named
            .into_iter()
            .zip(["handler behind: ", "handler runc: "])
        {
            assert_eq!(level, FindingLevel::Warn);
            assert!(
                text.starts_with(handler) && text.contains("runc 1.1.5+ds1"),
                "{text}"
            );
        }
        program("runc", "runc version 1.3.3");
        assert_eq!(check(&runtime, search), []);
    }
}
