//! Other engines on the node, wrappers of OCI runtimes, and other programs that a runtime starts.

use std::os::unix::fs::symlink;

use super::*;

/// Puts a process into a mount namespace.
fn mounts(node: &Node, pid: u32, namespace: u32) {
    let dir = node.path(pid).join("ns");
    fs::create_dir_all(&dir).expect("dir");
    symlink(format!("mnt:[{namespace}]"), dir.join("mnt")).expect("link");
}

fn shim(node: &Node, pid: u32, namespace: &str, address: &str, id: &str) {
    node.add(pid, "containerd-shim", 1, ticks_now());
    let args = [
        "containerd-shim-runc-v2",
        "-namespace",
        namespace,
        "-id",
        id,
        "-address",
        address,
    ];
    node.cmdline(pid, &args);
}

#[test]
fn the_work_of_another_engine_is_not_ours() {
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    let task = "/run/containerd/io.containerd.runtime.v2.task";
    type Arrange<'a> = &'a dyn Fn(&Node);
    let moby = format!("{task}/moby/ab");
    let ours = format!("{task}/k8s.io/ab");
    let docker: Arrange<'_> = &|node| {
        shim(node, 300, "moby", SOCKET, "ab");
        node.runtime(301, 300, &["runc", "create", "--bundle", &moby, "ab"]);
    };
    let podman: Arrange<'_> = &|node| {
        node.add(300, "conmon", 1, ticks_now());
        node.cmdline(
            300,
            &[
                "conmon",
                "-c",
                "ab",
                "-n",
                "web",
                "--exit-dir",
                "/run/libpod/exits",
            ],
        );
        node.runtime(301, 300, &["crun", "--root", "/run/crun", "create", "ab"]);
    };
    let other_containerd: Arrange<'_> = &|node| {
        shim(node, 300, "k8s.io", "/run/k3s/containerd.sock", "ab");
        node.runtime(301, 300, &["runc", "create", "--bundle", &ours, "ab"]);
    };
    let by_hand: Arrange<'_> = &|node| node.runtime(301, 1, &["runc", "run", "ab"]);
    for (name, arrange) in [
        ("docker", docker),
        ("podman", podman),
        ("another containerd", other_containerd),
        ("a person", by_hand),
    ] {
        let node = Node::new();
        let mut scanner = node.scanner();
        arrange(&node);
        let found = scanner.scan(&calls).expect("scan");
        assert!(found.calls.is_empty(), "{name}: {found:?}");
    }
    let node = Node::new();
    let mut scanner = node.scanner();
    shim(&node, 300, "k8s.io", SOCKET, "ab");
    node.runtime(301, 300, &["runc", "create", "--bundle", &ours, "ab"]);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 1), ["in the OCI runtime runc (create)"]);
}

#[test]
fn a_wrapper_with_any_name_is_an_oci_runtime() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(
        1,
        Method::StartContainer,
        "cart",
        [Some("s1"), Some("c1")],
    )];
    shim(&node, 300, "k8s.io", SOCKET, "s1");
    mounts(&node, 300, 1);
    node.add(301, "acme-runtime", 300, ticks_now());
    node.cmdline(301, &["acme-runtime", "--root", "/run/x", "start", "c1"]);
    mounts(&node, 301, 1);
    // A container with such arguments, which are not read.
    node.add(302, "app", 300, ticks_now());
    node.cmdline(302, &["app", "--root", "/run/x", "start", "c1"]);
    mounts(&node, 302, 2);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(
        names(&found, 1),
        ["in the OCI runtime acme-runtime (start)"]
    );
}

#[test]
fn add_and_del_of_a_plugin_are_told_apart() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    node.plugin(200, "bridge", DAEMON, "ADD", "s1", "cart");
    scanner.scan(&calls).expect("scan");
    node.end(200);
    node.plugin(201, "bridge", DAEMON, "DEL", "s1", "cart");
    let found = scanner.scan(&calls).expect("scan");
    let commands: Vec<_> = observations_of(&found, 1)
        .into_iter()
        .map(|it| it.command)
        .collect();
    assert_eq!(commands, [Some("ADD".into()), Some("DEL".into())]);
}

#[test]
fn other_programs_of_the_runtime_are_named() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [
        call(1, Method::PullImage, "cart", [None; 2]),
        call(2, Method::StopPodSandbox, "till", [Some("s2"), None]),
    ];
    node.add(200, "unpigz", DAEMON, ticks_now());
    node.add(201, "umount", DAEMON, ticks_now());
    node.cmdline(201, &["umount", "/run/sandboxes/s2/shm"]);
    // Between fork and exec; of another pod; of something else.
    node.add(202, "containerd", DAEMON, ticks_now());
    node.add(203, "umount", DAEMON, ticks_now());
    node.cmdline(
        203,
        &["umount", "/pods/0b5e0000-0000-4000-8000-000000000000/x"],
    );
    node.add(204, "umount", 1, ticks_now());
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 1), ["in the program unpigz"]);
    assert_eq!(names(&found, 2), ["in the program umount"]);
}

#[test]
fn a_runtime_in_cri_o_is_known_by_its_monitor() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [
        call(1, Method::RunPodSandbox, "cart", [None; 2]),
        call(2, Method::RunPodSandbox, "till", [None; 2]),
    ];
    node.add(300, "conmon", DAEMON, ticks_now());
    node.cmdline(
        300,
        &["conmon", "-c", "ab", "-n", "k8s_POD_till_shop_uid-till_0"],
    );
    node.add(301, "crun", 300, ticks_now());
    node.cmdline(301, &["crun", "create", "--bundle", "/x/ab/userdata", "ab"]);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 2), ["in the OCI runtime crun (create)"]);
    assert_eq!(found.calls.len(), 1);
}

#[test]
fn environments_of_containers_are_not_opened() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    node.add(150, "containerd-shim", 1, 70);
    node.add(151, "app", 150, 71);
    // It claims to be a plugin and runs in a container. So does the next, started by a service of the node.
    node.plugin(300, "evil", 151, "ADD", "s1", "cart");
    node.plugin(301, "cron-job", 1, "ADD", "s1", "cart");
    let found = scanner.scan(&calls).expect("scan");
    assert!(found.calls.is_empty(), "{found:?}");
    assert!(
        format!("{scanner:?}").contains("environs_read: 0, environs_denied: 0"),
        "{scanner:?}"
    );
}
