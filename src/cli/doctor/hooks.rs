//! Checks the hooks that are added to containers.

use std::path::PathBuf;

use super::super::output::ReportFinding;
use crate::app::Hooks;

const TOPIC: &str = "hooks";

/// No finding if no directory is configured.
pub(super) fn check(directories: &[PathBuf]) -> Vec<ReportFinding> {
    if directories.is_empty() {
        return Vec::new();
    }
    let hooks = Hooks::read(directories);
    let mut findings = Vec::new();
    for directory in directories.iter().filter(|path| !path.exists()) {
        let text = format!("{} does not exist", directory.display());
        findings.push(ReportFinding::warn(TOPIC, text));
    }
    for (path, error) in &hooks.broken {
        let text = format!("{}: {error}", path.display());
        findings.push(
            ReportFinding::fail(TOPIC, text)
                .hint("no container can be created until the file is fixed or removed"),
        );
    }
    for (path, program) in hooks.without_program() {
        let (path, program) = (path.display(), program.display());
        let text = format!("{path}: its program {program} does not exist");
        findings.push(
            ReportFinding::fail(TOPIC, text)
                .hint("containers that meet its conditions cannot be created"),
        );
    }
    if findings.is_empty() {
        let names: Vec<_> = directories
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let text = format!("{} of {}", hooks.len(), names.join(", "));
        findings.push(ReportFinding::ok(TOPIC, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::output::FindingLevel;
    use super::*;

    #[test]
    fn broken_files_and_missing_programs_are_failures() {
        assert!(check(&[]).is_empty());
        let dir = tempfile::tempdir().expect("made");
        let directories = [dir.path().to_owned(), dir.path().join("missing")];
        let levels = |directories: &[PathBuf]| {
            let found = check(directories);
            found.iter().map(|one| one.level).collect::<Vec<_>>()
        };
        let write = |name: &str, program: &str| {
            let text = format!(
                r#"{{"version": "1.0.0", "hook": {{"path": "{program}"}}, "when": {{"always": true}}, "stages": ["poststop"]}}"#
            );
            fs::write(dir.path().join(name), text).expect("written");
        };
        write("a.json", "/");
        assert_eq!(levels(&directories[..1]), [FindingLevel::Ok]);
        assert_eq!(levels(&directories), [FindingLevel::Warn]);
        write("b.json", "/no/such/program");
        fs::write(dir.path().join("c.json"), "{").expect("written");
        assert_eq!(
            levels(&directories[..1]),
            [FindingLevel::Fail, FindingLevel::Fail]
        );
    }
}
