//! Checks what checkpoints need: CRIU on this kernel, and OCI runtimes that call it.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::super::output::Finding;
use crate::config::Runtime;

const TOPIC: &str = "checkpoints";

/// Nothing, unless they are turned on.
pub(super) fn check(runtime: &Runtime, search: &OsStr, is_root: bool) -> Vec<Finding> {
    if !runtime.enable_criu {
        return Vec::new();
    }
    let mut findings = vec![criu(search, is_root)];
    // Missing ones are reported with the runtime.
    if let Ok(found) = runtime.handler_programs(search) {
        let lacking = found.handlers.iter().filter(|(_, program)| {
            let asked = run(program, &["checkpoint", "--help"], search);
            !asked.is_ok_and(|done| done.status.success())
        });
        findings.extend(lacking.map(|(handler, program)| {
            let text = format!(
                "handler {}: {} has no verb checkpoint",
                handler.name,
                program.display()
            );
            Finding::warn(TOPIC, text).hint("runc has it, and crun if it was built with CRIU")
        }));
    }
    findings
}

/// `criu check` looks for what the kernel must have.
fn criu(search: &OsStr, is_root: bool) -> Finding {
    let dirs = std::env::split_paths(search);
    let mut programs = dirs.map(|dir| dir.join("criu"));
    let Some(program) = programs.find(|path| path.is_file()) else {
        return Finding::fail(TOPIC, "runtime.enable_criu is set, and criu is not on PATH")
            .hint("install CRIU (Debian: criu)");
    };
    if !is_root {
        return Finding::warn(TOPIC, "criu check was not run: it needs root");
    }
    match run(&program, &["check"], search) {
        Ok(done) if done.status.success() => {
            Finding::ok(TOPIC, format!("{} works on this kernel", program.display()))
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            let first = said.lines().find(|line| line.contains("Error"));
            let why = first.unwrap_or("it tells no reason");
            Finding::fail(TOPIC, format!("criu check fails: {why}"))
                .hint("the kernel may be newer than this CRIU")
        }
        Err(error) => Finding::fail(TOPIC, format!("{}: {error}", program.display())),
    }
}

fn run(program: &Path, words: &[&str], search: &OsStr) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(words).env("PATH", search).stdin(Stdio::null());
    command.output()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::super::output::Level;
    use super::*;
    use crate::config::{Config, Overrides};

    fn script(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    #[test]
    fn what_checkpoints_lack_is_told_only_if_they_are_wanted() {
        let dir = tempfile::tempdir().expect("dir");
        let search = dir.path().as_os_str();
        let text = |on: bool| {
            format!(
                "[runtime]\nenable_criu = {on}\n[runtime.handlers.runc]\npath = \"{}/runc\"\n",
                dir.path().display()
            )
        };
        let runtime = |on| {
            let config = Config::from_text("c", &text(on), &Overrides::default());
            config.expect("valid").runtime.expect("built in")
        };
        script(dir.path(), "runc", "exit 1");
        assert_eq!(check(&runtime(false), search, true), []);
        let levels = || {
            let found = check(&runtime(true), search, true);
            found
                .iter()
                .map(|finding| finding.level)
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(), [Level::Fail, Level::Warn]);
        script(
            dir.path(),
            "criu",
            "echo 'Error (criu/vdso.c:1): no' >&2; exit 1",
        );
        let found = check(&runtime(true), search, true);
        assert!(found[0].text.contains("criu/vdso.c"), "{found:?}");
        script(dir.path(), "criu", "exit 0");
        script(dir.path(), "runc", "exit 0");
        assert_eq!(levels(), [Level::Ok]);
    }
}
