//! The programs of the built-in runtime. They are looked up when the runtime starts, not when a file is checked, because
//! the check may run on another machine.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::handlers::implied_default;
use super::{Handler, Runtime};

/// The handlers if none is configured, the default first.
pub(super) const USUAL: [&str; 2] = ["runc", "crun"];

/// The file name of the shim.
const SHIM: &str = "criscope-shim";

/// A required program is missing.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramError {
    /// No handler is configured, and none of the default ones is installed.
    #[error(
        "there is no OCI runtime on PATH; install runc or crun, or name one in [runtime.handlers.NAME]"
    )]
    NoRuntime,
    /// The program of a configured handler.
    #[error("the {kind} of handler {handler}, {}, is not there or cannot be executed", .program.display())]
    NoHandler {
        /// The kind of program.
        kind: &'static str,
        /// The handler.
        handler: String,
        /// The path or name that was looked up.
        program: PathBuf,
    },
    /// The shim.
    #[error("{}, which stays with each pod, is not there or cannot be executed; install it beside criscope, or set runtime.shim", .0.display())]
    NoShim(PathBuf),
}

/// The usable handlers.
#[derive(Debug, PartialEq)]
pub struct HandlerPrograms {
    /// Each with its program: the OCI runtime, or the shim of containerd.
    pub handlers: Vec<(Handler, PathBuf)>,
    /// The default, one of them.
    pub default: String,
    /// Configured handlers without a program: only pods that request one of them fail.
    pub missing: Vec<ProgramError>,
}

impl Runtime {
    /// Finds the programs of the handlers; `search` is a list of directories like `PATH`.
    ///
    /// # Errors
    /// If no handler is configured and none of the default ones is installed, or the program of the default is missing.
    pub fn handler_programs(&self, search: &OsStr) -> Result<HandlerPrograms, ProgramError> {
        let mut handlers = Vec::new();
        let mut missing = Vec::new();
        for handler in self.configured_or_usual() {
            match program_of(&handler, search) {
                Ok(program) => handlers.push((handler, program)),
                Err(error) => missing.push(error),
            }
        }
        if self.usual_besides.0 {
            if handlers.is_empty() && missing.iter().all(|error| self.is_optional(error)) {
                return Err(ProgramError::NoRuntime);
            }
            missing.retain(|error| !self.is_optional(error));
        }
        let default = match (&self.default_handler, self.handlers.as_slice()) {
            (Some(name), _) => name.clone(),
            (None, _) if self.usual_besides.0 => match handlers.first() {
                Some((handler, _)) => handler.name.clone(),
                None => return Err(missing.swap_remove(0)),
            },
            (None, configured) => implied_default(configured).to_owned(),
        };
        if !handlers.iter().any(|(handler, _)| handler.name == default) {
            let mut missing = missing.into_iter();
            let of_default = missing.find(|error| {
                matches!(error, ProgramError::NoHandler { handler, .. } if *handler == default)
            });
            return Err(of_default.unwrap_or(ProgramError::NoRuntime));
        }
        Ok(HandlerPrograms {
            handlers,
            default,
            missing,
        })
    }

    fn configured_or_usual(&self) -> Vec<Handler> {
        let mut handlers = Vec::new();
        if self.usual_besides.0 {
            for name in USUAL {
                let configured = self.handlers.iter().find(|handler| handler.name == name);
                handlers.push(
                    configured
                        .cloned()
                        .unwrap_or_else(|| Handler::defaults(name)),
                );
            }
        }
        let others = self.handlers.iter();
        let others: Vec<_> = others
            .filter(|one| !handlers.contains(one))
            .cloned()
            .collect();
        handlers.extend(others);
        handlers
    }

    /// Returns whether this is one of the default handlers, which need not be installed.
    fn is_optional(&self, missing: &ProgramError) -> bool {
        let ProgramError::NoHandler { handler, .. } = missing else {
            return false;
        };
        USUAL.contains(&handler.as_str())
            && self.default_handler.as_ref() != Some(handler)
            && !self
                .handlers
                .iter()
                .any(|configured| configured.name == *handler)
    }

    /// The state directory of the OCI runtime of a handler.
    #[must_use]
    pub fn handler_root(&self, handler: &Handler) -> PathBuf {
        let root = handler.root.clone();
        root.unwrap_or_else(|| self.state.join("oci").join(&handler.name))
    }

    /// Finds `criscope-shim`: as configured, else next to the program `own`, else in `search`.
    ///
    /// # Errors
    /// If it is in none of these places.
    pub fn shim_program(&self, own: &Path, search: &OsStr) -> Result<PathBuf, ProgramError> {
        if let Some(shim) = &self.shim {
            return find(shim, search).ok_or_else(|| ProgramError::NoShim(shim.clone()));
        }
        find(&own.with_file_name(SHIM), search)
            .or_else(|| find(Path::new(SHIM), search))
            .ok_or_else(|| ProgramError::NoShim(SHIM.into()))
    }
}

/// Finds the program of a handler: its OCI runtime or its shim of containerd. What runc's shim calls must be there too.
fn program_of(handler: &Handler, search: &OsStr) -> Result<PathBuf, ProgramError> {
    let Some(shim) = handler.containerd_shim() else {
        return find_for(handler, "OCI runtime", handler.program(), search);
    };
    let program = find_for(handler, "shim of containerd", &shim, search)?;
    if handler.has_runc_shim() {
        find_for(handler, "OCI runtime", handler.called_by_shim(), search)?;
    }
    Ok(program)
}

fn find_for(
    handler: &Handler,
    kind: &'static str,
    program: &Path,
    search: &OsStr,
) -> Result<PathBuf, ProgramError> {
    find(program, search).ok_or_else(|| ProgramError::NoHandler {
        kind,
        handler: handler.name.clone(),
        program: program.to_owned(),
    })
}

/// Finds the program with this path, or with this name in one of the directories.
fn find(program: &Path, search: &OsStr) -> Option<PathBuf> {
    if program.is_absolute() {
        return can_run(program).then(|| program.to_owned());
    }
    env::split_paths(search)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|path| can_run(path))
}

fn can_run(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
