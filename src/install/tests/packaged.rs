//! Nodes on which a package has put its configuration, which is for containerd at its usual socket.

use super::fixtures::{ALL, CONTAINERD, CRIO, KUBEADM};
use super::node::Node;
use super::{endpoint, everything};
use crate::config::{Config, FlagOverrides};
use crate::install::InstallMode;
use crate::install::config::{CONFIG_PATH, PACKAGED_CONFIG};

#[test]
fn the_configuration_of_a_package_is_replaced_where_it_does_not_fit() {
    let mut all = everything();
    all.push((KUBEADM, InstallMode::Runtime));
    for (fixture, mode) in all {
        let node = Node::new(&fixture);
        node.write(CONFIG_PATH, PACKAGED_CONFIG);
        node.write("/download/criscope-shim", "shim");
        let original = node.files();
        node.install(mode)
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        if mode != InstallMode::Runtime {
            let used = node.works().expect("works");
            assert_eq!(used, endpoint(&fixture, mode), "{}", fixture.name);
        }
        let text = node.read(CONFIG_PATH).expect("there");
        let is_kept = fixture.socket == CONTAINERD && mode == InstallMode::Front;
        assert_eq!(text == PACKAGED_CONFIG, is_kept, "{}", fixture.name);
        let config =
            Config::from_text(CONFIG_PATH, &text, &FlagOverrides::default()).expect("valid");
        assert_eq!(config.runtime.is_some(), mode == InstallMode::Runtime);
        assert!(
            node.plan(mode).expect("a plan").is_empty(),
            "{}",
            fixture.name
        );
        node.uninstall()
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        assert_eq!(node.files(), original, "{}", fixture.name);
    }
}

#[test]
fn the_list_has_nodes_with_other_runtimes() {
    let others = ALL.iter().filter(|fixture| fixture.socket != CONTAINERD);
    assert!(others.count() >= 2 && CRIO.socket != CONTAINERD);
}
