//! Checks the classes of block I/O and RDT.

use std::path::Path;

use super::super::output::ReportFinding;
use crate::app::blockio;
use crate::app::rdt::{self, RdtError, Resctrl};

const TOPIC: &str = "classes";

/// No finding if no file is configured.
pub(super) fn check(blockio: Option<&Path>, rdt: Option<&Path>) -> Vec<ReportFinding> {
    let blockio = blockio.map(blockio_classes).unwrap_or_default();
    blockio.into_iter().chain(rdt.map(rdt_classes)).collect()
}

fn blockio_classes(path: &Path) -> Vec<ReportFinding> {
    let file = path.display();
    let hint = "containers with such a class cannot be created until the file is fixed";
    let classes = match blockio::Classes::read(path) {
        Ok(classes) => classes,
        Err(error) => {
            return vec![ReportFinding::fail(TOPIC, format!("{file}: {error}")).hint(hint)];
        }
    };
    let mut findings = Vec::new();
    for (name, class) in classes.iter() {
        match class.resolve(&blockio::matching) {
            Ok(resolved) => {
                for pattern in resolved.unmatched {
                    let text = format!(
                        "{file}: class {name:?}: {pattern} is no block device of this node"
                    );
                    findings.push(ReportFinding::warn(TOPIC, text));
                }
            }
            Err(error) => {
                let text = format!("{file}: class {name:?}: {error}");
                findings.push(ReportFinding::fail(TOPIC, text).hint(hint));
            }
        }
    }
    if findings.is_empty() {
        let text = format!("{} of block I/O in {file}", classes.iter().count());
        findings.push(ReportFinding::ok(TOPIC, text));
    }
    findings
}

/// Without a change of resctrl.
fn rdt_classes(path: &Path) -> ReportFinding {
    let planned = Resctrl::find()
        .and_then(|found| found.ok_or(RdtError::NotMounted))
        .and_then(|resctrl| rdt::plan(path, &resctrl));
    match planned {
        Ok(plan) => ReportFinding::ok(TOPIC, format!("{} of RDT in {}", plan.len(), path.display())),
        Err(error @ RdtError::NotMounted) => {
            ReportFinding::fail(TOPIC, format!("{}: {error}", path.display())).hint(
                "mount -t resctrl resctrl /sys/fs/resctrl, on hardware with RDT; until then containers with an RDT class cannot be created",
            )
        }
        Err(error) => ReportFinding::fail(TOPIC, error.to_string())
            .hint("containers with an RDT class cannot be created until the file is fixed"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::output::FindingLevel;
    use super::*;

    fn levels(blockio: Option<&Path>, rdt: Option<&Path>) -> Vec<FindingLevel> {
        let found = check(blockio, rdt);
        found.iter().map(|one| one.level).collect()
    }

    #[test]
    fn broken_files_are_failures_and_missing_devices_are_not() {
        let dir = tempfile::tempdir().expect("made");
        let path = dir.path().join("blockio.yaml");
        assert!(levels(None, None).is_empty());
        let levels = || levels(Some(&path), None);
        assert_eq!(levels(), [FindingLevel::Fail], "there is no such file");
        fs::write(&path, "Classes: {a: [{Weight: 10}]}").expect("written");
        assert_eq!(levels(), [FindingLevel::Ok]);
        let text = "Classes: {a: [{Devices: [/no/device, /dev/null], Weight: 10}], b: [{Devices: [/no/dev*], Weight: 10}]}";
        fs::write(&path, text).expect("written");
        assert_eq!(levels(), [FindingLevel::Fail, FindingLevel::Warn]);
        fs::write(&path, "Classes: {a: [{Weight: 1}]}").expect("written");
        assert_eq!(levels(), [FindingLevel::Fail]);
    }

    #[test]
    fn an_rdt_file_needs_resctrl() {
        // Either there is no resctrl, or no file.
        let file = Path::new("/no/such/file");
        assert_eq!(levels(None, Some(file)), [FindingLevel::Fail]);
    }
}
