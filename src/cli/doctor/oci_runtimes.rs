//! The OCI runtimes of handlers and their versions, asked once for all checks.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::app::OciVersion;
use crate::config::{Handler, Runtime};

/// The OCI runtime of a handler.
#[derive(Debug)]
pub(super) struct HandlerRuntime {
    /// The name of the handler.
    pub(super) handler: String,
    pub(super) program: PathBuf,
    pub(super) version: OciVersion,
}

/// The OCI runtimes of all handlers. Programs that are missing are reported with the runtime.
pub(super) fn oci_runtimes(runtime: &Runtime, search: &OsStr) -> Vec<HandlerRuntime> {
    let Ok(found) = runtime.handler_programs(search) else {
        return Vec::new();
    };
    let mut asked: Vec<(PathBuf, Option<OciVersion>)> = Vec::new();
    let mut runtimes = Vec::new();
    for (handler, program) in &found.handlers {
        let Some(program) = oci_program(handler, program, search) else {
            continue;
        };
        // Handlers mostly share their program.
        let known = asked.iter().find(|(known, _)| *known == program);
        let version = match known {
            Some((_, version)) => version.clone(),
            None => {
                let version = version(&program, search);
                asked.push((program.clone(), version.clone()));
                version
            }
        };
        runtimes.extend(version.map(|version| HandlerRuntime {
            handler: handler.name.clone(),
            program,
            version,
        }));
    }
    runtimes
}

/// The OCI runtime of a handler, which a shim of containerd may call. Other shims have hooks of their own.
fn oci_program(handler: &Handler, program: &Path, search: &OsStr) -> Option<PathBuf> {
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

fn version(program: &Path, search: &OsStr) -> Option<OciVersion> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .env("PATH", search)
        .stdin(Stdio::null());
    let output = command.output().ok()?;
    OciVersion::parse(&String::from_utf8_lossy(&output.stdout))
}
