//! Checks what checkpoints need: CRIU on this kernel, and OCI runtimes that call it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::super::output::{FindingLevel, ReportFinding};
use crate::config::Runtime;

const TOPIC: &str = "checkpoints";

/// Programs that CRIU calls during a dump, and `criu check` does not look for: two lock the network of the pod, one copies the files of
/// a tmpfs.
const CRIU_HELPERS: [&str; 3] = ["iptables-restore", "ip6tables-restore", "tar"];

/// Nothing, unless they are turned on.
pub(super) fn check(runtime: &Runtime, search: &OsStr, is_root: bool) -> Vec<ReportFinding> {
    if !runtime.enable_criu {
        return Vec::new();
    }
    let mut findings = vec![criu(search, is_root)];
    if findings[0].level == FindingLevel::Ok {
        findings.extend(helpers(search));
    }
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
            ReportFinding::warn(TOPIC, text).hint("runc has it, and crun if it was built with CRIU")
        }));
    }
    findings
}

/// `criu check` looks for what the kernel must have.
fn criu(search: &OsStr, is_root: bool) -> ReportFinding {
    let Some(program) = find("criu", search) else {
        return ReportFinding::fail(TOPIC, "runtime.enable_criu is set, and criu is not on PATH")
            .hint("install CRIU (Debian: criu)");
    };
    if !is_root {
        return ReportFinding::warn(TOPIC, "criu check was not run: it needs root");
    }
    match run(&program, &["check"], search) {
        Ok(done) if done.status.success() => {
            ReportFinding::ok(TOPIC, format!("{} works on this kernel", program.display()))
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            let first = said.lines().find(|line| line.contains("Error"));
            let why = first.unwrap_or("it tells no reason");
            ReportFinding::fail(TOPIC, format!("criu check fails: {why}"))
                .hint("the kernel may be newer than this CRIU")
        }
        Err(error) => ReportFinding::fail(TOPIC, format!("{}: {error}", program.display())),
    }
}

/// The programs that are missing.
fn helpers(search: &OsStr) -> Option<ReportFinding> {
    let missing = CRIU_HELPERS.into_iter();
    let missing: Vec<_> = missing
        .filter(|name| find(name, search).is_none())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let text = format!(
        "CRIU calls programs that are not on PATH: {}",
        missing.join(", ")
    );
    let hint = "install them (Debian: iptables, tar), or have CRIU lock networks with nftables: network-lock in /etc/criu/runc.conf";
    Some(ReportFinding::warn(TOPIC, text).hint(hint))
}

fn find(name: &str, search: &OsStr) -> Option<PathBuf> {
    let mut programs = std::env::split_paths(search).map(|dir| dir.join(name));
    programs.find(|path| path.is_file())
}

fn run(program: &Path, words: &[&str], search: &OsStr) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(words).env("PATH", search).stdin(Stdio::null());
    command.output()
}

#[cfg(test)]
mod tests {
    use criscope_testkit::executable::executable;

    use super::*;
    use crate::config::{Config, FlagOverrides};

    fn script(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        executable(&path, &format!("#!/bin/sh\n{text}\n"));
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
            let config = Config::from_text("c", &text(on), &FlagOverrides::default());
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
        assert_eq!(levels(), [FindingLevel::Fail, FindingLevel::Warn]);
        script(
            dir.path(),
            "criu",
            "echo 'Error (criu/vdso.c:1): no' >&2; exit 1",
        );
        let found = check(&runtime(true), search, true);
        assert!(found[0].text.contains("criu/vdso.c"), "{found:?}");
        script(dir.path(), "criu", "exit 0");
        script(dir.path(), "runc", "exit 0");
        script(dir.path(), "tar", "exit 0");
        let found = check(&runtime(true), search, true);
        assert_eq!(found[1].level, FindingLevel::Warn, "{found:?}");
        let missing = ": iptables-restore, ip6tables-restore";
        assert!(found[1].text.ends_with(missing), "{found:?}");
        script(dir.path(), "iptables-restore", "exit 0");
        script(dir.path(), "ip6tables-restore", "exit 0");
        assert_eq!(levels(), [FindingLevel::Ok]);
    }
}
