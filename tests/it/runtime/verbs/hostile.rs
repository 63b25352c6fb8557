//! Pods whose author or containers attack the daemon through data they write.

use crate::harness::executable::compile;
use crate::prelude::*;

/// Maximum additional memory of the daemon for one container: far less than the size of these files.
const BOUND: u64 = 48 << 20;

/// Resets the value of [`peak`] (proc(5), `clear_refs`).
fn reset_peak(daemon: &Daemon) {
    let path = format!("/proc/{}/clear_refs", daemon.program().pid());
    fs::write(path, "5").expect("clear_refs");
}

/// Peak resident memory of a daemon, in bytes.
fn peak(daemon: &Daemon) -> u64 {
    let status = format!("/proc/{}/status", daemon.program().pid());
    let status = fs::read_to_string(status).expect("status of the daemon");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.expect("VmHWM").parse::<u64>().expect("a number") << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_name_file_of_a_pod_is_never_read_back() {
    let (daemon, kubelet, pod) = node_with_pod("name").await;
    let first = kubelet.launch(&pod, idle("first")).await;
    let hostname = "echo $HOSTNAME; cat /etc/hostname | busybox head -c 20";
    assert_eq!(kubelet.says(&first, hostname).await, "name\nname");

    // A second line, then a quarter of a gigabyte that is sparse.
    let write = "printf 'evil\\nLD_PRELOAD=/x' > /etc/hostname";
    kubelet.says(&first, write).await;
    let second = kubelet.launch(&pod, idle("second")).await;
    assert_eq!(kubelet.says(&second, "echo $HOSTNAME").await, "name");
    let grow = "dd if=/dev/zero of=/etc/hostname bs=1 count=0 seek=256M 2>/dev/null";
    kubelet.says(&first, grow).await;
    reset_peak(&daemon);
    let before = peak(&daemon);
    let third = kubelet.launch(&pod, idle("third")).await;
    assert_eq!(kubelet.says(&third, "echo $HOSTNAME").await, "name");
    let size = kubelet.says(&third, "busybox wc -c < /etc/hostname").await;
    assert_eq!(
        size,
        (256 << 20).to_string(),
        "the file is as large as it was made"
    );
    let grown = peak(&daemon).saturating_sub(before);
    assert!(grown < BOUND, "{grown} bytes more");
    daemon.end(&kubelet, [&pod]).await;
}

/// After a kill the daemon searches all processes of the node for plugins it had started.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_says_its_environment_is_large_does_not_fill_the_daemon() {
    let (mut daemon, kubelet, pod) = node_with_pod("large").await;
    let dir = daemon.root().join("programs");
    fs::create_dir_all(&dir).expect("directory");
    compile(
        Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/runtime/verbs/large.c"
        )),
        &dir.join("large"),
    );
    let mut config = shell("large", "exec /programs/large");
    config.mounts.push(v1::Mount {
        container_path: "/programs".to_owned(),
        host_path: dir.display().to_string(),
        readonly: true,
        ..Default::default()
    });
    let id = kubelet.launch(&pod, config).await;
    kubelet.logged(&id, "ready").await;

    daemon.kill();
    daemon.env("CRISCOPE_CRASH_AT", "sandbox.recorded");
    daemon.start().await;
    let config = kubelet.pod_config("begun");
    let cut = kubelet.try_run(config, "").await;
    assert!(cut.is_err(), "the daemon must die there");
    daemon.kill();
    daemon.env("CRISCOPE_CRASH_AT", "");
    daemon.start().await;
    // It has searched during its start.
    let peak = peak(&daemon);
    assert!(peak < 256 << 20, "{peak} bytes");
    // The environment really is that large.
    let size = kubelet.says(&id, "busybox wc -c < /proc/1/environ").await;
    assert_eq!(size, (512 << 20).to_string());
    daemon.end(&kubelet, [&pod]).await;
}

/// Asserts that a pod is refused, with the reason.
async fn refused_pod(
    kubelet: &Kubelet,
    what: &str,
    change: impl FnOnce(&mut v1::PodSandboxConfig),
) {
    let mut config = kubelet.pod_config("refused");
    change(&mut config);
    let refused = kubelet.try_run(config, "").await;
    let error = refused
        .err()
        .unwrap_or_else(|| panic!("{what} was accepted"));
    assert_eq!(error.code(), Code::InvalidArgument, "{what}: {error}");
    assert!(error.message().contains(what), "{what}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_writes_more_than_a_value_into_a_value_is_refused() {
    let (daemon, kubelet) = node().await;
    let dns = |change: fn(&mut v1::DnsConfig)| {
        move |pod: &mut v1::PodSandboxConfig| change(pod.dns_config.get_or_insert_default())
    };
    refused_pod(&kubelet, "host name", |pod| {
        pod.hostname = "a\nb".to_owned()
    })
    .await;
    refused_pod(&kubelet, "host name", |pod| pod.hostname = "a".repeat(65)).await;
    refused_pod(&kubelet, "pod name", |pod| {
        pod.metadata.get_or_insert_default().name = "a\nb".to_owned();
    })
    .await;
    refused_pod(
        &kubelet,
        "DNS search",
        dns(|dns| dns.searches = vec!["a\nnameserver 6.6.6.6".to_owned()]),
    )
    .await;
    refused_pod(
        &kubelet,
        "DNS server",
        dns(|dns| dns.servers = vec!["1.1.1.1 6.6.6.6".to_owned()]),
    )
    .await;
    refused_pod(
        &kubelet,
        "DNS option",
        dns(|dns| dns.options = vec!["ndots:5\nsearch x".to_owned()]),
    )
    .await;
    refused_pod(&kubelet, "log directory", |pod| {
        pod.log_directory.push_str("/../../etc");
    })
    .await;
    refused_pod(&kubelet, "cgroup parent", |pod| {
        let linux = pod.linux.get_or_insert_default();
        linux.cgroup_parent.push_str("/../../system.slice");
    })
    .await;
    refused_pod(&kubelet, "SELinux level", |pod| {
        let context = pod_security(pod);
        context.selinux_options = Some(v1::SeLinuxOption {
            level: "s0\",lowerdir=/etc,context=\"x".to_owned(),
            ..Default::default()
        });
    })
    .await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_writes_more_than_a_value_into_a_value_is_refused() {
    let (daemon, kubelet, pod) = node_with_pod("values").await;
    type Change = fn(&mut v1::ContainerConfig);
    let cases: &[(&str, Change)] = &[
        ("log path", |c| {
            c.log_path = "../../../etc/cron.d/x".to_owned()
        }),
        ("log path", |c| c.log_path = "/etc/cron.d/x".to_owned()),
        ("container name", |c| {
            c.metadata.get_or_insert_default().name = "a\nb".to_owned();
        }),
        ("argument", |c| c.command[0].push_str("\0x")),
        ("working directory", |c| c.working_dir = "/a\0b".to_owned()),
        ("mount", |c| {
            c.mounts.push(v1::Mount {
                container_path: "/m".to_owned(),
                host_path: "/tmp/../../etc".to_owned(),
                ..Default::default()
            });
        }),
        ("device", |c| {
            c.devices.push(v1::Device {
                container_path: "/dev/../../x".to_owned(),
                host_path: "/dev/null".to_owned(),
                permissions: "r".to_owned(),
            });
        }),
        ("SELinux type", |c| {
            security(c).selinux_options = Some(v1::SeLinuxOption {
                r#type: "t:s0\",x=\"".to_owned(),
                ..Default::default()
            });
        }),
        ("\"A=B\"", |c| {
            c.envs.push(v1::KeyValue {
                key: "A=B".to_owned(),
                value: b"secret"[..].into(),
            });
        }),
        ("\"RAW\"", |c| {
            c.envs.push(v1::KeyValue {
                key: "RAW".to_owned(),
                value: b"secret\xff"[..].into(),
            });
        }),
    ];
    for (what, change) in cases {
        let mut config = idle("refused");
        change(&mut config);
        let refused = kubelet.try_create(&pod, config).await;
        let error = refused
            .err()
            .unwrap_or_else(|| panic!("{what} was accepted"));
        assert_eq!(error.code(), Code::InvalidArgument, "{what}: {error}");
        assert!(error.message().contains(what), "{what}: {error}");
        assert!(!error.message().contains("secret"), "{what}: {error}");
    }
    // In an exec command too, which crun would cut at the NUL.
    let id = kubelet.launch(&pod, idle("fine")).await;
    let command = vec!["/bin/echo".to_owned(), "a\0b".to_owned()];
    let refused = kubelet.try_exec(&id, command, 5).await;
    let error = refused.err().expect("an argument with NUL was accepted");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    daemon.end(&kubelet, [&pod]).await;
}

/// A log path that leads elsewhere: the directory belongs to the kubelet, but pods that collect logs may write to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_not_written_through_a_link_nor_to_a_device_or_a_pipe() {
    let (daemon, kubelet, pod) = node_with_pod("logs").await;
    let logs = PathBuf::from(&pod.config.log_directory);
    let victim = logs.join("victim");
    fs::write(&victim, "kept").expect("victim");
    std::os::unix::fs::symlink(&victim, logs.join("link.log")).expect("link");
    nix::unistd::mkfifo(&logs.join("pipe.log"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
    for name in ["link", "pipe"] {
        let id = kubelet.try_create(&pod, idle(name)).await.expect("created");
        let error = kubelet.start(&id).await.expect_err("not started");
        assert!(error.message().contains(&format!("{name}.log")), "{error}");
    }
    assert_eq!(fs::read(Path::new(&victim)).expect("victim"), b"kept");
    daemon.end(&kubelet, [&pod]).await;
}
