//! The input of plugins, their order, and the contents of the cache.

use std::fs;

use criscope_cni::{Attachment, Bandwidth, Error, Loopback, PortMapping, Protocol};
use serde_json::{Value, json};

use super::fake::{Fake, RESULT, pod};
use super::support::Runs;

#[tokio::test]
async fn a_chain_runs_forward_and_backward_with_complete_input() {
    let mut fake = Fake::new();
    let runs = Runs::default();
    fake.settings.observer = runs.clone().into();
    fake.plugin("first", "").plugin("second", "").list(
        "net.conflist",
        "1.0.0",
        r#"{"type":"first","odd":{"kept":[1]}},
           {"type":"second","capabilities":{"portMappings":true,"bandwidth":true,"dns":false,"io.kubernetes.cri.pod-annotations":true}}"#,
    );
    let mut pod = pod("c1");
    let port = |host_port| PortMapping {
        host_port,
        container_port: 80,
        protocol: Protocol::Udp,
        host_ip: "127.0.0.1".to_owned(),
    };
    pod.capabilities.port_mappings = vec![port(0), port(8080)];
    pod.capabilities.bandwidth = Some(Bandwidth {
        ingress_rate: 1000,
        ingress_burst: 5,
        egress_rate: 0,
        egress_burst: 0,
    });
    pod.capabilities.dns = Some(Default::default());
    pod.capabilities
        .annotations
        .insert("a".to_owned(), "b".to_owned());
    let cni = fake.cni();
    let attached = cni.add(&pod).await.expect("add");
    assert_eq!(attached.ip, Some("10.1.2.3".parse().expect("ip")));
    let first = fake.told("first", "ADD");
    assert_eq!(
        first,
        json!({"type":"first","odd":{"kept":[1]},"name":"net","cniVersion":"1.0.0"})
    );
    let second = fake.told("second", "ADD");
    assert_eq!(
        second["prevResult"],
        serde_json::from_str::<Value>(RESULT).expect("json")
    );
    assert_eq!(
        second["runtimeConfig"],
        json!({
            "portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"udp","hostIP":"127.0.0.1"}],
            "bandwidth":{"ingressRate":1000,"ingressBurst":5,"egressRate":0,"egressBurst":0},
            "io.kubernetes.cri.pod-annotations":{"a":"b"},
        })
    );
    let env = fake.env("second", "ADD");
    let path = format!("CNI_PATH=/no/such/dir:{}", fake.bin().display());
    for line in [
        "CNI_CONTAINERID=c1",
        "CNI_IFNAME=eth0",
        "CNI_NETNS=/proc/self/ns/net",
        &path,
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u-1",
    ] {
        assert!(
            env.lines().any(|there| there == line),
            "{line} is not in\n{env}"
        );
    }
    assert_eq!(fake.cached(), ["net-c1-eth0"]);
    cni.check(&pod).await.expect("check");
    // The configuration and the parameters of the ADD are used, not the current ones.
    fs::remove_file(fake.dir.path().join("net.d/net.conflist")).expect("remove");
    pod.netns = None;
    pod.capabilities = Default::default();
    cni.del(&pod).await.expect("del");
    assert_eq!(
        fake.told("second", "DEL")["runtimeConfig"],
        second["runtimeConfig"]
    );
    assert_eq!(
        fake.told("first", "DEL")["prevResult"]["ips"][0]["address"],
        "10.1.2.3/24"
    );
    assert!(
        fake.env("first", "DEL")
            .lines()
            .any(|line| line == "CNI_NETNS=")
    );
    assert!(fake.cached().is_empty());
    cni.del(&pod).await.expect("again");
    let order = [
        "first ADD",
        "second ADD",
        "first CHECK",
        "second CHECK",
        "second DEL",
        "first DEL",
    ];
    assert_eq!(fake.log(), order);
    let observed = order.map(|run| format!("{run} ok"));
    assert_eq!(runs.all(), observed);
    let line = "TRACEPARENT=second ADD";
    assert!(
        env.lines().any(|there| there == line),
        "{line} is not in\n{env}"
    );
}

#[tokio::test]
async fn each_network_has_its_own_interface() {
    let mut fake = Fake::new();
    fake.settings.max_conf_num = 0;
    fake.settings.loopback = Loopback::Plugin;
    fake.plugin("x", "")
        .plugin("loopback", "")
        .plugin("bad", "ADD) exit 1;;");
    fake.list("a.conflist", "1.0.0", r#"{"type":"x"}"#).list(
        "b.conflist",
        "0.4.0",
        r#"{"type":"x"}"#,
    );
    let attached = fake.cni().add(&pod("c1")).await.expect("add");
    let names: Vec<_> = attached
        .interfaces
        .iter()
        .map(|one| one.attachment.interface.as_str())
        .collect();
    assert_eq!(names, ["lo", "eth0", "eth1"]);
    assert_eq!(
        fake.cached(),
        ["a-c1-eth0", "b-c1-eth1", "cni-loopback-c1-lo"]
    );
    // The plugin's result is in 1.0.0, the network in 0.4.0.
    assert_eq!(
        attached.interfaces[2].result.to_value()["ips"][0]["version"],
        "4"
    );
    fake.cni().del(&pod("c1")).await.expect("del");
    assert!(fake.cached().is_empty());
    // A failure rolls back the others.
    fake.list("c.conflist", "1.0.0", r#"{"type":"bad"}"#);
    fake.cni().add(&pod("c2")).await.expect_err("c fails");
    assert!(fake.cached().is_empty());
    let undone = fake
        .log()
        .iter()
        .rev()
        .take(4)
        .filter(|run| run.ends_with("DEL"))
        .count();
    assert_eq!(undone, 4, "bad, x, x, loopback: {:?}", fake.log());
    // A handler with its own directory.
    let dir = fake.dir.path().join("other.d");
    let other = fake.cni().with_networks(Some(dir), None);
    assert!(matches!(
        other.add(&pod("c3")).await,
        Err(Error::NotReady { .. })
    ));
}

/// A power failure has lost one of two entries without damaging the other: the pod, whose namespace does not exist, is
/// detached from both networks.
#[tokio::test]
async fn entries_lost_in_a_power_failure_are_assumed() {
    let mut fake = Fake::new();
    fake.settings.max_conf_num = 0;
    fake.plugin("x", "").plugin("y", "");
    fake.list("a.conflist", "1.0.0", r#"{"type":"x"}"#).list(
        "b.conflist",
        "1.0.0",
        r#"{"type":"y"}"#,
    );
    for (number, left) in [None, Some("")].into_iter().enumerate() {
        let mut pod = pod(&format!("c{number}"));
        fake.cni().add(&pod).await.expect("add");
        let entry = format!("cache/results/b-{}-eth1", pod.id);
        let entry = fake.dir.path().join(entry);
        match left {
            None => fs::remove_file(&entry).expect("entry"),
            Some(text) => fs::write(&entry, text).expect("entry"),
        }
        pod.netns = None;
        fake.cni().del(&pod).await.expect("del");
        let runs = fake.log();
        for plugin in ["x DEL", "y DEL"] {
            let count = runs.iter().filter(|run| *run == plugin).count();
            assert_eq!(count, number + 1, "{plugin}: {runs:?}");
        }
        assert!(fake.cached().is_empty());
    }
}

#[tokio::test]
async fn readiness_follows_status() {
    let fake = Fake::new();
    let cni = fake.cni();
    let error = cni.ready().await.expect_err("nothing is configured");
    assert!(matches!(error, Error::NotReady { .. }), "{error}");
    assert!(error.to_string().contains("net.d"), "{error}");
    assert!(matches!(
        cni.add(&pod("c1")).await,
        Err(Error::NotReady { .. })
    ));
    fake.plugin(
        "x",
        r#"STATUS) echo '{"code":50,"msg":"not yet"}'; exit 1;;"#,
    );
    fake.list("a.conflist", "1.0.0", r#"{"type":"x"}"#);
    cni.ready().await.expect("1.0 has no STATUS");
    fake.list("a.conflist", "1.1.0", r#"{"type":"x"}"#);
    let error = cni.ready().await.expect_err("the plugin says no");
    assert!(error.to_string().contains("not yet"), "{error}");
    fake.plugin("x", "");
    cni.ready().await.expect("the plugin reports ready");
}

#[tokio::test]
async fn gc_removes_attachments_that_are_not_kept() {
    let fake = Fake::new();
    fake.plugin("x", "")
        .list("a.conflist", "1.1.0", r#"{"type":"x"}"#);
    let cni = fake.cni();
    for id in ["c1", "c2"] {
        cni.add(&pod(id)).await.expect("add");
    }
    let keep = Attachment {
        network: "a".to_owned(),
        container: "c2".to_owned(),
        interface: "eth0".to_owned(),
    };
    assert!(cni.attachments().await.expect("list").contains(&keep));
    cni.gc(std::slice::from_ref(&keep)).await.expect("gc");
    assert_eq!(fake.cached(), ["a-c2-eth0"]);
    assert_eq!(
        fake.told("x", "GC")["cni.dev/valid-attachments"],
        json!([{"containerID":"c2","ifname":"eth0"}])
    );
    assert!(fake.env("x", "DEL").contains("CNI_CONTAINERID=c1"));
}
