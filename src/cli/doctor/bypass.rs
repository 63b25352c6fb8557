//! Checks the bypass: whether calls reach the runtime while criscope cannot serve.

use std::path::Path;

use super::super::output::{FindingLevel, ReportFinding};
use super::process::NodeFiles;
use super::upstreams;
use crate::config::Config;
use crate::install::{InstalledBypass, bypass_obstacle, proxy_program};
use crate::lifecycle::node::BypassFiles;
use crate::settings::{lexical, show_endpoint};
use crate::units;
use crate::units::times::UnixMicros;

const TOPIC: &str = "bypass";

/// systemd's directory, which exists where it runs (sd_booted(3)).
pub(super) const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// The findings; none where there can be no bypass. `config` is `None` if it is broken, which is a reason for a bypass.
pub(super) fn check(config: Option<&Config>, node: &NodeFiles) -> Vec<ReportFinding> {
    let now = BypassFiles::at(&node.0.path("/run/criscope/agent")).since();
    let mut findings: Vec<_> = now.map(holds).into_iter().collect();
    let installed = InstalledBypass::read(&node.0);
    findings.extend(match (config, installed) {
        (Some(config), Some(bypass)) => Some(fits(config, &bypass, node)),
        (Some(config), None) => missing(config, node),
        (None, _) => None,
    });
    findings
}

fn holds(since: UnixMicros) -> ReportFinding {
    let text = format!(
        "calls have reached the runtime without criscope since {}",
        units::rfc3339(since)
    );
    ReportFinding::warn(TOPIC, text).hint(
        "journalctl -u criscope says why it could not serve; the bypass ends when it has run for a minute",
    )
}

/// Compares the units with the configuration: one of them may have changed since the installation.
fn fits(config: &Config, bypass: &InstalledBypass, node: &NodeFiles) -> ReportFinding {
    let shown = show_endpoint(&bypass.runtime);
    if let Some(obstacle) = bypass_obstacle(config) {
        let text = format!("while criscope cannot serve, calls reach only {shown}: {obstacle}");
        return ReportFinding::fail(TOPIC, text).hint("criscope install --bypass false");
    }
    if !node.0.has(&bypass.program) {
        let text = format!("{} does not exist", bypass.program.display());
        return ReportFinding::warn(TOPIC, text).hint("install it: a package of systemd has it");
    }
    let mut upstreams = upstreams(config);
    if !upstreams.any(|(_, endpoint)| is_same(endpoint, &bypass.runtime)) {
        let text = format!("calls would reach {shown}, which is no backend of criscope");
        return ReportFinding::warn(TOPIC, text).hint("criscope install");
    }
    let text = format!("while criscope cannot serve, calls reach {shown} without it");
    ReportFinding::ok(TOPIC, text)
}

fn is_same(one: &Path, other: &Path) -> bool {
    lexical(one) == lexical(other)
}

fn missing(config: &Config, node: &NodeFiles) -> Option<ReportFinding> {
    let is_possible = node.0.has(SYSTEMD_RUNS) && bypass_obstacle(config).is_none();
    is_possible.then(|| {
        let text = "there is none: while criscope cannot serve, the kubelet has no runtime";
        let hint = match proxy_program(&node.0) {
            Some(_) => "criscope install --bypass true",
            None => {
                "install systemd-socket-proxyd (a package of systemd has it), then criscope install"
            }
        };
        ReportFinding::new(FindingLevel::Note, TOPIC, text).hint(hint)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::install::{BYPASS_DROP_IN, BYPASS_UNIT, FilesystemRoot};

    const PROXY: &str = "/usr/lib/systemd/systemd-socket-proxyd";

    fn found(files: &[(&str, &str)], config: Option<&Config>) -> Vec<(FindingLevel, String)> {
        let directory = tempfile::tempdir().expect("a directory");
        let node = NodeFiles(FilesystemRoot::at(directory.path()));
        for (path, content) in files {
            let path = node.0.path(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, content).expect("written");
        }
        let findings = check(config, &node).into_iter();
        findings
            .map(|finding| (finding.level, finding.text))
            .collect()
    }

    #[test]
    fn the_bypass_is_checked_against_the_configuration() {
        let config = Config::with_upstream("/run/containerd/containerd.sock".into());
        let unit = format!("/etc/systemd/system/{BYPASS_UNIT}");
        let text = format!(
            "[Service]\nExecStart={PROXY} --connections-max=1 /run/containerd/containerd.sock\n"
        );
        let drop_in = (BYPASS_DROP_IN, "[Unit]\nWants=criscope-bypass.timer\n");
        let runs = ("/run/systemd/system/x", "");
        let all = [runs, (&*unit, &*text), drop_in, (PROXY, "")];
        let [(level, said)] = &found(&all, Some(&config))[..] else {
            panic!("one line");
        };
        assert_eq!(*level, FindingLevel::Ok, "{said}");
        assert!(
            said.ends_with("reach unix:///run/containerd/containerd.sock without it"),
            "{said}"
        );
        assert_eq!(
            found(&all[..3], Some(&config))[0].0,
            FindingLevel::Warn,
            "no program"
        );
        let crio = Config::with_upstream("/run/crio/crio.sock".into());
        assert_eq!(found(&all, Some(&crio))[0].0, FindingLevel::Warn);
        assert_eq!(
            found(&all, Some(&Config::builtin()))[0].0,
            FindingLevel::Fail
        );
        assert_eq!(found(&[runs], Some(&config))[0].0, FindingLevel::Note);
        assert_eq!(found(&[], Some(&config)), [], "no systemd");
        let off = (BYPASS_DROP_IN, "# The bypass is turned off\n");
        assert_eq!(
            found(&[runs, (&*unit, &*text), off], Some(&config))[0].0,
            FindingLevel::Note
        );
    }

    #[test]
    fn a_bypass_is_told_also_with_a_broken_configuration() {
        let since = [("/run/criscope/agent/bypass.since", "1767268800\n")];
        let [(level, said)] = &found(&since, None)[..] else {
            panic!("one line");
        };
        assert_eq!(*level, FindingLevel::Warn);
        assert!(said.ends_with("since 2026-01-01T12:00:00.000Z"), "{said}");
    }
}
