//! OCI runtimes and their shims: recognition and commands. Wrappers of an OCI runtime may have any name: they are recognised
//! by their command line.

use super::proc::ProcessComm;

/// Programs with the OCI runtime's command line.
const OCI_RUNTIMES: &[&str] = &[
    "runc",
    "crun",
    "youki",
    "runsc",
    "kata-runtime",
    "nvidia-container-runtime",
    "sysbox-runc",
];

/// The comm of containerd's shims, which stay with a pod and start the runtime. `containerd-shim-runc-v2` and its variants
/// share these 15 characters, the length of a comm.
const SHIM_COMM: &str = "containerd-shim";
/// Programs that stay with a container and start the runtime.
const MONITORS: &[&str] = &["conmon", "conmonrs"];

criscope_cri::named! {
    /// Commands of the runtime (OCI runtime command line interface), and of a shim (containerd's `core/runtime/v2/README`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum OciCommand {
        Create = "create",
        Start = "start",
        Run = "run",
        Kill = "kill",
        Delete = "delete",
        Exec = "exec",
        State = "state",
    }
}

impl OciCommand {
    fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.name().as_bytes() == word)
    }
}

/// Returns whether a process may be the OCI runtime, or a shim started for one command.
pub(super) fn is_runtime(comm: &ProcessComm) -> bool {
    OCI_RUNTIMES.iter().any(|name| comm.is(name)) || is_shim(comm)
}

/// Returns whether a process is a long-running shim or monitor.
pub(super) fn is_monitor(comm: &ProcessComm) -> bool {
    is_shim(comm) || MONITORS.iter().any(|name| comm.is(name))
}

/// Returns whether a process is the shim of a pod of the built-in runtime.
pub(super) fn is_own_shim(comm: &ProcessComm) -> bool {
    comm.is("criscope-shim")
}

fn is_shim(comm: &ProcessComm) -> bool {
    comm.is(SHIM_COMM)
}

/// Parses a command line: returns the command if it is a known one, and passes each argument and each part of a path to
/// `is_id`. Keeps nothing of the command line.
pub(super) fn read(cmdline: &[u8], mut is_id: impl FnMut(&[u8])) -> Option<OciCommand> {
    let mut command = None;
    for arg in cmdline.split(|b| *b == 0).skip(1) {
        if command.is_none() {
            command = OciCommand::parse(arg);
        }
        for part in arg.split(|b| matches!(b, b'/' | b'=')) {
            if !part.is_empty() {
                is_id(part);
            }
        }
    }
    command
}

/// Options of OCI runtimes before the command whose value is the next argument (the command lines of runc and crun).
const OPTIONS_WITH_VALUE: &[&[u8]] = &[
    b"root",
    b"log",
    b"log-format",
    b"criu",
    b"rootless",
    b"cgroup-manager",
];

/// Options that only an OCI runtime has.
const OCI_ONLY_OPTIONS: &[&[u8]] = &[b"root", b"bundle", b"b", b"pid-file", b"console-socket"];

/// The command of an OCI runtime under any program name, recognised by its options, a known command, and at least one option
/// that other programs do not have. Keeps nothing of the command line.
pub(super) fn read_wrapper(cmdline: &[u8]) -> Option<OciCommand> {
    let mut args = cmdline
        .split(|b| *b == 0)
        .skip(1)
        .filter(|arg| !arg.is_empty());
    let mut command = None;
    let mut own = false;
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix(b"-") else {
            // A script that is interpreted comes before its arguments.
            match OciCommand::parse(arg) {
                Some(found) if command.is_none() => command = Some(found),
                None if command.is_none() && !arg.starts_with(b"/") => return None,
                _ => {}
            }
            continue;
        };
        let flag = flag.strip_prefix(b"-").unwrap_or(flag);
        let (name, has_value) = match flag.iter().position(|b| *b == b'=') {
            Some(at) => (&flag[..at], true),
            None => (flag, false),
        };
        own |= OCI_ONLY_OPTIONS.contains(&name);
        if command.is_none() && !has_value && OPTIONS_WITH_VALUE.contains(&name) {
            args.next();
        }
    }
    command.filter(|_| own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_is_known_by_its_arguments() {
        let command = |args: &[&str]| read_wrapper(args.join("\0").as_bytes());
        let wrapper = [
            "acme-runtime",
            "--root",
            "/run/x",
            "--log-format",
            "json",
            "create",
            "--bundle",
            "/b",
            "ab",
        ];
        assert_eq!(command(&wrapper), Some(OciCommand::Create));
        let script = [
            "/bin/sh",
            "/usr/bin/wrap",
            "--root=/run/x",
            "--systemd-cgroup",
            "start",
            "ab",
        ];
        assert_eq!(command(&script), Some(OciCommand::Start));
        for other in [
            &["mysqld", "--root", "start"][..],
            &["app", "create", "ab"],
            &["app", "serve", "--root", "/x", "create"],
            &["acme-runtime", "--root", "/run/x", "--version"],
            &[],
        ] {
            assert_eq!(command(other), None, "{other:?}");
        }
    }

    fn found(cmdline: &[&str], id: &str) -> (Option<OciCommand>, bool) {
        let mut found = false;
        let command = read(cmdline.join("\0").as_bytes(), |part| {
            found |= part == id.as_bytes();
        });
        (command, found)
    }

    #[test]
    fn commands_and_ids_are_found() {
        let runc = [
            "runc",
            "--root",
            "/run/containerd/runc/k8s.io",
            "--log-format",
            "json",
            "create",
            "--bundle",
            "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c0ffee",
            "c0ffee",
        ];
        assert_eq!(found(&runc, "c0ffee"), (Some(OciCommand::Create), true));
        assert_eq!(found(&runc, "c0ff"), (Some(OciCommand::Create), false));
        let crio = ["crun", "--systemd-cgroup", "start", "abc"];
        assert_eq!(found(&crio, "abc"), (Some(OciCommand::Start), true));
        let only_bundle = ["runc", "run", "--bundle=/run/x/abc/userdata"];
        assert_eq!(found(&only_bundle, "abc"), (Some(OciCommand::Run), true));
        let shim = [
            "containerd-shim-runc-v2",
            "-namespace",
            "k8s.io",
            "-id",
            "s1",
        ];
        assert_eq!(found(&shim, "s1"), (None, true));
        assert_eq!(
            found(&["abc"], "abc"),
            (None, false),
            "its own name is none"
        );
        assert_eq!(found(&[], ""), (None, false));
    }

    #[test]
    fn programs_are_known() {
        assert!(is_runtime(&ProcessComm::new(b"runc")));
        assert!(!is_runtime(&ProcessComm::new(b"runc:[2:INIT]")));
        assert!(
            is_monitor(&ProcessComm::new(b"containerd-shim"))
                && is_monitor(&ProcessComm::new(b"conmon"))
        );
        assert!(
            !is_monitor(&ProcessComm::new(b"containerd"))
                && !is_runtime(&ProcessComm::new(b"containerd"))
        );
    }
}
