//! Whole installations on the files of real distributions, with a machine that does what those files say.

mod agent;
mod bypass;
mod fixtures;
mod identity;
mod node;
mod packaged;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::run::InstallError;
use super::takedown::RecoveryOutcome;
use super::{InstallMode, PlanError};
use fixtures::{
    ALL, CONTAINERD, CRIO, DROP_INS, Fixture, K3S, KUBEADM, KUBEADM_INSTANCE, MICROK8S, UNIT_FLAGS,
};
use node::{Node, PowerOff};

const OURS: &str = "/run/criscope/criscope.sock";

/// Modes and nodes that can have them.
fn everything() -> Vec<(Fixture, InstallMode)> {
    let mut all = Vec::from(ALL.map(|fixture| (fixture, InstallMode::Front)));
    all.push((KUBEADM, InstallMode::TakeOver));
    all.push((CRIO, InstallMode::TakeOver));
    all
}

fn endpoint(fixture: &Fixture, mode: InstallMode) -> PathBuf {
    let path = match (mode, fixture.name) {
        (InstallMode::TakeOver, _) => fixture.socket,
        (_, "CRI-O") => "/run/criscope/run/crio/crio.sock",
        _ => OURS,
    };
    path.into()
}

#[test]
fn every_distribution_and_back_to_the_same_bytes() {
    for (fixture, mode) in everything() {
        let node = Node::new(&fixture);
        let original = node.files();
        assert_eq!(
            node.works().expect("works"),
            Path::new(fixture.socket),
            "{}",
            fixture.name
        );
        node.install(mode)
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        assert_eq!(
            node.works().expect("works"),
            endpoint(&fixture, mode),
            "{}",
            fixture.name
        );
        let again = node.plan(mode).expect("a plan");
        assert!(again.is_empty(), "{}: {:?}", fixture.name, again.edits);
        node.boot(true);
        assert_eq!(
            node.works().expect("works"),
            endpoint(&fixture, mode),
            "{}",
            fixture.name
        );
        node.uninstall()
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        assert_eq!(
            node.works().expect("works"),
            Path::new(fixture.socket),
            "{}",
            fixture.name
        );
        assert_eq!(node.files(), original, "{}", fixture.name);
        assert!(matches!(node.uninstall(), Err(InstallError::NotInstalled)));
    }
}

/// Returns whether it was completed.
fn until_power_off(
    node: &Node,
    at: usize,
    what: impl FnOnce() -> Result<(), InstallError>,
) -> bool {
    node.points.set(0);
    node.power_off.set(Some(at));
    let result = catch_unwind(AssertUnwindSafe(what));
    node.power_off.set(None);
    match result {
        Ok(result) => {
            result.expect("success");
            true
        }
        Err(panic) => {
            assert!(panic.is::<PowerOff>(), "another panic");
            false
        }
    }
}

#[test]
fn power_off_at_any_step_of_an_installation() {
    let mut steps = 0;
    for (fixture, mode) in everything() {
        for at in 1.. {
            let node = Node::new(&fixture);
            let original = node.files();
            let done = until_power_off(&node, at, || node.install(mode));
            // Without the recovery unit, the old or the new configuration works.
            node.boot(false);
            node.works()
                .unwrap_or_else(|error| panic!("{} at {at}: {error}", fixture.name));
            node.boot(true);
            let socket = node
                .works()
                .unwrap_or_else(|error| panic!("{} at {at}: {error}", fixture.name));
            if done {
                break;
            }
            steps += 1;
            // What the recovery unit could not do, because it was not there yet, the next command does.
            node.installer().recover(false).expect("recovered");
            let installed = node.plan(mode).expect("a plan").is_empty();
            if installed {
                assert_eq!(socket, endpoint(&fixture, mode), "{} at {at}", fixture.name);
                node.uninstall().expect("uninstalled");
            } else {
                assert_eq!(
                    socket,
                    Path::new(fixture.socket),
                    "{} at {at}",
                    fixture.name
                );
            }
            assert_eq!(node.files(), original, "{} at {at}", fixture.name);
        }
    }
    assert!(steps > 200, "{steps} steps");
}

#[test]
fn power_off_at_any_step_of_taking_away() {
    for (fixture, mode) in everything() {
        for at in 1.. {
            let node = Node::new(&fixture);
            let original = node.files();
            node.install(mode).expect("installed");
            let done = until_power_off(&node, at, || node.uninstall());
            node.boot(false);
            node.works()
                .unwrap_or_else(|error| panic!("{} at {at}: {error}", fixture.name));
            node.boot(true);
            node.works()
                .unwrap_or_else(|error| panic!("{} at {at}: {error}", fixture.name));
            if done {
                break;
            }
            node.installer().recover(false).expect("recovered");
            if node.files() != original {
                // Only before anything was changed.
                node.uninstall()
                    .unwrap_or_else(|error| panic!("{} at {at}: {error}", fixture.name));
            }
            assert_eq!(node.files(), original, "{} at {at}", fixture.name);
        }
    }
}

#[test]
fn a_killed_command_is_undone_by_the_next() {
    for at in 1.. {
        let node = Node::new(&KUBEADM);
        let original = node.files();
        if until_power_off(&node, at, || node.install(InstallMode::Front)) {
            break;
        }
        // No boot: everything that ran still runs.
        let recovered = node.installer().recover(false).expect("recovered");
        if recovered != RecoveryOutcome::Completed {
            assert_eq!(
                node.works().expect("works"),
                Path::new(CONTAINERD),
                "at {at}"
            );
            assert_eq!(node.files(), original, "at {at}");
        }
    }
}

#[test]
fn what_does_not_work_is_taken_back() {
    for (fixture, mode) in everything() {
        let node = Node::new(&fixture);
        let original = node.files();
        *node.rejects.borrow_mut() =
            Some(endpoint(&fixture, mode)).filter(|_| mode == InstallMode::Front);
        node.broken_runtime.set(mode == InstallMode::TakeOver);
        let failed = node.install(mode);
        assert!(
            matches!(failed, Err(InstallError::RolledBack(_))),
            "{}: {failed:?}",
            fixture.name
        );
        assert_eq!(
            node.works().expect("works"),
            Path::new(fixture.socket),
            "{}",
            fixture.name
        );
        assert_eq!(node.files(), original, "{}", fixture.name);
    }
}

#[test]
fn a_criscope_that_does_not_work_never_reaches_the_kubelet() {
    let node = Node::new(&KUBEADM);
    node.broken_runtime.set(true);
    let failed = node.install(InstallMode::Front).expect_err("broken");
    assert_eq!(
        failed.to_string(),
        "not installed; every change was rolled back: the runtime does not answer at /run/criscope/criscope.sock: broken, after 20 s"
    );
    let log = node.log.borrow();
    assert!(!log.iter().any(|line| line.contains("kubelet")), "{log:?}");
}

#[test]
fn an_interrupt_takes_everything_back() {
    for at in 2..20 {
        let node = Node::new(&KUBEADM);
        let original = node.files();
        node.interrupt_at.set(Some(at));
        let failed = node.install(InstallMode::Front);
        assert!(
            matches!(failed, Err(InstallError::RolledBack(_))),
            "{failed:?}"
        );
        assert_eq!(node.files(), original, "at {at}");
        assert_eq!(node.works().expect("works"), Path::new(CONTAINERD));
    }
}

#[test]
fn a_new_version_is_installed_over_the_old_and_the_originals_stay() {
    let node = Node::new(&KUBEADM);
    let original = node.files();
    node.install(InstallMode::Front).expect("installed");
    node.write("/download/criscope", "program 2");
    node.log.borrow_mut().clear();
    // One that does not work leaves the old one.
    let installed = node.files();
    node.broken_runtime.set(true);
    assert!(node.install(InstallMode::Front).is_err());
    assert_eq!(node.files(), installed);
    node.broken_runtime.set(false);
    node.install(InstallMode::Front).expect("upgraded");
    assert_eq!(
        node.read("/usr/local/bin/criscope").as_deref(),
        Some("program 2")
    );
    let log = node.log.borrow().join("\n");
    assert!(!log.contains("kubelet"), "{log}");
    node.uninstall().expect("uninstalled");
    assert_eq!(node.files(), original);
}

#[test]
fn what_others_changed_since_is_kept() {
    let node = Node::new(&KUBEADM);
    node.install(InstallMode::Front).expect("installed");
    let flags = "/var/lib/kubelet/kubeadm-flags.env";
    let text = node
        .read(flags)
        .expect("there")
        .replace("pause:3.9", "pause:3.10");
    node.write(flags, &text);
    node.write("/etc/criscope/criscope.toml", "# mine\n");
    node.uninstall().expect("uninstalled");
    assert_eq!(
        node.read(flags).expect("there"),
        "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.10\"\n"
    );
    assert_eq!(
        node.read("/etc/criscope/criscope.toml").as_deref(),
        Some("# mine\n")
    );
    assert_eq!(node.works().expect("works"), Path::new(CONTAINERD));
}

#[test]
fn the_kubelets_files_change_in_one_value() {
    let changed = |fixture: &Fixture, path: &str| {
        let node = Node::new(fixture);
        node.install(InstallMode::Front).expect("installed");
        node.read(path).expect("there")
    };
    let of = |fixture: &Fixture, path: &str| {
        let mut files = fixture.files.iter();
        files
            .find(|(name, _)| *name == path)
            .expect("there")
            .1
            .to_owned()
    };
    let path = "/var/lib/kubelet/instance-config.yaml";
    for path in [path, "/var/lib/kubelet/config.yaml"] {
        assert_eq!(
            changed(&KUBEADM_INSTANCE, path),
            of(&KUBEADM_INSTANCE, path).replace("/var/run/containerd/containerd.sock", OURS)
        );
    }
    assert_eq!(
        changed(
            &DROP_INS,
            "/etc/kubernetes/kubelet/config.json.d/zz-criscope.conf"
        ),
        "# Written by `criscope install`; `criscope uninstall` removes it.\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/criscope/criscope.sock\n"
    );
    assert_eq!(
        changed(&K3S, "/etc/rancher/k3s/config.yaml.d/zz-criscope.yaml"),
        "# Written by `criscope install`; `criscope uninstall` removes it.\nkubelet-arg+:\n  - container-runtime-endpoint=unix:///run/criscope/criscope.sock\n"
    );
    let drop_in = changed(
        &UNIT_FLAGS,
        "/etc/systemd/system/kubelet.service.d/zz-criscope.conf",
    );
    let exec = "ExecStart=\nExecStart=/usr/bin/kubelet  --container-runtime-endpoint=unix:///run/criscope/criscope.sock  --image-service-endpoint=unix:///run/criscope/criscope.sock  --node-labels=\"a=b,c=100%%\"\n";
    assert!(drop_in.ends_with(exec), "{drop_in}");
    let path = "/var/snap/microk8s/current/args/kubelet";
    let old = "--container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock";
    assert_eq!(
        changed(&MICROK8S, path),
        of(&MICROK8S, path).replace(
            old,
            "--container-runtime-endpoint=unix:///run/criscope/criscope.sock"
        )
    );
}

#[test]
fn a_taken_over_containerd_keeps_the_socket_for_events() {
    let node = Node::new(&KUBEADM);
    node.write(
        "/etc/containerd/config.toml",
        "version = 3\n# why\n[grpc]\n  gid = 0\n",
    );
    node.install(InstallMode::TakeOver).expect("installed");
    assert_eq!(
        node.read("/etc/containerd/config.toml").expect("there"),
        "version = 3\n# why\n[grpc]\naddress = \"/run/containerd/containerd.upstream.sock\"\n  gid = 0\n\n[ttrpc]\naddress = \"/run/containerd/containerd.sock.ttrpc\"\n"
    );
    let refused = Node::new(&KUBEADM);
    refused.write("/etc/containerd/config.toml", "version = 4\n");
    let error = refused
        .plan(InstallMode::TakeOver)
        .expect_err("not known")
        .to_string();
    assert!(error.contains("version 4"), "{error}");
}

#[test]
fn a_dry_run_shows_every_change_and_makes_none() {
    let node = Node::new(&KUBEADM);
    node.write("/usr/lib/systemd/systemd-socket-proxyd", "");
    let original = node.files();
    let text = node
        .plan(InstallMode::Front)
        .expect("a plan")
        .show(&node.root)
        .expect("text");
    let tail = "\
--- /var/lib/kubelet/kubeadm-flags.env
+++ /var/lib/kubelet/kubeadm-flags.env
@@ -1 +1 @@
-KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.9\"
+KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/criscope/criscope.sock --pod-infra-container-image=registry.k8s.io/pause:3.9\"
$ systemctl restart kubelet.service
# note: kubeadm before 1.34 also keeps the socket in an annotation of the Node, which needs the API: kubectl annotate node NODE --overwrite kubeadm.alpha.kubernetes.io/cri-socket=unix:///run/criscope/criscope.sock
";
    assert!(text.ends_with(tail), "{text}");
    for part in [
        "# kubelet: kubelet.service uses unix:///run/containerd/containerd.sock (--container-runtime-endpoint in /var/lib/kubelet/kubeadm-flags.env)\n",
        "+endpoint = \"unix:///run/containerd/containerd.sock\"\n",
        "link /etc/systemd/system/multi-user.target.wants/criscope.service -> /etc/systemd/system/criscope.service\n",
        "$ systemctl start criscope.socket criscope.service\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(node.files(), original);
}

#[test]
fn what_is_not_certain_is_refused_before_anything_changes() {
    let refused = |files: &[(&str, &str)], fixture: &Fixture| {
        let node = Node::new(fixture);
        for (path, text) in files {
            node.write(path, text);
        }
        node.plan(InstallMode::Front)
            .expect_err("refused")
            .to_string()
    };
    let own = (
        "/etc/criscope/criscope.toml",
        "[backends.a]\nkind = \"upstream\"\nendpoint = \"/run/a.sock\"\n",
    );
    assert!(refused(&[own], &KUBEADM).contains("needs a backend with endpoint"));
    let invalid = ("/etc/criscope/criscope.toml", "[server]\nlisen = 1\n");
    assert!(refused(&[invalid], &KUBEADM).contains("lisen"));
    let invalid = ("/etc/rancher/k3s/config.yaml", "token: [secret\n");
    let text = refused(&[invalid], &K3S);
    assert!(
        text.contains("config.yaml: cannot be parsed") && !text.contains("secret"),
        "{text}"
    );
    let node = Node::new(&KUBEADM);
    node.pods.set(3);
    node.write("/download/criscope-shim", "shim");
    assert!(matches!(
        node.plan(InstallMode::Runtime),
        Err(PlanError::Pods { pods: 3, .. })
    ));
}

#[test]
fn as_the_runtime_and_back() {
    let node = Node::new(&KUBEADM);
    let original = node.files();
    assert!(matches!(
        node.plan(InstallMode::Runtime),
        Err(PlanError::NoShim(_))
    ));
    node.write("/download/criscope-shim", "shim");
    node.install(InstallMode::Runtime).expect("installed");
    assert_eq!(node.works().expect("works"), Path::new(OURS));
    let unit = node.read("/etc/systemd/system/criscope.service");
    let unit = unit.expect("there");
    assert!(unit.contains("KillMode=process"), "{unit}");
    assert!(matches!(
        node.plan(InstallMode::Front),
        Err(PlanError::Mode(_))
    ));
    node.pods.set(1);
    assert!(matches!(node.uninstall(), Err(InstallError::Pods(1))));
    node.pods.set(0);
    node.uninstall().expect("uninstalled");
    assert_eq!(node.files(), original);
}
