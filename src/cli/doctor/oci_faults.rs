//! Names the OCI runtimes of handlers that have known security faults.

use std::ffi::OsStr;

use super::super::output::ReportFinding;
use super::hook_environment::{oci_program, version};
use crate::config::Runtime;

const TOPIC: &str = "runtime";

/// A warning for each handler whose OCI runtime has a version with known faults. Not a failure: distributions mend faults without a new
/// number.
pub(super) fn check(runtime: &Runtime, search: &OsStr) -> Vec<ReportFinding> {
    let Ok(found) = runtime.handler_programs(search) else {
        return Vec::new();
    };
    let findings = found.handlers.iter().filter_map(|(handler, program)| {
        let program = oci_program(handler, program, search)?;
        let version = version(&program, search)?;
        let mended = version.mended_in()?;
        let text = format!(
            "handler {}: {} is {} {}, which has known vulnerabilities that let a container reach the node",
            handler.name,
            program.display(),
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
