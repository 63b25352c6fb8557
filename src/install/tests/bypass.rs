//! The bypass: which nodes get it, and how it is turned off.

use std::path::Path;

use super::fixtures::{CRIO, KUBEADM};
use super::node::Node;
use crate::install::bypass::{BYPASS_DROP_IN, BYPASS_UNIT, InstalledBypass};
use crate::install::config::CONFIG_PATH;
use crate::install::{InstallMode, InstallOptions, InstallPlan};

const PROXY: &str = "/usr/lib/systemd/systemd-socket-proxyd";

/// A second runtime, which is not the kubelet's.
const TWO_BACKENDS: &str = "[routing]\ndefault = \"a\"\n[backends.a]\nkind = \"upstream\"\nendpoint = \"unix:///run/containerd/containerd.sock\"\n\
    [backends.b]\nkind = \"upstream\"\nendpoint = \"unix:///run/other.sock\"\n";

fn install_with(node: &Node, mode: InstallMode, bypass: Option<bool>) -> InstallPlan {
    let options = InstallOptions {
        bypass,
        ..node.options(mode)
    };
    let plan = InstallPlan::make(&node.root, node, &options).expect("a plan");
    node.installer().install(&plan).expect("installed");
    plan
}

#[test]
fn a_node_in_front_of_a_runtime_has_a_bypass_to_it() {
    for (fixture, mode, runtime) in [
        (
            KUBEADM,
            InstallMode::Front,
            "/run/containerd/containerd.sock",
        ),
        (
            KUBEADM,
            InstallMode::TakeOver,
            "/run/containerd/containerd.upstream.sock",
        ),
        (CRIO, InstallMode::Front, "/run/crio/crio.sock"),
    ] {
        let node = Node::new(&fixture);
        node.write(PROXY, "");
        let original = node.files();
        let plan = install_with(&node, mode, None);
        assert_eq!(plan.notes.iter().find(|note| note.contains("bypass")), None);
        let bypass = InstalledBypass::read(&node.root).expect("a bypass");
        assert_eq!(bypass.runtime, Path::new(runtime), "{}", fixture.name);
        assert_eq!(bypass.program, Path::new(PROXY));
        assert!(node.plan(mode).expect("a plan").is_empty());
        node.uninstall().expect("uninstalled");
        assert_eq!(node.files(), original, "{}", fixture.name);
    }
}

#[test]
fn a_bypass_that_was_turned_off_stays_off_until_it_is_turned_on() {
    let node = Node::new(&KUBEADM);
    node.write(PROXY, "");
    install_with(&node, InstallMode::Front, None);
    install_with(&node, InstallMode::Front, Some(false));
    assert_eq!(InstalledBypass::read(&node.root), None);
    let again = node.plan(InstallMode::Front).expect("a plan");
    assert!(again.is_empty(), "{:?}", again.edits);
    install_with(&node, InstallMode::Front, Some(true));
    assert!(InstalledBypass::read(&node.root).is_some());
}

/// systemd sets the flag of the socket at each start of a service that has it, so they have to agree (systemd.service(5), `NonBlocking=`).
/// Otherwise the bypass stops in accept(2) when criscope took the connection.
#[test]
fn no_service_makes_the_common_socket_blocking() {
    for mode in [InstallMode::Front, InstallMode::Runtime] {
        let node = Node::new(&KUBEADM);
        node.write(PROXY, "");
        node.write("/download/criscope-shim", "shim");
        install_with(&node, mode, None);
        let services = ["criscope.service", BYPASS_UNIT];
        let units = services.map(|name| node.read(&format!("/etc/systemd/system/{name}")));
        assert_eq!(units[1].is_some(), mode == InstallMode::Front);
        for unit in units.into_iter().flatten() {
            assert!(unit.lines().any(|line| line == "NonBlocking=yes"), "{unit}");
        }
    }
}

/// systemd lists a unit that failed even when its file is gone.
#[test]
fn an_uninstallation_in_a_crash_loop_leaves_no_failed_unit() {
    let node = Node::new(&KUBEADM);
    node.install(InstallMode::Front).expect("installed");
    let service = "criscope.service".to_owned();
    node.limited.borrow_mut().insert(service);
    node.uninstall().expect("uninstalled");
    assert!(node.limited.borrow().is_empty());
}

#[test]
fn a_node_that_cannot_have_a_bypass_is_told_why() {
    let node = Node::new(&KUBEADM);
    let plan = install_with(&node, InstallMode::Front, None);
    let told = plan
        .notes
        .iter()
        .any(|note| note.contains("systemd-socket-proxyd is not installed"));
    assert!(told, "{:?}", plan.notes);
    assert!(!node.root.has(format!("/etc/systemd/system/{BYPASS_UNIT}")));

    let node = Node::new(&KUBEADM);
    node.write(PROXY, "");
    node.write(CONFIG_PATH, TWO_BACKENDS);
    let plan = node.plan(InstallMode::Front).expect("a plan");
    let told = plan
        .notes
        .iter()
        .any(|note| note.contains("criscope has 2 backends"));
    assert!(told, "{:?}", plan.notes);
    let units = plan
        .edits
        .iter()
        .filter(|edit| edit.path.ends_with(BYPASS_UNIT));
    assert_eq!(
        units.count() + usize::from(node.root.has(BYPASS_DROP_IN)),
        0
    );
}
