//! The PID namespace of a pod whose containers share their processes. Its init must be as harmless as a pause container,
//! because a container with CAP_SYS_PTRACE or CAP_SYS_ADMIN can follow the links of `/proc/1`.
//!
//! The shim starts `criscope-shim pid-namespace`, which does everything that needs access to the node: it opens the pod's
//! user namespace, joins the others, and creates a mount namespace in which the mapped files of the program are read-only
//! (otherwise `/proc/1/exe` and `/proc/1/map_files` would lead to those of the node). From there it executes `criscope-shim
//! pod-init` ([`super::pod_init`]), which detaches from the node and then starts the init.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::SIGKILL;

use super::job::{Job, Purpose};
use super::protocol::{Answer, PidNamespace, RUNTIME, Runtime, SYSTEM, TIMEOUT};
use super::requests::{Result as Answered, failure, system};
use super::server::Shim;
use super::spawn::{NAME, SELF, last_words, pipe};
use super::{mapped, named, signal};

/// The name of the second stage.
pub(super) const POD_INIT: &str = "pod-init";

impl Shim {
    /// Creates the namespace unless the pod has one.
    pub(super) fn make_pid_namespace(
        &mut self,
        asked: (u64, u64),
        wanted: &PidNamespace,
    ) -> Answered {
        if self.pid_namespace != 0 {
            return Ok(Some(Answer::Pid(self.pid_namespace)));
        }
        let (words, said) = pipe(true).map_err(system)?;
        let (held, stdin) = pipe(false).map_err(system)?;
        let said_too = said.try_clone().map_err(system)?;
        self.pid_namespace_held = Some(held);
        let mut argv = vec![SELF.to_owned(), "pid-namespace".to_owned()];
        argv.extend(arguments(wanted));
        let runtime = Runtime {
            timeout_ms: 10_000,
            ..Runtime::default()
        };
        let child = [stdin.into(), said.into(), said_too.into()];
        let purpose = Purpose::PidNamespace;
        self.begin(asked, purpose, 0, &argv, &runtime, child, Some(words))?;
        Ok(None)
    }

    /// Handles the end of the helper, whose output is the pid of a confined init, or an error.
    pub(super) fn pid_namespace_made(&mut self, job: &mut Job, success: bool) -> Answered<Answer> {
        let words = job.words.take().map(last_words).unwrap_or_default();
        let init = words.parse().ok().filter(|pid| signal::is_child(*pid));
        match init.filter(|_| success) {
            Some(init) => {
                self.pid_namespace = init;
                Ok(Answer::Pid(init))
            }
            None => {
                self.pid_namespace_held = None;
                if let Some(init) = init {
                    let _ = signal::send(init, SIGKILL as i32);
                }
                let kind = match (job.timed_out, words.is_empty()) {
                    (true, _) => TIMEOUT,
                    (false, true) => SYSTEM,
                    (false, false) => RUNTIME,
                };
                Err(failure(kind, format!("PID namespace: {words}")))
            }
        }
    }
}

fn arguments(wanted: &PidNamespace) -> Vec<String> {
    let mut all = vec![
        format!("--uid={}", wanted.uid),
        format!("--gid={}", wanted.gid),
        format!("--oom={}", wanted.oom_score_adj),
    ];
    all.extend(option("users", &wanted.users));
    all.extend(option("label", &wanted.label));
    all.extend(option("mount-label", &wanted.mount_label));
    all.extend(wanted.join.iter().filter_map(|path| option("join", path)));
    all.extend(
        wanted
            .cgroups
            .iter()
            .filter_map(|dir| option("cgroup", dir)),
    );
    all.extend(wanted.groups.iter().map(|group| format!("--group={group}")));
    all
}

fn option(name: &str, value: &str) -> Option<String> {
    (!value.is_empty()).then(|| format!("--{name}={value}"))
}

/// The first stage; does not return on success.
pub(super) fn make(arguments: impl Iterator<Item = String>) -> io::Result<()> {
    let (mut users, mut join) = (None, Vec::new());
    let (mut cgroups, mut of_init) = (Vec::new(), Vec::new());
    for argument in arguments {
        match argument.split_once('=') {
            Some(("--users", path)) => users = Some(open(path)?),
            Some(("--join", path)) => join.push(open(path)?),
            Some(("--cgroup", dir)) => cgroups.push(dir.to_owned()),
            // Lowering the score below the shim's score fails without CAP_SYS_RESOURCE; a pause container also keeps its
            // score then.
            Some(("--oom", score)) => drop(fs::write("/proc/self/oom_score_adj", score)),
            Some(("--uid" | "--gid" | "--group" | "--label" | "--mount-label", _)) => {
                of_init.push(argument);
            }
            _ => return Err(io::Error::other(format!("unknown argument {argument}"))),
        }
    }
    for dir in &cgroups {
        let path = format!("{dir}/cgroup.procs");
        fs::write(&path, "0").map_err(|e| named(&path, &e))?;
    }
    for namespace in join {
        // The file determines the type of the namespace.
        setns(namespace, CloneFlags::empty())?;
    }
    unshare(CloneFlags::CLONE_NEWCGROUP | CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let program = fs::read_link(SELF)?;
    for path in mapped::files()? {
        write_protect(&path).map_err(|e| named(&path.display().to_string(), &e))?;
    }
    let mut command = Command::new(program);
    command.arg0(NAME).arg(POD_INIT).args(of_init).env_clear();
    if let Some(users) = users {
        // Passed as stderr: until it is entered, errors have no message.
        command.arg("--users").stderr(users);
    }
    Err(command.exec())
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(File::open(path).map_err(|e| named(path, &e))?.into())
}

/// Bind mounts a file over itself, read-only in this mount namespace.
fn write_protect(path: &Path) -> io::Result<()> {
    let none = None::<&str>;
    mount(Some(path), path, none, MsFlags::MS_BIND, none)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID;
    mount(none, path, none, flags, none)?;
    Ok(())
}
