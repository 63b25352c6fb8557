//! Names the OCI runtimes of handlers that have known security faults.

use super::super::output::ReportFinding;
use super::oci_runtimes::HandlerRuntime;

const TOPIC: &str = "runtime";

/// A warning for each handler whose OCI runtime has a version with known faults. Not a failure: distributions mend faults without a new
/// number.
pub(super) fn check(runtimes: &[HandlerRuntime]) -> Vec<ReportFinding> {
    let findings = runtimes.iter().filter_map(|found| {
        let version = &found.version;
        let mended = version.mended_in()?;
        let text = format!(
            "handler {}: {} is {} {}, which has known vulnerabilities that let a container reach the node",
            found.handler,
            found.program.display(),
            version.name,
            version.version,
        );
        let hint = format!(
            "update {} to {mended}, or check that your distribution has fixed them (docs/THREATS.md lists the advisories)",
            version.name
        );
        Some(ReportFinding::warn(TOPIC, text).hint(hint))
    });
    findings.collect()
}
