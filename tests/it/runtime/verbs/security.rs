//! Privileges and identity of containers.

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn users_and_groups() {
    let (daemon, kubelet, pod) = node_with_pod("users").await;

    let mut config = idle("by-number");
    let context = security(&mut config);
    context.run_as_user = Some(v1::Int64Value { value: 1000 });
    context.supplemental_groups = vec![3000];
    let id = kubelet.launch(&pod, config).await;
    // Group 2000 comes from the image.
    assert_eq!(
        kubelet.says(&id, "id -u; id -g; id -G").await,
        "1000\n1000\n1000 2000 3000"
    );
    let user = kubelet.status(&id).await.user.and_then(|user| user.linux);
    let user = user.expect("a user");
    assert_eq!((user.uid, user.gid), (1000, 1000));
    let mut groups = user.supplemental_groups;
    groups.retain(|group| *group != 1000);
    groups.sort_unstable();
    assert_eq!(groups, [2000, 3000]);

    let mut config = idle("strict");
    let context = security(&mut config);
    context.run_as_username = "plain".to_owned();
    context.supplemental_groups = vec![3000];
    context.set_supplemental_groups_policy(v1::SupplementalGroupsPolicy::Strict);
    let id = kubelet.launch(&pod, config).await;
    assert_eq!(kubelet.says(&id, "id -u; id -G").await, "1000\n1000 3000");

    let mut config = idle("unknown-user");
    security(&mut config).run_as_username = "not-there".to_owned();
    let refused = kubelet.try_create(&pod, config).await;
    let error = refused.expect_err("there is no such user");
    assert!(error.message().contains("not-there"), "{error}");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn default_resource_limits() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    daemon.set_runtime(
        "default_ulimits = [\"nofile=100:200\", \"core=0\", \"stack=1048576:2097152\"]\n",
    );
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("limits").await;
    let script = "ulimit -Sn; ulimit -Hn; ulimit -Hc; echo up; sleep 1000000";
    let id = kubelet.launch(&pod, shell("main", script)).await;
    kubelet.logged(&id, "up").await;
    let log = kubelet.log(&id).await;
    let lines: Vec<_> = log.iter().map(|(_, line)| line.trim()).collect();
    assert_eq!(lines, ["100", "200", "0", "up"]);
    // Not the soft limit of open files: in an exec of runc before 1.2 the Go runtime may raise it (runc issue 4195).
    assert_eq!(
        kubelet
            .says(&id, "ulimit -Ss; ulimit -Hs; ulimit -Hn")
            .await,
        "1024\n2048\n200"
    );
    daemon.end(&kubelet, [&pod]).await;
}

/// A device node that is removed on drop.
struct Node(PathBuf);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_privileged_container_has_the_current_devices_of_the_node() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("privileged");
    let context = pod_security(&mut config);
    context.privileged = true;
    let pod = kubelet.run(config).await;
    // Added while the daemon runs; the device numbers are those of /dev/zero.
    let node = Node(Path::new("/dev").join(daemon.name()));
    let mode = Mode::from_bits_truncate(0o600);
    mknod(&node.0, SFlag::S_IFCHR, mode, makedev(1, 5)).expect("a device");
    let mut config = idle("main");
    security(&mut config).privileged = true;
    let id = kubelet.launch(&pod, config).await;
    let read = format!(
        "dd if={} bs=8 count=1 2>/dev/null | busybox wc -c",
        node.0.display()
    );
    assert_eq!(kubelet.says(&id, &read).await, "8");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restricted_and_unconfined_containers() {
    let (daemon, kubelet, pod) = node_with_pod("closed").await;

    let mut config = idle("closed");
    let context = security(&mut config);
    context.readonly_rootfs = true;
    context.no_new_privs = true;
    context.masked_paths = vec!["/proc/timer_list".to_owned(), "/proc/keys".to_owned()];
    context.readonly_paths = vec!["/proc/sys".to_owned()];
    context.seccomp = Some(v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
        localhost_ref: String::new(),
    });
    let id = kubelet.launch(&pod, config).await;
    let said = kubelet.exec(&id, "touch /f").await;
    assert!(
        said.code != 0 && said.err.contains("Read-only"),
        "{}",
        said.err
    );
    // The volume of the image is writable nevertheless.
    kubelet.says(&id, "touch /volume/f").await;
    assert_eq!(kubelet.says(&id, "cat /proc/keys").await, "");
    let said = kubelet
        .exec(&id, "echo 1 > /proc/sys/net/ipv4/ip_forward")
        .await;
    assert!(said.err.contains("Read-only"), "{}", said.err);
    let field = |name: &str| format!("grep '^{name}:' /proc/self/status");
    assert_eq!(kubelet.says(&id, &field("Seccomp")).await, "Seccomp:\t2");
    assert_eq!(
        kubelet.says(&id, &field("NoNewPrivs")).await,
        "NoNewPrivs:\t1"
    );
    // It does not have CAP_SYS_ADMIN (21).
    let capabilities = kubelet.says(&id, &field("CapEff")).await;
    let set = capabilities.trim_start_matches("CapEff:").trim();
    let set = u64::from_str_radix(set, 16).expect("a set");
    assert_eq!(set & 1 << 21, 0, "{capabilities}");

    let mut config = idle("open");
    security(&mut config).seccomp = Some(v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::Unconfined.into(),
        localhost_ref: String::new(),
    });
    let id = kubelet.launch(&pod, config).await;
    assert_eq!(kubelet.says(&id, &field("Seccomp")).await, "Seccomp:\t0");
    kubelet.says(&id, "touch /f").await;
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_the_kernel_are_hidden_without_a_request() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("hidden");
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    let pod = kubelet.run(config).await;
    let mounted = "grep -o ' /proc/[a-z-]* ' /proc/self/mountinfo || true";

    let id = kubelet.launch(&pod, idle("plain")).await;
    let paths = kubelet.says(&id, mounted).await;
    for path in ["/proc/interrupts", "/proc/bus", "/proc/sys"] {
        let mut lines = paths.lines().map(str::trim);
        assert!(lines.any(|line| line == path), "{path}: {paths}");
    }
    assert_eq!(kubelet.says(&id, "cat /proc/interrupts").await, "");
    let said = kubelet
        .exec(&id, "echo 1 > /proc/sys/net/ipv4/ip_forward")
        .await;
    assert!(said.err.contains("Read-only"), "{}", said.err);

    let mut config = idle("privileged");
    security(&mut config).privileged = true;
    let id = kubelet.launch(&pod, config).await;
    assert_eq!(kubelet.says(&id, mounted).await, "");
    daemon.end(&kubelet, [&pod]).await;
}
