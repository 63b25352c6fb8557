//! The socket that pods of criscope-agent read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::fixtures::{CRIO, KUBEADM};
use super::node::Node;
use crate::config::{Config, FlagOverrides};
use crate::install::{AGENT_SOCKET, InstallMode, InstallOptions, InstallPlan};
use crate::settings::show_endpoint;

const DROP_IN: &str = "/etc/criscope/conf.d/50-agent.toml";

#[test]
fn the_socket_for_agents_is_added_and_taken_away_with_the_installation() {
    for (fixture, mode) in [
        (KUBEADM, InstallMode::Front),
        (KUBEADM, InstallMode::TakeOver),
        (CRIO, InstallMode::Front),
    ] {
        let node = Node::new(&fixture);
        let original = node.files();
        node.install(mode).expect("installed");
        assert_eq!(
            node.root.text(DROP_IN).expect("read"),
            None,
            "not asked for"
        );

        let options = InstallOptions {
            agent: true,
            ..node.options(mode)
        };
        let plan = InstallPlan::make(&node.root, &node, &options).expect("a plan");
        let paths: Vec<_> = plan.edits.iter().map(|edit| edit.path.as_path()).collect();
        assert_eq!(paths, [Path::new(DROP_IN)], "{}", fixture.name);
        node.installer().install(&plan).expect("installed");
        // Together with the file that the installation wrote it is a configuration.
        let main = node.root.text("/etc/criscope/criscope.toml");
        let main = main.expect("read").expect("there");
        let drop_in = node.root.text(DROP_IN).expect("read").expect("there");
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("criscope.toml");
        fs::create_dir(dir.path().join("conf.d")).expect("created");
        fs::write(&file, main).expect("written");
        fs::write(dir.path().join("conf.d/50-agent.toml"), drop_in).expect("written");
        let loaded = Config::load(Some(&file), &FlagOverrides::default());
        let socket = loaded.expect("valid").config.admin.agent_socket;
        assert_eq!(
            socket.as_deref().map(show_endpoint).as_deref(),
            Some(AGENT_SOCKET)
        );

        let again = InstallPlan::make(&node.root, &node, &options).expect("a plan");
        assert!(again.is_empty() && node.plan(mode).expect("a plan").is_empty());
        node.uninstall().expect("uninstalled");
        assert_eq!(node.files(), original, "{}", fixture.name);
    }
}

/// A mount keeps the directory that it was made of, whatever is at the path later.
#[test]
fn pods_that_have_mounted_the_directory_of_the_socket_see_that_of_the_next_installation() {
    let node = Node::new(&KUBEADM);
    let directory = node.root.path("/run/criscope/agent");
    fs::create_dir_all(&directory).expect("made by the kubelet");
    let inode = fs::metadata(&directory).expect("there").ino();
    node.install(InstallMode::Front).expect("installed");
    for name in [
        "agent/criscope.sock",
        "criscope.admin.sock",
        "criscope.state/journal",
    ] {
        let path = node.root.path("/run/criscope").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("created");
        fs::write(path, "").expect("written");
    }
    node.uninstall().expect("uninstalled");
    let left = fs::read_dir(node.root.path("/run/criscope")).expect("there");
    let left: Vec<_> = left
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["agent"]);
    assert_eq!(fs::read_dir(&directory).expect("there").count(), 0);
    assert_eq!(fs::metadata(&directory).expect("there").ino(), inode);

    // Without pods nothing is left.
    let node = Node::new(&KUBEADM);
    node.install(InstallMode::Front).expect("installed");
    node.uninstall().expect("uninstalled");
    assert!(!node.root.has("/run/criscope"));
}
