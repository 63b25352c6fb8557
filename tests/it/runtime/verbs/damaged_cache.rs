//! Pods whose entry in the cache of CNI is damaged while the configuration of their network changes.

use crate::prelude::*;

/// A node whose networks have six addresses.
struct Node {
    daemon: Daemon,
}

impl Node {
    async fn start() -> Self {
        let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
        let this = Self::configure(&daemon, daemon.name(), "0/29", true);
        fs::write(daemon.root().join("cni/10-test.conflist"), this).expect("network");
        daemon.start().await;
        Self { daemon }
    }

    /// A network with host-local and, if wanted, forwarded ports.
    fn configure(daemon: &Daemon, name: &str, range: &str, has_ports: bool) -> String {
        let ports = match has_ports {
            true => r#", {"type": "portmap", "capabilities": {"portMappings": true}}"#,
            false => "",
        };
        format!(
            r#"{{"cniVersion": "1.0.0", "name": "{name}", "plugins": [{{"type": "bridge", "bridge": "{bridge}",
                "isGateway": true, "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{subnet}.{range}"}}]],
                "dataDir": "{root}/ipam"}}}}{ports}]}}"#,
            bridge = daemon.name(),
            subnet = daemon.subnet(),
            root = daemon.root().display(),
        )
    }

    fn set(&self, name: &str, range: &str, has_ports: bool) {
        let text = Self::configure(&self.daemon, name, range, has_ports);
        let path = self.daemon.root().join("cni/10-test.conflist");
        fs::write(path.with_extension("new"), text).expect("network");
        fs::rename(path.with_extension("new"), path).expect("network");
    }

    /// As it was at the start.
    fn reset(&self) {
        self.set(self.daemon.name(), "0/29", true);
    }

    async fn kubelet(&self) -> Kubelet {
        Kubelet::of(&self.daemon).await
    }

    async fn restart(&mut self) {
        self.daemon.kill();
        self.daemon.start().await;
    }

    fn results(&self) -> PathBuf {
        self.daemon.root().join("cache/results")
    }

    fn entry(&self, pod: &Pod) -> PathBuf {
        let name = format!("{}-{}-eth0", self.daemon.name(), pod.id);
        self.results().join(name)
    }

    /// The addresses that are held, of all networks.
    fn leases(&self) -> BTreeSet<String> {
        let networks = fs::read_dir(self.daemon.root().join("ipam"));
        let networks = networks.into_iter().flatten().flatten();
        let files = networks.flat_map(|network| fs::read_dir(network.path()).into_iter().flatten());
        let names = files.flatten().map(|file| file.file_name());
        names
            .filter_map(|name| name.into_string().ok())
            .filter(|name| name.starts_with("10."))
            .collect()
    }

    /// The names in the cache.
    fn cached(&self) -> Vec<String> {
        let cache = self.daemon.root().join("cache");
        let dirs = ["results", "damaged"].map(|dir| fs::read_dir(cache.join(dir)));
        let files = dirs.into_iter().flatten().flatten().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names.collect()
    }

    /// The warnings about this file since the last start.
    fn warnings(&self, file: &str) -> Vec<Value> {
        let events = self.daemon.program().events().into_iter();
        let warnings = events.filter(|line| line["level"] == "warn");
        warnings
            .filter(|line| line.to_string().contains(file))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_pod_is_released_whatever_has_become_of_its_entry() {
    let mut node = Node::start().await;
    let name = node.daemon.name().to_owned();
    for (number, damage) in ["", "{\"kind\":\"cniCa", "[1, 2]", "\0\0\0\0", "{}"]
        .into_iter()
        .enumerate()
    {
        let kubelet = node.kubelet().await;
        let pod = kubelet.plain_pod("damaged").await;
        assert_eq!(node.leases().len(), 1, "{damage}");
        let entry = node.entry(&pod);
        let file = entry
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        fs::write(&entry, damage).expect("damaged");
        match number {
            0 => node.set("renamed", "0/29", true),
            1 => node.set(&name, "8/29", true),
            2 => node.set(&name, "0/29", false),
            3 => node.set("renamed", "8/29", false),
            _ => fs::remove_file(node.daemon.root().join("cni/10-test.conflist")).expect("gone"),
        }
        // With and without a restart before the stop.
        if number % 2 == 0 {
            node.restart().await;
            let told = node.warnings(&file);
            assert_eq!(told.len(), 1, "{told:?}");
            let told = told[0].to_string();
            assert!(
                told.contains("cache/results/") && told.contains("moved aside"),
                "{told}"
            );
            node.restart().await;
            assert_eq!(node.warnings(&file), [Value::Null; 0], "told once");
        }
        let kubelet = node.kubelet().await;
        kubelet.end(&pod).await;
        assert_eq!(node.leases(), BTreeSet::new(), "{damage}");
        assert_eq!(node.cached(), [""; 0], "{damage}");
        if number % 2 == 1 {
            let told = node.warnings(&file);
            assert_eq!(told.len(), 1, "{told:?}");
            let told = told[0].to_string();
            assert!(
                told.contains("was removed") && told.contains("the record of the pod"),
                "{told}"
            );
        }
        node.restart().await;
        assert_eq!(node.warnings(&file), [Value::Null; 0]);
        node.reset();
    }
    // The range is not used up.
    let kubelet = node.kubelet().await;
    let mut pods = Vec::new();
    for number in 0..5 {
        pods.push(kubelet.plain_pod(&format!("next-{number}")).await);
    }
    for pod in &pods {
        kubelet.end(pod).await;
    }
    node.daemon.assert_clean();
}

/// Pods of earlier versions have no configuration in their record.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_recorded_configuration_the_address_is_found_by_its_file() {
    let mut node = Node::start().await;
    let kubelet = node.kubelet().await;
    let pod = kubelet.plain_pod("older").await;
    node.daemon.kill();
    for record in [
        node.daemon
            .root()
            .join("root/sandboxes")
            .join(&pod.id)
            .join("record.json"),
        node.daemon
            .state()
            .join(format!("state/records/{}.json", pod.id)),
    ] {
        let text = fs::read(&record).expect("a record");
        let mut value: Value = serde_json::from_slice(&text).expect("JSON");
        let networks = value.as_object_mut().expect("a record").remove("networks");
        assert_eq!(networks.expect("recorded")[0]["interface"], "eth0");
        fs::write(&record, value.to_string()).expect("record");
    }
    fs::write(node.entry(&pod), "{").expect("damaged");
    node.set("renamed", "0/29", true);
    node.daemon.start().await;
    let kubelet = node.kubelet().await;
    kubelet.end(&pod).await;
    assert_eq!(node.leases(), BTreeSet::new());
    assert_eq!(node.cached(), [""; 0]);
    node.daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_cannot_be_read_and_plugins_that_are_gone_keep_no_pod() {
    let mut node = Node::start().await;
    let name = node.daemon.name().to_owned();
    // A file in place of the directory of results.
    let kubelet = node.kubelet().await;
    let pod = kubelet.plain_pod("unreadable").await;
    fs::rename(node.results(), node.daemon.root().join("kept")).expect("moved");
    fs::write(node.results(), "no directory").expect("file");
    node.set("renamed", "0/29", true);
    kubelet.end(&pod).await;
    assert_eq!(node.leases(), BTreeSet::new());
    fs::remove_file(node.results()).expect("removed");
    node.reset();

    // Copies of an entry, and temporary files.
    let pod = kubelet.plain_pod("copied").await;
    let entry = node.entry(&pod);
    for copy in ["-copy", ".bak"] {
        let copy = format!("{}{copy}", entry.display());
        fs::copy(&entry, copy).expect("copy");
    }
    fs::write(
        node.results().join(format!(".{name}-{}-eth0.tmp", pod.id)),
        "{",
    )
    .expect("file");
    kubelet.end(&pod).await;
    assert_eq!(node.cached(), [""; 0]);

    // A plugin that was there at the ADD.
    let mut chained = Node::configure(&node.daemon, &name, "0/29", true);
    chained = chained.replace("\"plugins\": [", "\"plugins\": [{\"type\": \"extra\"}, ");
    let result = r#"{"cniVersion": "1.0.0"}"#;
    let script =
        format!("#!/bin/sh\ncat > /dev/null\n[ \"$CNI_COMMAND\" != ADD ] || echo '{result}'\n");
    let program = node.daemon.add_program("extra", &script);
    fs::write(node.daemon.root().join("cni/10-test.conflist"), chained).expect("network");
    let pod = kubelet.plain_pod("unplugged").await;
    fs::remove_file(&program).expect("removed");
    kubelet.end(&pod).await;
    assert_eq!(node.leases(), BTreeSet::new());
    assert_eq!(node.cached().len(), 1, "for the plugin");
    node.restart().await;
    assert_eq!(node.warnings(&pod.id), [Value::Null; 0], "nothing new");
    node.daemon.add_program("extra", &script);
    node.restart().await;
    assert_eq!(node.cached(), [""; 0], "the plugin is back");
    node.reset();
    node.daemon.assert_clean();
}
