//! Containers that the runtime cannot create or start.

use super::super::spec::{Container, linux, security};
use super::super::stage::Play;
use super::super::{Case, case};
use crate::prelude::*;

/// What has nothing to do with it.
const OTHERS: &str = "the kubelet took|the kubelet has made no call|kubelet: ; cni; the registry; cannot pull; nothing slow; keeps crashing";

/// A pod of a container with something in its configuration, of which two tries have failed.
async fn fails(it: Play, edit: fn(&mut v1::ContainerConfig)) -> String {
    let spec = it.spec(vec![Container::idle("app").with(edit)]);
    it.tell(spec, "two failures", |done| done.failed >= 2).await
}

async fn fails_by(it: Play, handler: &'static str) -> String {
    let mut spec = it.idle();
    spec.handler = handler;
    it.tell(spec, "two failures", |done| done.failed >= 2).await
}

fn runs(config: &mut v1::ContainerConfig, program: &str) {
    config.command = vec![program.to_owned()];
}

fn mount(source: &str) -> v1::Mount {
    v1::Mount {
        host_path: source.to_owned(),
        container_path: "/data".to_owned(),
        ..Default::default()
    }
}

/// What both runtimes have.
pub(super) fn common() -> Vec<Case> {
    vec![
        case(
            "oci: command not found",
            "app; cannot start; no-such-program; not in the image|not found",
            OTHERS,
            |it| fails(it, |config| runs(config, "/srv/no-such-program")),
        ),
        case(
            "oci: permission denied",
            "app; cannot start; /etc/passwd; may not be executed|permission denied",
            OTHERS,
            |it| fails(it, |config| runs(config, "/etc/passwd")),
        ),
        case(
            "oci: command is a directory",
            "app; cannot start; /etc; may not be executed|is a directory",
            OTHERS,
            |it| fails(it, |config| runs(config, "/etc")),
        ),
        case(
            "oci: not a program of this machine",
            // That it is one of another machine is said in its log only.
            "app; keeps; exit code",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; registry; cannot pull; nothing slow",
            |it| async move {
                let files = it.stage.root.join(format!("{}-files", it.pod));
                fs::create_dir_all(&files).expect("dir");
                executable(&files.join("run"), "\x7fELF of s390x");
                let mut spec = it.spec(vec![
                    Container::idle("app").with(|config| runs(config, "/srv/run")),
                ]);
                spec.volume = Some((files, "/srv"));
                it.tell(spec, "ends", |done| done.exited >= 3).await
            },
        ),
        case(
            "oci: directory mounted over a file",
            "app; cannot; /bin/busybox; directory is mounted over a file",
            OTHERS,
            |it| async move {
                let mut spec = it.idle();
                spec.volume = Some((it.stage.root.clone(), "/bin/busybox"));
                it.tell(spec, "two failures", |done| done.failed >= 2).await
            },
        ),
        case(
            "oci: mount below proc",
            "app; cannot; /proc",
            OTHERS,
            |it| async move {
                let mut spec = it.idle();
                spec.volume = Some((it.stage.root.clone(), "/proc/sys/srv"));
                it.tell(spec, "two failures", |done| done.failed >= 2).await
            },
        ),
        case(
            "oci: quota of a microsecond",
            "app; cannot; cpu; invalid argument|out of range|quota",
            OTHERS,
            |it| {
                fails(it, |config| {
                    let resources = linux(config).resources.get_or_insert_default();
                    (resources.cpu_period, resources.cpu_quota) = (100_000, 1);
                })
            },
        ),
        case(
            "oci: bad working directory",
            "app; cannot; /bin/busybox; not a directory|working directory",
            OTHERS,
            |it| {
                fails(it, |config| {
                    config.working_dir = "/bin/busybox/x".to_owned()
                })
            },
        ),
        case(
            "oci: no such user",
            "app; cannot create; passwd|no users found|unable to find user|has no user",
            OTHERS,
            |it| {
                fails(it, |config| {
                    security(config).run_as_username = "nosuchuser".to_owned()
                })
            },
        ),
        case(
            "oci: seccomp profile missing",
            "app; cannot create; /var/lib/kubelet/seccomp/none.json; no such file",
            OTHERS,
            |it| {
                fails(it, |config| {
                    security(config).seccomp = Some(v1::SecurityProfile {
                        profile_type: v1::security_profile::ProfileType::Localhost.into(),
                        localhost_ref: "/var/lib/kubelet/seccomp/none.json".to_owned(),
                    });
                })
            },
        ),
        case(
            "oci: seccomp profile forbids everything",
            "app; cannot start; before the command ran; seccomp",
            OTHERS,
            |it| async move {
                let profile = it.stage.root.join("forbids.json");
                let nothing = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}"#;
                fs::write(&profile, nothing).expect("profile");
                let mut spec = it.spec(vec![Container::idle("app").with(|config| {
                    let root = config.mounts[0].host_path.clone();
                    security(config).seccomp = Some(v1::SecurityProfile {
                        profile_type: v1::security_profile::ProfileType::Localhost.into(),
                        localhost_ref: format!("{root}/forbids.json"),
                    });
                })]);
                spec.volume = Some((it.stage.root.clone(), "/data"));
                it.tell(spec, "two failures", |done| done.failed >= 2).await
            },
        ),
        case(
            "oci: no such CPU",
            "app; cannot; cpuset.cpus; limit",
            OTHERS,
            |it| {
                fails(it, |config| {
                    let resources = linux(config).resources.get_or_insert_default();
                    resources.cpuset_cpus = "900".to_owned();
                })
            },
        ),
        case(
            "oci: device missing",
            "app; cannot create; /dev/nvidia7; no such file|not exist",
            OTHERS,
            |it| {
                fails(it, |config| {
                    config.devices = vec![v1::Device {
                        container_path: "/dev/nvidia7".to_owned(),
                        host_path: "/dev/nvidia7".to_owned(),
                        permissions: "rwm".to_owned(),
                    }];
                })
            },
        ),
        case(
            "oci: no such handler",
            "sandbox; cannot create; gvisor; handler|no runtime",
            OTHERS,
            |it| fails_by(it, "gvisor"),
        ),
    ]
}

/// What only the built-in runtime refuses, or tells.
pub(super) fn own() -> Vec<Case> {
    vec![case(
        "oci: wrapper fails",
        "app; cannot; nvidia-container-cli; driver not loaded",
        OTHERS,
        |it| fails_by(it, "wrapper"),
    )]
}

pub(in super::super) fn all() -> Vec<Case> {
    let mut all = common();
    all.extend([
        case(
            "oci: wrapper fails",
            // containerd does not pass on what it has printed.
            "app; cannot; nvidia-container-runtime",
            OTHERS,
            |it| fails_by(it, "wrapper"),
        ),
        case(
            "oci: bad mount source",
            "app; cannot create; /etc/hostname/volume; not a directory",
            OTHERS,
            |it| {
                fails(it, |config| {
                    config.mounts = vec![mount("/etc/hostname/volume")]
                })
            },
        ),
        case(
            "oci: memory limit too small",
            "app; cannot; memory",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni; cannot pull; nothing slow",
            |it| {
                fails(it, |config| {
                    let resources = linux(config).resources.get_or_insert_default();
                    resources.memory_limit_in_bytes = 4096;
                })
            },
        ),
        case(
            "oci: slow runtime",
            "runc; RunPodSandbox|StartContainer; ~2..6",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni plugin; cannot",
            |it| async move {
                let mut spec = it.idle();
                spec.handler = "slowrunc";
                it.tell_start(spec).await
            },
        ),
        case(
            "oci: runtime hangs",
            "runc; sandbox; ~4..9; 4 min",
            "the kubelet took|the kubelet has made no call|kubelet: ; cni plugin; cannot",
            |it| async move {
                let mut spec = it.idle();
                spec.handler = "hungrunc";
                let _pod = it.add(spec);
                it.line_after(6.0).await
            },
        ),
        case(
            "oci: runtime missing",
            "sandbox; cannot create; kata-runtime; missing on this node|no such file|not found",
            OTHERS,
            |it| fails_by(it, "norunc"),
        ),
    ]);
    all
}
