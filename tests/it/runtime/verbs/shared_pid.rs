//! Pods with a shared PID namespace: what a container can reach through its init, and what follows from its exit.

use crate::prelude::*;

/// A container in it, with additional capabilities.
pub(super) fn member(name: &str, capabilities: &[&str]) -> v1::ContainerConfig {
    let mut config = share_pid(idle(name));
    let added = security(&mut config).capabilities.get_or_insert_default();
    added.add_capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
    config
}

/// The host pid of the init of a container's PID namespace.
fn init_of(kubelet_sees: &str) -> i32 {
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut inits = pids.filter(|pid| {
        let of = fs::read_link(format!("/proc/{pid}/ns/pid"));
        let number = field(&status(*pid), "NSpid").is_some_and(|all| all.ends_with("\t1"));
        number && of.is_ok_and(|of| of == Path::new(kubelet_sees))
    });
    inits.next().expect("an init")
}

fn status(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

fn field(status: &str, name: &str) -> Option<String> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned()))
}

pub(super) async fn init(kubelet: &Kubelet, container: &str) -> i32 {
    let namespace = kubelet
        .says(container, "busybox readlink /proc/self/ns/pid")
        .await;
    init_of(&namespace)
}

/// Attempts by containers with capabilities that are often added for debugging.
#[tokio::test(flavor = "multi_thread")]
async fn the_init_leads_to_nothing_of_the_node() {
    let (daemon, kubelet) = node().await;
    let secret = daemon.root().join("secret");
    fs::write(&secret, "of the node").expect("a file");
    let secret = secret.display().to_string();
    for capabilities in [&["SYS_PTRACE"][..], &["SYS_PTRACE", "SYS_ADMIN"]] {
        let pod = kubelet.run(kubelet.shared_pid_config("attacked")).await;
        let mut config = member("attacker", capabilities);
        security(&mut config).seccomp = Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::Unconfined.into(),
            localhost_ref: String::new(),
        });
        let attacker = kubelet.launch(&pod, config).await;
        let script = |script: &str| script.replace("SECRET", &secret);
        for attempt in [
            "cat /proc/1/rootSECRET",
            "cat /proc/1/root/etc/passwd",
            "echo gone > /proc/1/rootSECRET",
            "touch /proc/1/root/new",
            "mkdir /proc/1/cwd/new",
            "cat /proc/1/cwd/record.json",
            "echo x > /proc/1/exe",
            "ls /proc/1/root | grep .",
            "ls /proc/1/cwd/ | grep .",
            "ls /proc/1/root/../.. | grep .",
            // No descriptor is a file or a directory of the node.
            "for fd in /proc/1/fd/*; do busybox readlink $fd; done | grep /",
            "for file in /proc/1/map_files/*; do : >> $file && echo open; done 2>/dev/null | grep open",
            // The environment is empty.
            "tr '\\0' '\\n' < /proc/1/environ | grep .",
            // Paths of the node.
            "tr '\\0' '\\n' < /proc/1/cmdline | grep /",
            "grep -v '^tmpfs / ' /proc/1/mounts | grep .",
        ] {
            let said = kubelet.exec(&attacker, &script(attempt)).await;
            assert_ne!(said.code, 0, "{capabilities:?} {attempt}: {}", said.out);
        }
        // The attempts reach the init: this one is allowed with the capability, but useless.
        kubelet
            .says(&attacker, "busybox readlink /proc/1/exe")
            .await;
        let links = "for n in net ipc uts pid; do busybox readlink /proc/1/ns/$n; done";
        let own = links.replace("/proc/1/", "/proc/self/");
        assert_eq!(
            kubelet.says(&attacker, links).await,
            kubelet.says(&attacker, &own).await
        );
        for kind in ["mnt", "cgroup", "net", "ipc", "uts", "pid"] {
            let of_init = format!("busybox readlink /proc/1/ns/{kind}");
            let of_node = fs::read_link(format!("/proc/self/ns/{kind}")).expect("link");
            let of_init = kubelet.says(&attacker, &of_init).await;
            assert_ne!(Path::new(&of_init), of_node, "{kind}");
        }
        assert_eq!(fs::read_to_string(&secret).expect("a file"), "of the node");
        kubelet.end(&pod).await;
    }
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_init_may_do_nothing() {
    let (daemon, kubelet) = node().await;
    let mut asked = kubelet.shared_pid_config("asked");
    let context = pod_security(&mut asked);
    context.run_as_user = Some(v1::Int64Value { value: 1000 });
    context.run_as_group = Some(v1::Int64Value { value: 1001 });
    context.supplemental_groups = vec![1002, 1003];
    for (config, uid, gid, groups) in [
        (kubelet.shared_pid_config("plain"), 65535, 65535, ""),
        (asked, 1000, 1001, "1002 1003"),
    ] {
        let pod = kubelet.run(config).await;
        let container = kubelet.launch(&pod, member("main", &[])).await;
        let pid = init(&kubelet, &container).await;
        let status = status(pid);
        let line = |name| field(&status, name).expect(name).trim().to_owned();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(line(set), "0000000000000000", "{set}");
        }
        assert_eq!(
            (line("NoNewPrivs"), line("Seccomp")),
            ("1".into(), "2".into())
        );
        assert_eq!(line("Uid"), [uid.to_string().as_str(); 4].join("\t"));
        assert_eq!(line("Gid"), [gid.to_string().as_str(); 4].join("\t"));
        assert_eq!(line("Groups"), groups);
        assert_eq!(line("Threads"), "1");
        // The owner of its files in /proc shows whether it is dumpable.
        let owner = fs::metadata(format!("/proc/{pid}/mem")).expect("metadata");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
        let descriptors: BTreeMap<_, _> = fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("descriptors")
            .map(|entry| entry.expect("entry").path())
            .map(|path| (path.clone(), fs::read_link(&path).expect("link")))
            .collect();
        let pipes: std::collections::BTreeSet<_> = descriptors.values().collect();
        assert_eq!(pipes.len(), 1, "{descriptors:?}");
        let pipe = pipes.first().expect("one").display().to_string();
        assert!(pipe.starts_with("pipe:"), "{descriptors:?}");
        kubelet.end(&pod).await;
    }
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_cannot_end_the_init() {
    let (daemon, kubelet) = node().await;
    let pod = kubelet.run(kubelet.shared_pid_config("signalled")).await;
    let container = kubelet.launch(&pod, member("main", &["KILL"])).await;
    for signal in ["TERM", "INT", "HUP", "KILL", "SEGV", "STOP"] {
        kubelet.says(&container, &format!("kill -{signal} 1")).await;
    }
    let other = kubelet.launch(&pod, member("other", &[])).await;
    kubelet.says(&other, "kill -0 1").await;
    let state = kubelet.pod_status(&pod).await.state();
    assert!(state == v1::PodSandboxState::SandboxReady);
    daemon.end(&kubelet, [&pod]).await;
}

async fn not_ready(kubelet: &Kubelet, pod: &Pod) {
    until_true("a pod that is not ready", async || {
        let state = kubelet.pod_status(pod).await.state();
        state == v1::PodSandboxState::SandboxNotready
    })
    .await;
}

/// Whatever kills the init, for example the OOM killer: the kernel kills all processes in the namespace.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_init_has_ended_is_not_ready() {
    let (daemon, kubelet) = node().await;
    let pod = kubelet.run(kubelet.shared_pid_config("ended")).await;
    let container = kubelet.launch(&pod, member("main", &[])).await;
    let waiting = kubelet
        .try_create(&pod, member("waiting", &[]))
        .await
        .expect("CreateContainer");
    let pid = init(&kubelet, &container).await;
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    assert_eq!(kubelet.ended(&container).await.exit_code, 137);
    not_ready(&kubelet, &pod).await;
    let created = kubelet.try_create(&pod, member("late", &[])).await;
    for refused in [created.map(drop), kubelet.start(&waiting).await] {
        let refused = refused.expect_err("it has no PID namespace");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("PID namespace"), "{refused}");
    }
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_init_is_found_after_a_restart() {
    let (mut daemon, kubelet) = node().await;
    let pod = kubelet.run(kubelet.shared_pid_config("ended")).await;
    let container = kubelet.launch(&pod, member("main", &[])).await;
    let well = kubelet.run(kubelet.shared_pid_config("well")).await;
    let stays = kubelet.launch(&well, member("main", &[])).await;
    let pid = init(&kubelet, &container).await;
    daemon.kill();
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    let kubelet = daemon.serve().await;
    not_ready(&kubelet, &pod).await;
    assert_eq!(kubelet.ended(&container).await.exit_code, 137);
    let refused = kubelet.try_create(&pod, member("late", &[])).await;
    let refused = refused.expect_err("it has no PID namespace");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    // The other pod keeps its namespace.
    let more = kubelet.launch(&well, member("more", &[])).await;
    assert_eq!(
        kubelet
            .says(&stays, "busybox readlink /proc/self/ns/pid")
            .await,
        kubelet
            .says(&more, "busybox readlink /proc/self/ns/pid")
            .await
    );
    daemon.end(&kubelet, [&pod, &well]).await;
}

/// Starts an unrelated process on the node with this pid.
fn take_number(pid: i32) -> std::process::Child {
    for _ in 0..2000 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("ns_last_pid");
        let mut child = Command::new("sleep");
        let mut child = child.arg("1000").spawn().expect("sleep");
        if child.id() == pid as u32 {
            return child;
        }
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    panic!("pid {pid} could not be obtained");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_is_used_again_leads_no_container_to_the_node() {
    let (daemon, kubelet, pod) = node_with_pod("reused").await;
    let target = kubelet.launch(&pod, idle("target")).await;
    let pid = init(&kubelet, &target).await;
    let mut looks = idle("looks");
    let options = namespaces(&mut looks);
    options.pid = v1::NamespaceMode::Target.into();
    options.target_id.clone_from(&target);
    let looks = kubelet
        .try_create(&pod, looks)
        .await
        .expect("CreateContainer");
    kubelet.stop(&target, 0).await;
    let mut stranger = take_number(pid);
    let started = kubelet.start(&looks).await;
    stranger.kill().expect("kill");
    stranger.wait().expect("wait");
    started.expect_err("its PID namespace has ended");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_init_of_a_pod_with_user_ids_of_its_own() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.shared_pid_config("users");
    pod_namespaces(&mut config).userns_options = Some(user_namespace(200_000, 65536));
    let pod = kubelet.run(config).await;
    // Found by its cgroup: without a container the namespace has no other process.
    let own = format!("/{}", pod.id);
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let mut inits = processes.filter_map(|entry| {
        let cgroup = fs::read_to_string(entry.path().join("cgroup")).ok()?;
        let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
        cgroup.contains(&own).then_some(pid)
    });
    let pid = inits.next().expect("an init");
    assert_eq!(inits.next(), None);
    let status = status(pid);
    let uid = field(&status, "Uid").expect("Uid");
    assert_eq!(uid.trim(), [265_535.to_string().as_str(); 4].join("\t"));
    assert_eq!(
        field(&status, "CapEff").expect("CapEff").trim(),
        "0000000000000000"
    );
    assert_eq!(field(&status, "Seccomp").expect("Seccomp").trim(), "2");
    let users = fs::read_link(format!("/proc/{pid}/ns/user")).expect("link");
    assert_ne!(users, fs::read_link("/proc/self/ns/user").expect("link"));
    daemon.end(&kubelet, [&pod]).await;
}

/// Root in a container in the host PID namespace, with the default capabilities.
#[tokio::test(flavor = "multi_thread")]
async fn our_processes_are_closed_to_a_container_that_sees_the_nodes() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("sees");
    pod_namespaces(&mut config).pid = v1::NamespaceMode::Node.into();
    let pod = kubelet.run(config).await;
    let mut config = idle("main");
    namespaces(&mut config).pid = v1::NamespaceMode::Node.into();
    let container = kubelet.launch(&pod, config).await;
    let shim = daemon.shim(&pod.id);
    kubelet
        .says(&container, &format!("grep -q shim /proc/{shim}/cmdline"))
        .await;
    for attempt in [
        "cat environ",
        "busybox readlink fd/0",
        "ls root/",
        "ls cwd/",
        "busybox readlink ns/mnt",
        ": < mem",
        ": < exe",
    ] {
        let script = format!("cd /proc/{shim} && {attempt}");
        assert_ne!(kubelet.exec(&container, &script).await.code, 0, "{attempt}");
    }
    daemon.end(&kubelet, [&pod]).await;
}
