//! Runs a container with an OCI runtime: `true` of this node, on a root of read-only bind mounts. A program that is installed may
//! still refuse every container, for instance on a cgroup hierarchy that it does not know.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cgroups::CgroupSnapshot;

/// How long the container may take, and how long its removal.
const CONTAINER_TIMEOUT: Duration = Duration::from_secs(10);
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest error text, in bytes.
const MAX_ERROR_BYTES: usize = 300;

/// Directories and links of the node that a program needs.
const NODE_DIRECTORIES: [&str; 6] = ["bin", "lib", "lib32", "lib64", "sbin", "usr"];

/// An OCI runtime with the options that matter here.
#[derive(Debug)]
pub(super) struct TrialContainer<'a> {
    /// The program.
    pub(super) program: &'a Path,
    /// True if the runtime is called with `--systemd-cgroup`.
    pub(super) systemd_cgroup: bool,
    /// Further global options.
    pub(super) options: &'a [String],
    /// Where its directory is made.
    pub(super) temp: &'a Path,
    /// Where the hierarchies of cgroups are mounted.
    pub(super) cgroups: &'a Path,
}

/// Why the container did not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrialError {
    /// The bundle cannot be made.
    #[error("the trial could not be prepared: {0}")]
    Prepare(io::Error),
    /// This node has no program to run.
    #[error("this node has no /bin/true to try it with")]
    NoProgram,
    /// The program does not start.
    #[error("it does not start: {0}")]
    Start(io::Error),
    /// The container did not end in time.
    #[error("a container did not end within {CONTAINER_TIMEOUT:?}")]
    Late,
    /// A step failed.
    #[error("{0}")]
    Refused(String),
}

impl TrialContainer<'_> {
    /// Runs the container and removes it. Returns how long it took.
    pub(super) fn run(&self) -> Result<Duration, TrialError> {
        let argument = ["/bin/true", "/usr/bin/true"];
        let argument = argument.iter().find(|path| Path::new(path).exists());
        let argument = argument.ok_or(TrialError::NoProgram)?;
        let bundle = TrialBundle::make(self.temp, &spec(argument, self.systemd_cgroup))
            .map_err(TrialError::Prepare)?;
        let cgroups = CgroupSnapshot::before(self.cgroups);
        let result = self.verb(&bundle, &["run", "--bundle"], CONTAINER_TIMEOUT);
        // After success the container is gone already.
        if result.is_err() {
            let _ = self.verb(&bundle, &["delete", "--force"], REMOVAL_TIMEOUT);
        }
        cgroups.remove(&name());
        result
    }

    fn verb(
        &self,
        bundle: &TrialBundle,
        verb: &[&str],
        limit: Duration,
    ) -> Result<Duration, TrialError> {
        let errors = File::create(bundle.errors()).map_err(TrialError::Prepare)?;
        let mut command = Command::new(self.program);
        command.arg("--root").arg(bundle.state());
        if self.systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        command.args(self.options).args(verb);
        if verb.contains(&"--bundle") {
            command.arg(&bundle.0);
        }
        command.arg(name()).stdin(Stdio::null());
        let streams = errors.try_clone().map_err(TrialError::Prepare)?;
        command
            .stdout(Stdio::from(streams))
            .stderr(Stdio::from(errors));
        let began = Instant::now();
        let mut child = command.spawn().map_err(TrialError::Start)?;
        loop {
            match child.try_wait().map_err(TrialError::Start)? {
                Some(status) if status.success() => return Ok(began.elapsed()),
                Some(status) => {
                    let said = fs::read_to_string(bundle.errors()).unwrap_or_default();
                    return Err(TrialError::Refused(last_line(&said, &status.to_string())));
                }
                None if began.elapsed() >= limit => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(TrialError::Late);
                }
                None => sleep(POLL_INTERVAL),
            }
        }
    }
}

/// The container's id, and the last part of its cgroup.
fn name() -> String {
    format!("criscope-doctor-{}", id())
}

fn last_line(said: &str, status: &str) -> String {
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.unwrap_or(status);
    line[..line.floor_char_boundary(MAX_ERROR_BYTES)].to_owned()
}

/// The parts of the node's root that are directories, to be mounted.
fn parts() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let parts = NODE_DIRECTORIES
        .iter()
        .map(|part| (*part, Path::new("/").join(part)));
    parts.filter(|(_, path)| fs::symlink_metadata(path).is_ok())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// `config.json` (OCI runtime specification).
fn spec(program: &str, systemd: bool) -> Value {
    let mounts = parts().filter(|(_, path)| !is_link(path));
    let mounts = mounts.map(|(part, path)| {
        json!({
            "destination": format!("/{part}"), "type": "bind", "source": path,
            "options": ["rbind", "ro", "nosuid", "nodev"],
        })
    });
    let proc = json!({"destination": "/proc", "type": "proc", "source": "proc"});
    // Otherwise runtimes make devices in the root itself.
    let dev = json!({
        "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
        "options": ["nosuid", "mode=755", "size=64k"],
    });
    let namespaces = ["pid", "ipc", "uts", "mount", "network"];
    let cgroup = if systemd {
        format!("system.slice:criscope:{}", name())
    } else {
        format!("/{}", name())
    };
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "cwd": "/", "args": [program], "env": ["PATH=/usr/bin:/bin"],
            "user": {"uid": 0, "gid": 0}, "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": false},
        "hostname": "criscope-doctor",
        "mounts": mounts.chain([proc, dev]).collect::<Vec<_>>(),
        "linux": {
            "cgroupsPath": cgroup,
            "resources": {"pids": {"limit": 64}},
            "namespaces": namespaces.map(|kind| json!({"type": kind})),
        },
    })
}

/// The directory of a trial. It is removed piece by piece, never recursively: a mount that a runtime forgot must not be
/// followed.
struct TrialBundle(PathBuf);

impl TrialBundle {
    fn make(temp: &Path, spec: &Value) -> io::Result<Self> {
        let bundle = Self(Self::unused(temp));
        let mut private = DirBuilder::new();
        private.mode(0o700);
        private.create(&bundle.0)?;
        private.create(bundle.root())?;
        private.create(bundle.state())?;
        private.create(bundle.root().join("proc"))?;
        for (part, path) in parts() {
            let place = bundle.root().join(part);
            if is_link(&path) {
                symlink(fs::read_link(&path)?, place)?
            } else {
                private.create(&place)?
            }
        }
        fs::write(bundle.0.join("config.json"), spec.to_string())?;
        Ok(bundle)
    }

    /// A path that does not exist yet: one after the other is tried, and something may be left of the first.
    fn unused(temp: &Path) -> PathBuf {
        let mut paths = (0..100).map(|n| temp.join(format!("{}-{n}", name())));
        let unused = paths.find(|path| fs::symlink_metadata(path).is_err());
        unused.unwrap_or_else(|| temp.join(name()))
    }

    fn root(&self) -> PathBuf {
        self.0.join("rootfs")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn errors(&self) -> PathBuf {
        self.0.join("errors")
    }
}

impl Drop for TrialBundle {
    fn drop(&mut self) {
        for (part, _) in parts() {
            let place = self.root().join(part);
            let _ = if is_link(&place) {
                fs::remove_file(place)
            } else {
                fs::remove_dir(place)
            };
        }
        // Runtimes make these directories in the root for their own mounts.
        for made in ["proc", "dev", "sys"] {
            let _ = fs::remove_dir(self.root().join(made));
        }
        let _ = fs::remove_dir(self.root());
        let _ = fs::remove_dir(self.state().join(name()));
        let _ = fs::remove_dir(self.state());
        for file in ["config.json", "errors"] {
            let _ = fs::remove_file(self.0.join(file));
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use criscope_testkit::executable::executable;

    use super::*;

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("runtime");
        executable(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    }

    fn trial(text: &str) -> (Result<Duration, TrialError>, Vec<String>) {
        let dir = tempfile::tempdir().expect("a directory");
        let program = script(dir.path(), text);
        let [temp, cgroups] = ["temp", "cgroups"].map(|name| dir.path().join(name));
        for made in [&temp, &cgroups, &cgroups.join("memory")] {
            fs::create_dir(made).expect("made");
        }
        let trial = TrialContainer {
            program: &program,
            systemd_cgroup: false,
            options: &[],
            temp: &temp,
            cgroups: &cgroups,
        };
        let result = trial.run();
        fs::remove_dir(cgroups.join("memory")).expect("it existed before, and is empty");
        let left = [temp, cgroups].map(|dir| fs::read_dir(dir).expect("there").flatten());
        let left = left.into_iter().flatten();
        let left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
        (result, left.collect())
    }

    /// As crun does where a hierarchy is not mounted, whether the container ran or not.
    #[test]
    fn directories_in_place_of_cgroups_are_removed() {
        for code in [0, 1] {
            let (result, left) = trial(&format!(
                "for name; do :; done; cd \"${{0%/*}}/cgroups\"\n\
                 mkdir -p \"hugetlb/$name\" \"memory/$name\" \"$name\"; echo 1 > \"hugetlb/$name/cgroup.procs\"; exit {code}"
            ));
            assert_eq!(result.is_ok(), code == 0, "{result:?}");
            assert_eq!(left, [""; 0]);
        }
    }

    #[test]
    fn a_directory_that_another_program_uses_is_kept() {
        let (_, left) = trial("cd \"${0%/*}/cgroups\"; mkdir -p hugetlb/other");
        assert_eq!(left, ["hugetlb"]);
    }

    #[test]
    fn a_runtime_that_refuses_every_container_is_found_out() {
        let (result, left) = trial("echo 'cgroups: unknown hierarchy' >&2; exit 1");
        let error = result.expect_err("refused").to_string();
        assert_eq!(error, "cgroups: unknown hierarchy");
        assert_eq!(left, [""; 0]);
        let (result, left) = trial("exit 3");
        let error = result.expect_err("refused").to_string();
        assert!(error.contains('3'), "{error}");
        assert_eq!(left, [""; 0]);
    }

    #[test]
    fn a_runtime_that_takes_it_is_well() {
        let (result, left) = trial(
            "[ \"$1\" = --root ] && [ \"$3\" = run ] && [ -f \"$5/config.json\" ] && [ -d \"$5/rootfs/usr\" ]",
        );
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(left, [""; 0]);
    }
}
