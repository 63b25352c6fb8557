//! Debian's plugins, in a network namespace that takes the place of the node's. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use criscope_linux::namespace::{Kind, Pins, Request};

use super::fake::pod;
use super::support::Scratch;
use criscope_cni::{Bandwidth, Cni, Loopback, Pod, PortMapping, Protocol, Settings};

const PLUGINS: &str = "/usr/lib/cni";

/// A node: plugins run inside its namespace, so that bridges and packet filter rules are removed with it.
struct Node {
    dir: Scratch,
    pins: Pins,
    cni: Cni,
}

impl Node {
    async fn new(chained: &str) -> Self {
        assert!(
            Path::new(PLUGINS).join("bridge").exists(),
            "install containernetworking-plugins"
        );
        let dir = Scratch::new();
        let at = |name: &str| dir.path().join(name);
        let pins = Pins::new(at("pins"));
        let net = || Request {
            kinds: vec![Kind::Net],
            ..Request::default()
        };
        pins.make("node", net()).await.expect("needs root");
        for name in ["bin", "net.d"] {
            fs::create_dir(at(name)).expect("dir");
        }
        for plugin in ["bridge", "portmap", "bandwidth", "loopback"] {
            let inside = pins.path("node", Kind::Net);
            let script = format!(
                "#!/bin/sh\nexport CNI_PATH={PLUGINS}\nexec nsenter --net={} {PLUGINS}/{plugin}\n",
                inside.display()
            );
            fs::write(at("bin").join(plugin), script).expect("write");
            fs::set_permissions(at("bin").join(plugin), fs::Permissions::from_mode(0o755))
                .expect("mode");
        }
        let list = format!(
            r#"{{"cniVersion":"1.0.0","name":"real","plugins":[{{"type":"bridge","bridge":"crs0","isGateway":true,
               "ipMasq":true,"ipam":{{"type":"host-local","dataDir":"{}","ranges":[[{{"subnet":"10.99.0.0/16"}}]]}}}}{chained}]}}"#,
            at("ipam").display()
        );
        fs::write(at("net.d/real.conflist"), list).expect("write");
        let cni = Cni::new(Settings {
            conf_dir: at("net.d"),
            bin_dirs: vec![at("bin")],
            cache_dir: at("cache"),
            loopback: Loopback::Plugin,
            ..Settings::default()
        });
        Self { dir, pins, cni }
    }

    async fn pod(&self, id: &str) -> Pod {
        let request = Request {
            kinds: vec![Kind::Net],
            ..Request::default()
        };
        self.pins.make(id, request).await.expect("make");
        Pod {
            netns: Some(self.pins.path(id, Kind::Net)),
            ..pod(id)
        }
    }

    /// Allocated addresses.
    fn leases(&self) -> usize {
        let files = fs::read_dir(self.dir.path().join("ipam/real"))
            .into_iter()
            .flatten()
            .flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().starts_with("10."))
            .count()
    }

    async fn end(self) {
        for id in self.pins.list().expect("list") {
            self.pins.remove(&id).await.expect("remove");
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert!(
            !mounts.contains(&*self.dir.path().to_string_lossy()),
            "a pin is left"
        );
    }

    fn inside(&self, command: &[&str]) -> String {
        let net = format!("--net={}", self.pins.path("node", Kind::Net).display());
        let output = Command::new("nsenter")
            .arg(net)
            .args(command)
            .output()
            .expect("nsenter");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_port_is_attached_and_leaves_nothing() {
    let node = Node::new(r#",{"type":"portmap","capabilities":{"portMappings":true}}"#).await;
    let mut pod = node.pod("c1").await;
    let port = PortMapping {
        host_port: 8080,
        container_port: 80,
        protocol: Protocol::Tcp,
        host_ip: String::new(),
    };
    pod.capabilities.port_mappings = vec![port];
    let attached = node.cni.add(&pod).await.expect("add");
    assert_eq!(attached.ip, Some("10.99.0.2".parse().expect("ip")));
    let names: Vec<_> = node
        .pins
        .counters("c1")
        .await
        .expect("counters")
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert!(names.contains(&"eth0".to_owned()), "{names:?}");
    let rules = node.inside(&["iptables-save", "-t", "nat"]);
    assert!(rules.contains("10.99.0.2:80"), "{rules}");
    // No CHECK here: Debian's portmap 1.1.1 requires an IPv6 chain even without an IPv6 address.
    node.cni.del(&pod).await.expect("del");
    node.cni.del(&pod).await.expect("again");
    let rules = node.inside(&["iptables-save", "-t", "nat"]);
    assert!(!rules.contains("10.99.0.2"), "{rules}");
    assert_eq!(node.leases(), 0);
    // The namespace is removed before the DEL.
    let attached = node.cni.add(&pod).await.expect("add");
    assert!(attached.ip.is_some());
    node.pins.remove("c1").await.expect("remove");
    node.cni.del(&pod).await.expect("del without a namespace");
    assert_eq!(node.leases(), 0);
    // A regular file, as after a reboot.
    let pod = node.pod("c2").await;
    node.cni.add(&pod).await.expect("add");
    node.pins.remove("c2").await.expect("remove");
    let file = node.pins.path("c2", Kind::Net);
    fs::create_dir_all(file.parent().expect("parent")).expect("dir");
    fs::write(&file, "").expect("write");
    node.cni.del(&pod).await.expect("del after a reboot");
    assert_eq!(node.leases(), 0);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requested_bandwidth_is_limited() {
    let node = Node::new(r#",{"type":"bandwidth","capabilities":{"bandwidth":true}}"#).await;
    let mut pod = node.pod("c1").await;
    pod.capabilities.bandwidth = Some(Bandwidth {
        ingress_rate: 1_000_000,
        ingress_burst: u64::from(u32::MAX),
        egress_rate: 0,
        egress_burst: 0,
    });
    node.cni.add(&pod).await.expect("add");
    let queues = node.inside(&["tc", "qdisc"]);
    assert!(
        queues.contains("tbf") && queues.contains("1Mbit"),
        "{queues}"
    );
    node.cni.del(&pod).await.expect("del");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_pods_are_attached_concurrently() {
    let node = Node::new("").await;
    let mut pods = Vec::new();
    for number in 0..50 {
        pods.push(node.pod(&format!("c{number}")).await);
    }
    let adds: Vec<_> = pods
        .iter()
        .cloned()
        .map(|pod| {
            let cni = node.cni.clone();
            tokio::spawn(async move { cni.add(&pod).await })
        })
        .collect();
    let mut ips = BTreeSet::new();
    for add in adds {
        ips.insert(
            add.await
                .expect("join")
                .expect("add")
                .ip
                .expect("an address"),
        );
    }
    assert_eq!(ips.len(), 50);
    assert_eq!(node.leases(), 50);
    for pod in pods.iter().take(3) {
        node.cni.check(pod).await.expect("check");
    }
    let dels: Vec<_> = pods
        .into_iter()
        .map(|pod| {
            let cni = node.cni.clone();
            tokio::spawn(async move { cni.del(&pod).await })
        })
        .collect();
    for del in dels {
        del.await.expect("join").expect("del");
    }
    assert_eq!(node.leases(), 0);
    assert_eq!(node.cni.attachments().await.expect("list"), []);
    node.end().await;
}
