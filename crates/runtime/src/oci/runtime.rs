//! The command line of the OCI runtime: runc, crun, or any other one with the same interface.
//!
//! The pod's shim creates containers, because they must be its children. All other calls are made here: with limits on time and
//! output, with classified errors, and with `TRACEPARENT` in the environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_spec::runtime::LinuxResources;
use serde::{Deserialize, Serialize};

use super::containerd_shim::ShimOptions;
use super::error::OciError;
use super::exec::{self, Call, Fault, Finished};
use super::reason::reason;
use super::version::Version;
use crate::steps::traceparent;

/// The default timeout of a verb.
const RUNTIME_CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of bytes of a log file that are searched for an error.
const LOG_LIMIT: u64 = 64 << 10;

/// An OCI runtime: a program with its global options; or a shim of containerd in its place. The record of a sandbox contains that of its handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciRuntime {
    /// The program.
    pub path: PathBuf,
    /// The state directory (`--root`).
    pub root: PathBuf,
    /// True if systemd creates the cgroups (`--systemd-cgroup`).
    pub systemd_cgroup: bool,
    /// Additional global options, before the verb.
    pub options: Vec<String>,
    /// The timeout of a verb; 60 s by default.
    pub limit: Duration,
    /// Set if the program is a shim of containerd, which has none of the verbs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shim: Option<ShimOptions>,
}

/// The output of `state` (OCI runtime specification, "State").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct State {
    /// The id.
    pub id: String,
    /// `creating`, `created`, `running`, `paused` or `stopped`.
    pub status: String,
    /// The pid of the init process; 0 without one.
    #[serde(default)]
    pub pid: u32,
    /// The bundle.
    #[serde(default)]
    pub bundle: PathBuf,
}

impl OciRuntime {
    /// A runtime with default options.
    pub fn new(path: impl Into<PathBuf>, root: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            root: root.into(),
            systemd_cgroup: false,
            options: Vec::new(),
            limit: RUNTIME_CALL_TIMEOUT,
            shim: None,
        }
    }

    /// The arguments of a verb, after the global options.
    pub(super) fn argv(&self, log: Option<&Path>, verb: &[&str]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec!["--root".into(), self.root.clone().into()];
        if let Some(log) = log {
            argv.extend(["--log".into(), log.into()]);
            argv.extend(["--log-format".into(), "json".into()]);
        }
        if self.systemd_cgroup {
            argv.push("--systemd-cgroup".into());
        }
        argv.extend(self.options.iter().map(OsString::from));
        argv.extend(verb.iter().map(OsString::from));
        argv
    }

    /// Starts a created container.
    pub async fn start(&self, id: &str) -> Result<(), OciError> {
        self.verb("start", id, &["start", id], None).await?;
        Ok(())
    }

    /// Sends a signal to the init process, or with `all` to every process.
    pub async fn kill(&self, id: &str, signal: i32, all: bool) -> Result<(), OciError> {
        let number = signal.to_string();
        let mut verb = vec!["kill"];
        if all {
            verb.push("--all");
        }
        verb.extend([id, &number]);
        self.verb("kill", id, &verb, None).await?;
        Ok(())
    }

    /// Deletes a container. With `force` a running one is killed, and a missing one is not an error.
    pub async fn delete(&self, id: &str, force: bool) -> Result<(), OciError> {
        let verb: &[&str] = if force {
            &["delete", "--force", id]
        } else {
            &["delete", id]
        };
        match self.verb("delete", id, verb, None).await {
            Err(OciError::NotFound { .. }) if force => Ok(()),
            other => other.map(drop),
        }
    }

    /// The state of a container.
    pub async fn state(&self, id: &str) -> Result<State, OciError> {
        let done = self.verb("state", id, &["state", id], None).await?;
        answer("state", &done.stdout)
    }

    /// Changes the resources of a running or created container, except device rules, which never change.
    pub async fn update(&self, id: &str, resources: &LinuxResources) -> Result<(), OciError> {
        let mut resources = resources.clone();
        resources.set_devices(None);
        let json = serde_json::to_vec(&resources).map_err(|error| OciError::Answer {
            verb: "update",
            reason: error.to_string(),
        })?;
        let verb = ["update", "--resources", "-", id];
        self.verb("update", id, &verb, Some(&json)).await?;
        Ok(())
    }

    /// The output of `features`; [`OciError::Unsupported`] if the runtime does not have the verb.
    pub async fn features(&self) -> Result<serde_json::Value, OciError> {
        let argv = self.argv(None, &["features"]);
        let done = self.run("features", &argv, None).await?;
        if !done.status.success() {
            return Err(OciError::Unsupported {
                verb: "features",
                path: self.path.clone(),
            });
        }
        answer("features", &done.stdout)
    }

    /// The name and versions of the runtime.
    pub async fn version(&self) -> Result<Version, OciError> {
        let done = self.run("version", &["--version".into()], None).await?;
        let text = String::from_utf8_lossy(&done.stdout);
        Version::parse(&text).ok_or_else(|| OciError::Answer {
            verb: "version",
            reason: "no line with a version".to_owned(),
        })
    }

    /// Runs a verb on a container. Errors are read from stderr, as JSON lines or plain text.
    pub(super) async fn verb(
        &self,
        verb: &'static str,
        id: &str,
        words: &[&str],
        stdin: Option<&[u8]>,
    ) -> Result<Finished, OciError> {
        // The log goes to stderr, so that there is no file to remove or to leave behind when the process is killed.
        let argv = self.argv(Some(Path::new("/dev/stderr")), words);
        let done = self.run(verb, &argv, stdin).await?;
        if done.status.success() {
            Ok(done)
        } else {
            let message = reason(&done.stderr);
            Err(OciError::classify(
                verb,
                id,
                done.status.to_string(),
                message,
            ))
        }
    }

    pub(super) async fn run(
        &self,
        verb: &'static str,
        argv: &[OsString],
        stdin: Option<&[u8]>,
    ) -> Result<Finished, OciError> {
        let call = Call {
            stdin,
            ..self.call(argv)
        };
        self.finished(verb, call).await
    }

    /// A call of the program.
    pub(super) fn call<'a>(&'a self, args: &'a [OsString]) -> Call<'a> {
        Call {
            path: &self.path,
            args,
            dir: None,
            env: &[],
            stdin: None,
            limit: self.limit,
        }
    }

    pub(super) async fn finished(
        &self,
        verb: &'static str,
        call: Call<'_>,
    ) -> Result<Finished, OciError> {
        let trace = traceparent().map(|trace| ("TRACEPARENT".to_owned(), trace));
        let env: Vec<_> = call.env.iter().cloned().chain(trace).collect();
        exec::run(Call { env: &env, ..call })
            .await
            .map_err(|fault| match fault {
                Fault::Start(source) => OciError::Start {
                    path: self.path.clone(),
                    source,
                },
                Fault::Wait(source) => OciError::Io {
                    path: self.path.clone(),
                    source,
                },
                Fault::Timeout => OciError::Timeout {
                    verb,
                    after: self.limit,
                },
            })
    }
}

/// The error of a verb that writes a log, from the file and stderr.
pub fn failure_of(
    verb: &'static str,
    id: &str,
    status: &str,
    log: &Path,
    stderr: &[u8],
) -> OciError {
    use std::io::Read as _;
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open(log) {
        // If the log cannot be read, only stderr is used.
        let _unreadable = file.take(LOG_LIMIT).read_to_end(&mut text);
    }
    text.push(b'\n');
    text.extend_from_slice(stderr);
    OciError::classify(verb, id, status.to_owned(), reason(&text))
}

fn answer<T: serde::de::DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<T, OciError> {
    serde_json::from_slice(json).map_err(|error| OciError::Answer {
        verb,
        reason: error.to_string(),
    })
}
