//! The lifecycle of a pod, its network, and its handler.

use std::io::Read as _;
use std::net::TcpStream;

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_lifecycle_of_a_pod() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("whole-life");
    config.labels = HashMap::from([("app".to_owned(), "one".to_owned())]);
    config.annotations = HashMap::from([("note".to_owned(), "kept".to_owned())]);
    config.dns_config = Some(v1::DnsConfig {
        servers: vec!["10.96.0.10".to_owned()],
        searches: vec!["test.svc".to_owned()],
        options: vec!["ndots:5".to_owned()],
    });
    let linux = config.linux.get_or_insert_default();
    linux.sysctls = HashMap::from([("net.core.somaxconn".to_owned(), "77".to_owned())]);
    let pod = kubelet.run(config).await;

    let status = kubelet.pod_status(&pod).await;
    assert!(status.state() == v1::PodSandboxState::SandboxReady);
    assert!(status.metadata == pod.config.metadata);
    assert_eq!(
        (&status.labels, &status.annotations),
        (&pod.config.labels, &pod.config.annotations)
    );
    assert!(status.created_at > 0);
    let ip = status.network.expect("a network").ip;
    assert!(ip.starts_with(daemon.subnet()), "{ip}");

    let container = kubelet.launch(&pod, idle("main")).await;
    assert_eq!(
        kubelet
            .says(&container, "hostname; cat /etc/hostname")
            .await,
        "whole-life\nwhole-life"
    );
    let resolv = kubelet.says(&container, "cat /etc/resolv.conf").await;
    assert_eq!(
        resolv,
        "search test.svc\nnameserver 10.96.0.10\noptions ndots:5"
    );
    let hosts = kubelet.says(&container, "cat /etc/hosts").await;
    assert!(
        hosts.contains("127.0.0.1") && hosts.contains("localhost"),
        "{hosts}"
    );
    assert_eq!(
        kubelet
            .says(&container, "cat /proc/sys/net/core/somaxconn")
            .await,
        "77"
    );
    let addresses = kubelet.says(&container, "busybox ip -4 -o addr").await;
    assert!(
        addresses.contains(&format!("inet {ip}/")) && addresses.contains("127.0.0.1"),
        "{addresses}"
    );
    assert_eq!(
        kubelet
            .says(&container, "grep -c ' /dev/shm ' /proc/mounts")
            .await,
        "1"
    );

    // The same pod is refused again, because its creator got the id.
    let again = kubelet.try_run(pod.config.clone(), "").await;
    assert_eq!(again.err().map(|e| e.code()), Some(Code::AlreadyExists));

    // Each can be repeated.
    for _ in 0..2 {
        kubelet.stop_pod(&pod.id).await;
    }
    let state = kubelet.pod_status(&pod).await.state();
    assert!(state == v1::PodSandboxState::SandboxNotready);
    assert_eq!(kubelet.ended(&container).await.exit_code, 137);
    let late = kubelet.try_create(&pod, idle("late")).await;
    assert!(late.is_err(), "a stopped pod accepts no container");
    kubelet.end(&pod).await;
    kubelet.end(&pod).await;
    let gone = kubelet
        .runtime
        .clone()
        .pod_sandbox_status(requests::pod_status(&pod.id, false))
        .await;
    assert_eq!(gone.err().map(|e| e.code()), Some(Code::NotFound));
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_port_leads_into_the_pod() {
    let (daemon, kubelet) = node().await;
    let port = free_port();
    let mut config = kubelet.pod_config("ports");
    config.port_mappings = vec![v1::PortMapping {
        protocol: v1::Protocol::Tcp.into(),
        container_port: 8080,
        host_port: port.into(),
        host_ip: String::new(),
    }];
    let pod = kubelet.run(config).await;
    let script = "while :; do echo hello | nc -l -p 8080; done";
    let container = kubelet.launch(&pod, shell("server", script)).await;
    let gateway = format!("{}.1", daemon.subnet());
    let ask = |port| {
        let mut text = String::new();
        let stream = TcpStream::connect((gateway.as_str(), port)).ok();
        let _ = stream.map(|mut stream| stream.read_to_string(&mut text));
        text
    };
    until_true("an answer", async || ask(port) == "hello\n").await;
    kubelet.remove(&container).await;
    kubelet.end(&pod).await;
    assert_eq!(ask(port), "", "the mapping is removed with the pod");
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_the_network_of_the_node() {
    let (daemon, kubelet) = node().await;
    let config = kubelet.host_network_config("host-network");
    let pod = kubelet.run(config).await;
    let status = kubelet.pod_status(&pod).await;
    assert_eq!(status.network.unwrap_or_default().ip, "");
    let options = status
        .linux
        .and_then(|l| l.namespaces)
        .and_then(|n| n.options);
    assert!(options.unwrap_or_default().network() == v1::NamespaceMode::Node);
    let container = kubelet.launch(&pod, share_host_network(idle("main"))).await;
    let own = fs::read_link("/proc/self/ns/net").expect("a link");
    let its = kubelet
        .says(&container, "busybox readlink /proc/self/ns/net")
        .await;
    assert_eq!(its, own.display().to_string());
    let name = nix::unistd::gethostname().expect("a name");
    assert_eq!(
        kubelet.says(&container, "hostname").await,
        name.to_string_lossy()
    );
    daemon.end(&kubelet, [&pod]).await;
}

/// As with CRI-O; containerd fails on it. The kubelet never asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_the_network_of_the_node_with_a_host_name_of_its_own() {
    let (mut daemon, kubelet) = node().await;
    let before = nix::unistd::gethostname().expect("a name");
    let mut config = kubelet.host_network_config("host-network");
    config.hostname = "other-name".to_owned();
    let pod = kubelet.run(config).await;
    let kubelet = daemon.restart().await;
    let container = kubelet.launch(&pod, share_host_network(idle("main"))).await;
    let script = "hostname; cat /etc/hostname; echo $HOSTNAME; busybox readlink /proc/self/ns/net";
    let net = fs::read_link("/proc/self/ns/net").expect("a link");
    assert_eq!(
        kubelet.says(&container, script).await,
        format!("other-name\nother-name\nother-name\n{}", net.display())
    );
    assert_eq!(nix::unistd::gethostname().expect("a name"), before);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_handlers_and_an_unknown_one() {
    let (daemon, kubelet) = node().await;
    let second = kubelet
        .try_run(kubelet.pod_config("second"), "second")
        .await;
    let second = second.expect("the second handler");
    let container = kubelet.launch(&second, idle("main")).await;
    assert_eq!(kubelet.pod_status(&second).await.runtime_handler, "second");
    // Only the OCI runtime of that handler has it.
    let oci = daemon.state().join("state/oci");
    assert!(oci.join("second").join(&container).exists());
    assert!(!oci.join("runc").join(&container).exists());
    let handlers = kubelet.runtime_status().await.runtime_handlers;
    let mut names: Vec<_> = handlers
        .iter()
        .map(|handler| handler.name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["", "runc", "second"]);
    let none = kubelet.try_run(kubelet.pod_config("none"), "none").await;
    let error = none.err().expect("there is no such handler");
    assert!(error.message().contains("none"), "{error}");
    daemon.end(&kubelet, [&second]).await;
}
