//! The OCI runtime by its command line: runc, crun, or any other that follows the same one.
//!
//! The daemon makes no container itself: [`OciRuntime::create_command`] says what is to be run, and the pod's shim runs it,
//! because the container must be its child. Everything else is a call of this module: bounded in time and output, with
//! errors told apart, and `TRACEPARENT` for the runtime.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_spec::runtime::LinuxResources;
use serde::{Deserialize, Serialize};

use super::error::OciError;
use super::exec::{self, Fault, Finished};
use super::reason::reason;
use crate::runtime::steps::traceparent;

/// How long a verb may take before it is killed.
const LIMIT: Duration = Duration::from_secs(60);
/// The most of a log file that is read for an error.
const LOG_LIMIT: u64 = 64 << 10;

/// One OCI runtime: a program and how it is called. A sandbox's record keeps that of its handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciRuntime {
    /// The program.
    pub path: PathBuf,
    /// Where it keeps its state (`--root`).
    pub root: PathBuf,
    /// cgroups are made by systemd (`--systemd-cgroup`).
    pub systemd_cgroup: bool,
    /// More global options, before the verb.
    pub options: Vec<String>,
    /// How long a verb may take; 60 s by [`OciRuntime::new`].
    pub limit: Duration,
}

/// How a container is created.
#[derive(Debug, Clone, Default)]
pub struct Create {
    /// The directory with `config.json`.
    pub bundle: PathBuf,
    /// Where the runtime writes the pid of the first process.
    pub pid_file: PathBuf,
    /// Where it writes its log, as JSON lines; see [`reason()`].
    pub log: PathBuf,
    /// The socket it sends the terminal to, when the specification wants one.
    pub console_socket: Option<PathBuf>,
    /// Do not pivot the root (a node that boots from a ram disk).
    pub no_pivot: bool,
    /// Leave the session keyring alone.
    pub no_new_keyring: bool,
}

/// How a process is executed in a running container.
#[derive(Debug, Clone, Default)]
pub struct Exec {
    /// The file with the process, as JSON; see [`super::spec::exec_process`].
    pub process: PathBuf,
    /// Where the runtime writes its pid.
    pub pid_file: PathBuf,
    /// Where it writes its log.
    pub log: PathBuf,
    /// The socket it sends the terminal to.
    pub console_socket: Option<PathBuf>,
}

/// What the runtime says of a container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct State {
    /// Its id.
    pub id: String,
    /// `creating`, `created`, `running`, `paused` or `stopped`.
    pub status: String,
    /// Its first process, 0 when it has none.
    #[serde(default)]
    pub pid: u32,
    /// Its bundle.
    #[serde(default)]
    pub bundle: PathBuf,
}

/// What the runtime says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    /// `runc` or `crun`, as the program says it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the specification it knows.
    pub spec: String,
}

impl OciRuntime {
    /// A runtime with default options.
    pub fn new(path: impl Into<PathBuf>, root: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            root: root.into(),
            systemd_cgroup: false,
            options: Vec::new(),
            limit: LIMIT,
        }
    }

    /// The program with its global options and a verb.
    fn argv(&self, log: Option<&Path>, verb: &[&str]) -> Vec<OsString> {
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

    /// The command that creates a container, program first. Whoever runs it becomes the parent of the container's runtime process:
    /// the pod's shim.
    pub fn create_command(&self, id: &str, create: &Create) -> Vec<OsString> {
        let mut argv = vec![self.path.clone().into()];
        argv.extend(self.argv(Some(&create.log), &["create", "--bundle"]));
        argv.push(create.bundle.clone().into());
        argv.extend(["--pid-file".into(), create.pid_file.clone().into()]);
        if let Some(socket) = &create.console_socket {
            argv.extend(["--console-socket".into(), socket.clone().into()]);
        }
        if create.no_pivot {
            argv.push("--no-pivot".into());
        }
        if create.no_new_keyring {
            argv.push("--no-new-keyring".into());
        }
        argv.push(id.into());
        argv
    }

    /// The command that executes a process in a running container and returns at once, program first.
    pub fn exec_command(&self, id: &str, exec: &Exec) -> Vec<OsString> {
        let mut argv = vec![self.path.clone().into()];
        argv.extend(self.argv(Some(&exec.log), &["exec", "--detach", "--process"]));
        argv.push(exec.process.clone().into());
        argv.extend(["--pid-file".into(), exec.pid_file.clone().into()]);
        if let Some(socket) = &exec.console_socket {
            argv.extend(["--console-socket".into(), socket.clone().into()]);
        }
        argv.push(id.into());
        argv
    }

    /// Creates a container here, without a shim: its streams are closed. For tools and tests.
    pub async fn create(&self, id: &str, create: &Create) -> Result<(), OciError> {
        let argv = self.create_command(id, create);
        let done = self.run("create", &argv[1..], None).await?;
        if done.status.success() {
            return Ok(());
        }
        Err(failure("create", id, &done, &create.log))
    }

    /// Starts a created container.
    pub async fn start(&self, id: &str) -> Result<(), OciError> {
        self.verb("start", id, &["start", id], None).await?;
        Ok(())
    }

    /// Sends a signal, to the first process or with `all` to every one.
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

    /// Deletes a container. With `force` a running one is killed, and one that is not there is no error.
    pub async fn delete(&self, id: &str, force: bool) -> Result<(), OciError> {
        let verb: &[&str] = match force {
            true => &["delete", "--force", id],
            false => &["delete", id],
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

    /// Changes the resources of a running or created container. Device rules are left out: they do not change.
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

    /// What the runtime can, as it says itself; [`OciError::Unsupported`] from one that has no such verb.
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
        let mut version = Version::default();
        for line in text.lines() {
            if let Some((name, number)) = line.split_once(" version ") {
                version.name = name.trim().to_owned();
                version.version = number.trim().to_owned();
            } else if let Some(spec) = line.strip_prefix("spec: ") {
                version.spec = spec.trim().to_owned();
            }
        }
        if version.name.is_empty() {
            return Err(OciError::Answer {
                verb: "version",
                reason: "no line with a version".to_owned(),
            });
        }
        Ok(version)
    }

    /// One verb on one container. What goes wrong is on stderr, as JSON lines or words.
    async fn verb(
        &self,
        verb: &'static str,
        id: &str,
        words: &[&str],
        stdin: Option<&[u8]>,
    ) -> Result<Finished, OciError> {
        // Its log goes to stderr: no file to make, read and remove, and none left behind by a kill.
        let argv = self.argv(Some(Path::new("/dev/stderr")), words);
        let done = self.run(verb, &argv, stdin).await?;
        match done.status.success() {
            true => Ok(done),
            false => {
                let message = reason(&done.stderr);
                Err(OciError::classify(
                    verb,
                    id,
                    done.status.to_string(),
                    message,
                ))
            }
        }
    }

    async fn run(
        &self,
        verb: &'static str,
        argv: &[OsString],
        stdin: Option<&[u8]>,
    ) -> Result<Finished, OciError> {
        let trace = traceparent().map(|trace| ("TRACEPARENT".to_owned(), trace));
        let environment: Vec<_> = trace.into_iter().collect();
        exec::run(&self.path, argv, &environment, stdin, self.limit)
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

/// Reads why a create or exec that someone else ran failed, from its log file and its stderr.
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
        // A log that cannot be read leaves stderr.
        let _unreadable = file.take(LOG_LIMIT).read_to_end(&mut text);
    }
    text.push(b'\n');
    text.extend_from_slice(stderr);
    OciError::classify(verb, id, status.to_owned(), reason(&text))
}

fn failure(verb: &'static str, id: &str, done: &Finished, log: &Path) -> OciError {
    failure_of(verb, id, &done.status.to_string(), log, &done.stderr)
}

fn answer<T: serde::de::DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<T, OciError> {
    serde_json::from_slice(json).map_err(|error| OciError::Answer {
        verb,
        reason: error.to_string(),
    })
}
