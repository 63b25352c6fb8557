//! Checks the units by which a restart hands over to the next process, and those of the bypass besides its own.

use std::fs;
use std::path::Path;

use super::super::output::ReportFinding;
use super::bypass::SYSTEMD_RUNS;
use super::process::NodeFiles;
use crate::config::Config;
use crate::install::InstalledBypass;

const TOPIC: &str = "handover";
const SERVICE: &str = "criscope.service";
const SOCKET: &str = "criscope.socket";
const HANDOVER: &str = "criscope-handover.service";
/// What starts and ends a bypass.
const BYPASS_HELPERS: [&str; 2] = ["criscope-bypass.timer", "criscope-retry.service"];

/// Directories of units; the first one that has a unit counts.
const UNIT_DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// A unit as systemd would load it.
#[derive(Debug, PartialEq, Eq)]
enum UnitFile {
    Missing,
    /// A link to /dev/null, or an empty file: systemd never starts it.
    Masked,
    Text(String),
}

/// The findings; none where criscope is not a service of systemd in front of another runtime.
pub(super) fn check(config: &Config, node: &NodeFiles) -> Vec<ReportFinding> {
    // The built-in runtime does not hand over.
    if config.runtime.is_some() || !node.0.has(SYSTEMD_RUNS) {
        return Vec::new();
    }
    let UnitFile::Text(service) = unit(node, SERVICE) else {
        return Vec::new();
    };
    let mut findings = vec![handover(node, &service)];
    if InstalledBypass::read(&node.0).is_some() {
        let broken = BYPASS_HELPERS.iter().filter_map(|name| {
            defect(
                node,
                name,
                "a criscope that cannot serve is not bypassed as it should be",
            )
        });
        findings.extend(broken);
    }
    findings
}

fn handover(node: &NodeFiles, service: &str) -> ReportFinding {
    let without = "a restart breaks off calls longer than server.drain_timeout, and sessions";
    if let Some(finding) = defect(node, HANDOVER, without) {
        return finding;
    }
    let refused = "a restart refuses the calls that come before the next process is ready";
    if let Some(finding) = defect(node, SOCKET, refused) {
        return finding;
    }
    if !wants_handover(node, service) {
        let text = format!("{SERVICE} does not start {HANDOVER} (Wants=): {without}");
        let hint = "criscope install replaces the units";
        return ReportFinding::warn(TOPIC, text).hint(hint);
    }
    if is_active(node, SERVICE) && !is_active(node, HANDOVER) {
        let text = format!("{HANDOVER} is not active: {without}");
        return ReportFinding::warn(TOPIC, text).hint(format!("systemctl start {HANDOVER}"));
    }
    ReportFinding::ok(TOPIC, "a restart hands over to the next process")
}

/// What is wrong with a unit, and what follows from it.
fn defect(node: &NodeFiles, name: &str, consequence: &str) -> Option<ReportFinding> {
    let (state, hint) = match unit(node, name) {
        UnitFile::Text(_) => return None,
        UnitFile::Missing => (
            "is missing",
            "criscope install writes it, and so does the package".to_owned(),
        ),
        UnitFile::Masked => (
            "is masked",
            format!("systemctl unmask {name}, then systemctl start {name}"),
        ),
    };
    let text = format!("{name} {state}: {consequence}");
    Some(ReportFinding::warn(TOPIC, text).hint(hint))
}

fn unit(node: &NodeFiles, name: &str) -> UnitFile {
    let places = UNIT_DIRECTORIES.iter();
    let mut places = places.map(|directory| Path::new(directory).join(name));
    let found = places.find_map(|place| {
        let link = fs::read_link(node.0.path(&place)).ok();
        if link.is_some_and(|target| target == Path::new("/dev/null")) {
            return Some(UnitFile::Masked);
        }
        let text = node.0.text(&place).ok()??;
        let is_masked = text.is_empty();
        Some(if is_masked {
            UnitFile::Masked
        } else {
            UnitFile::Text(text)
        })
    });
    found.unwrap_or(UnitFile::Missing)
}

/// Returns whether criscope's unit starts the one that hands over, by itself, by a drop-in or by a link.
fn wants_handover(node: &NodeFiles, service: &str) -> bool {
    let says_so = |text: &str| {
        let mut wants = text.lines().filter_map(|line| line.strip_prefix("Wants="));
        wants.any(|units| units.split_whitespace().any(|unit| unit == HANDOVER))
    };
    if says_so(service) {
        return true;
    }
    UNIT_DIRECTORIES.iter().any(|directory| {
        let directory = Path::new(directory);
        let link = directory.join(format!("{SERVICE}.wants/{HANDOVER}"));
        let drop_ins = node
            .0
            .names(directory.join(format!("{SERVICE}.d")), &["conf"]);
        let mut texts = drop_ins
            .iter()
            .filter_map(|path| node.0.text(path).ok().flatten());
        node.0.has(link) || texts.any(|text| says_so(&text))
    })
}

/// Returns whether systemd notes that the unit is active: it keeps a link with the id of its start until it ends.
fn is_active(node: &NodeFiles, name: &str) -> bool {
    let link = node.0.path(format!("/run/systemd/units/invocation:{name}"));
    fs::symlink_metadata(link).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::super::output::FindingLevel;
    use super::*;
    use crate::install::FilesystemRoot;

    const WANTS: &str = "[Unit]\nWants=criscope.socket\nWants=criscope-handover.service\n";

    struct Rig {
        _directory: tempfile::TempDir,
        node: NodeFiles,
    }

    impl Rig {
        /// A node with criscope's units as a package brings them.
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let node = NodeFiles(FilesystemRoot::at(directory.path()));
            let rig = Self {
                _directory: directory,
                node,
            };
            rig.write("/run/systemd/system/x", "");
            rig.write("/usr/lib/systemd/system/criscope.service", WANTS);
            for unit in [SOCKET, HANDOVER] {
                rig.write(&format!("/usr/lib/systemd/system/{unit}"), "[Unit]\n");
            }
            rig
        }

        fn write(&self, path: &str, content: &str) {
            let path = self.node.0.path(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, content).expect("written");
        }

        fn remove(&self, path: &str) {
            fs::remove_file(self.node.0.path(path)).expect("removed");
        }

        fn link(&self, target: &str, path: &str) {
            let path = self.node.0.path(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            symlink(target, path).expect("linked");
        }

        fn found(&self, config: &Config) -> Vec<ReportFinding> {
            check(config, &self.node)
        }

        /// The only finding: its level, its text and the remedy.
        fn only(&self) -> (FindingLevel, String, String) {
            let config = Config::with_upstream("/run/containerd/containerd.sock".into());
            let mut found = self.found(&config);
            assert_eq!(found.len(), 1);
            let finding = found.remove(0);
            (
                finding.level,
                finding.text,
                finding.hint.unwrap_or_default(),
            )
        }

        fn warns(&self, text: &str, remedy: &str) {
            let (level, said, hint) = self.only();
            assert_eq!(level, FindingLevel::Warn, "{said}");
            assert!(said.starts_with(text), "{said}");
            assert!(hint.contains(remedy), "{hint}");
        }
    }

    #[test]
    fn a_node_whose_restarts_hand_over_is_fine() {
        let rig = Rig::new();
        assert_eq!(rig.only().0, FindingLevel::Ok);
        // By a drop-in or by a link, too.
        rig.write("/usr/lib/systemd/system/criscope.service", "[Unit]\n");
        rig.warns("criscope.service does not start", "criscope install");
        let drop_in = "/etc/systemd/system/criscope.service.d/a.conf";
        rig.write(drop_in, WANTS);
        assert_eq!(rig.only().0, FindingLevel::Ok);
        rig.remove(drop_in);
        let wants = "/etc/systemd/system/criscope.service.wants";
        rig.link("/x", &format!("{wants}/{HANDOVER}"));
        rig.write("/x", "");
        assert_eq!(rig.only().0, FindingLevel::Ok);
    }

    #[test]
    fn a_unit_that_is_missing_or_masked_is_told_with_the_remedy() {
        let rig = Rig::new();
        rig.remove("/usr/lib/systemd/system/criscope.socket");
        rig.warns("criscope.socket is missing", "criscope install");
        rig.remove("/usr/lib/systemd/system/criscope-handover.service");
        rig.warns("criscope-handover.service is missing", "criscope install");

        let rig = Rig::new();
        rig.link("/dev/null", "/etc/systemd/system/criscope-handover.service");
        let unmask = "systemctl unmask criscope-handover.service";
        rig.warns("criscope-handover.service is masked", unmask);
    }

    #[test]
    fn a_unit_that_was_stopped_is_told() {
        let rig = Rig::new();
        let active = |unit: &str| rig.link("x", &format!("/run/systemd/units/invocation:{unit}"));
        active(SERVICE);
        rig.warns("criscope-handover.service is not active", "systemctl start");
        active(HANDOVER);
        assert_eq!(rig.only().0, FindingLevel::Ok);
    }

    #[test]
    fn the_helpers_of_the_bypass_are_checked_where_there_is_one() {
        use crate::install::{BYPASS_DROP_IN, BYPASS_UNIT};
        let rig = Rig::new();
        rig.write(BYPASS_DROP_IN, "[Service]\n# criscope-bypass.timer\n");
        let unit = "[Service]\nExecStart=/proxyd /run/containerd/containerd.sock\n";
        rig.write(&format!("/etc/systemd/system/{BYPASS_UNIT}"), unit);
        let config = Config::with_upstream("/run/containerd/containerd.sock".into());
        let texts: Vec<_> = rig.found(&config).into_iter().map(|f| f.text).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[1].starts_with("criscope-bypass.timer is missing"));
        assert!(texts[2].starts_with("criscope-retry.service is missing"));
    }

    #[test]
    fn nothing_is_said_without_systemd_or_as_the_runtime() {
        let rig = Rig::new();
        assert_eq!(rig.found(&Config::builtin()).len(), 0);
        rig.remove("/run/systemd/system/x");
        let none = rig.node.0.path(SYSTEMD_RUNS);
        fs::remove_dir(none).expect("removed");
        let config = Config::with_upstream("/run/containerd/containerd.sock".into());
        assert_eq!(rig.found(&config).len(), 0);
    }
}
