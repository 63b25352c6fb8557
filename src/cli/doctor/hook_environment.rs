//! Checks whether the OCI runtimes of handlers give hooks the environment of the image.

use super::super::output::ReportFinding;
use super::oci_runtimes::HandlerRuntime;

const TOPIC: &str = "hooks";
const HINT: &str = "update runc to 1.3; criscope gives every hook an environment, but does not see hooks that a program between it and runc adds, such as nvidia-container-runtime";

/// A warning for each handler whose OCI runtime does.
pub(super) fn check(runtimes: &[HandlerRuntime]) -> Vec<ReportFinding> {
    let affected = runtimes
        .iter()
        .filter(|found| found.version.gives_hooks_the_image_environment());
    let findings = affected.map(|found| {
        let text = format!(
            "handler {}: {} is runc {}, which gives createContainer hooks without env the environment of the image, and runs them as root on the node (the class of CVE-2025-23266)",
            found.handler,
            found.program.display(),
            found.version.version,
        );
        ReportFinding::warn(TOPIC, text).hint(HINT)
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use criscope_testkit::executable::executable;

    use super::super::super::output::FindingLevel;
    use super::super::oci_faults;
    use super::super::oci_runtimes::oci_runtimes;
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
        let asked = dir.path().join("asked");
        let program = |name: &str, says: &str| {
            let path = dir.path().join(name);
            // Replaced, not rewritten: the kernel refuses to write to a program that runs.
            let _ = fs::remove_file(&path);
            let script = format!(
                "#!/bin/sh\necho {name} >>{}\necho \"{says}\"\n",
                asked.display()
            );
            executable(&path, &script);
        };
        for shim in ["containerd-shim-runc-v2", "containerd-shim-kata-v2"] {
            program(shim, "runc version 1.0.0");
        }
        program("crun", "crun version 1.8.1");
        program("runc", "runc version 1.1.5+ds1");
        let runtimes = oci_runtimes(&runtime, search);
        let found = check(&runtimes);
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
        // Two handlers have runc, and two checks look at it.
        assert_eq!(oci_faults::check(&runtimes).len(), 3);
        let asked = fs::read_to_string(&asked).expect("what was asked");
        let mut asked: Vec<_> = asked.lines().collect();
        asked.sort_unstable();
        assert_eq!(asked, ["crun", "runc"]);
        program("runc", "runc version 1.3.3");
        assert_eq!(check(&oci_runtimes(&runtime, search)), []);
    }
}
