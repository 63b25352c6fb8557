//! The parts that fail: CNI networks and OCI runtimes, each the runtime handler of some pods.

use std::os::unix::fs::symlink;

use crate::harness::containerd::Config;
use crate::harness::daemon::PLUGINS;
use crate::prelude::*;

/// A script that waits for the end of the suite in place of its work, if this shell condition holds.
fn hangs(root: &Path, condition: &str, real: &Path) -> String {
    format!(
        "#!/bin/sh\nif {condition}; then while [ -e {root}/hangs ]; do sleep 0.2; done; exit 1; fi\nexec {real} \"$@\"\n",
        root = root.display(),
        real = real.display()
    )
}

fn slow(seconds: f32, condition: &str, real: &Path) -> String {
    format!(
        "#!/bin/sh\nif {condition}; then sleep {seconds}; fi\nexec {} \"$@\"\n",
        real.display()
    )
}

/// The first of them is what a plugin of this name does.
const ADD: &str = r#"[ "$CNI_COMMAND" = ADD ]"#;
const DEL: &str = r#"[ "$CNI_COMMAND" = DEL ]"#;

/// Whether the OCI runtime was called with this command.
fn command(name: &str) -> String {
    format!(r#"case " $* " in *" {name} "*) true;; *) false;; esac"#)
}

/// What plugins that are not here have written, by name.
const SAYINGS: [(&str, &str); 2] = [
    (
        "multus-shim",
        "CmdAdd (shim): CNI request failed with status 400: 'ContainerID:\"5e6c3d48e76c438eedfae156ff296b22fc25800bb192bca0c5e93eeb117247da\" Netns:\"/var/run/netns/cni-6b56adca-52a8-4fb4-dd71-88c36d440d1d\" IfName:\"eth0\" Args:\"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web\" Path:\"\" ERRORED: error configuring pod [shop/web] networking: [shop/web/8ba5:kube-ovn]: error adding container to network \"kube-ovn\": RPC failed; request ip return 500 no address allocated to pod shop/web provider ovn\n': StdinData: {\"capabilities\":{\"portMappings\":true},\"clusterNetwork\":\"/host/etc/cni/net.d/01-kube-ovn.conflist\",\"cniVersion\":\"0.3.1\",\"logLevel\":\"verbose\",\"logToStderr\":true,\"name\":\"multus-cni-network\",\"type\":\"multus-shim\"}",
    ),
    (
        "flannel",
        "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory",
    ),
];

/// The plugins, scripts and configurations of a node's network, below its root.
pub(super) struct Networks {
    root: PathBuf,
    name: String,
    subnet: String,
}

impl Networks {
    pub(super) fn new(root: &Path, name: &str, subnet: &str) -> Self {
        fs::create_dir_all(root.join("bin")).expect("bin");
        fs::write(root.join("hangs"), "").expect("hangs");
        let it = Self {
            root: root.to_owned(),
            name: name.to_owned(),
            subnet: subnet.to_owned(),
        };
        it.plugins();
        it
    }

    fn plugins(&self) {
        let bin = self.root.join("bin");
        for plugin in ["bridge", "host-local", "loopback", "tuning", "portmap"] {
            symlink(format!("{PLUGINS}/{plugin}"), bin.join(plugin)).expect("link");
        }
        let real = Path::new(PLUGINS).join("bridge");
        let refuses = format!(
            "#!/bin/sh\nif {DEL}; then echo '{{\"cniVersion\": \"1.0.0\", \"code\": 11, \"msg\": \
             \"the network controller does not answer: try again later\"}}'; exit 1; fi\nexec {} \"$@\"\n",
            real.display()
        );
        let killed = "#!/bin/sh\nkill -9 $$\n".to_owned();
        let panics = "#!/bin/sh\necho 'panic: runtime error: index out of range' >&2; exit 2\n";
        // It hangs, and is slow to clean up after that.
        let lazy = hangs(&self.root, ADD, &real).replace("exec ", "sleep 6; exec ");
        for (name, script) in [
            ("slow-bridge", slow(3.0, ADD, &real)),
            ("hung-bridge", hangs(&self.root, ADD, &real)),
            ("lazy-bridge", lazy),
            ("sticky-bridge", refuses),
            ("killed-bridge", killed),
            ("panicking-bridge", panics.to_owned()),
            ("slow-del-bridge", slow(3.0, DEL, &real)),
        ] {
            executable(&bin.join(name), &script);
        }
        for (name, text) in SAYINGS {
            let error = bin.join(format!("{name}.json"));
            let json = serde_json::json!({"cniVersion": "1.0.0", "code": 999, "msg": text});
            fs::write(&error, json.to_string()).expect("an error");
            let says = format!(
                "#!/bin/sh\nif {ADD}; then cat {}; exit 1; fi\n",
                error.display()
            );
            executable(&bin.join(name), &says);
        }
    }

    fn bridge(&self, plugin: &str, addresses: &str) -> String {
        format!(
            r#"{{"type": "{plugin}", "bridge": "{}", "isGateway": true, "ipMasq": false,
                "ipam": {{"type": "host-local", "ranges": [[{{{addresses}}}]], "dataDir": "{}/ipam"}}}}"#,
            self.name,
            self.root.display()
        )
    }

    /// The plugins of each of the networks that fail, by the handler of their pods.
    pub(super) fn all(&self) -> Vec<(&'static str, Option<String>)> {
        let range = format!(r#""subnet": "{}.0/24""#, self.subnet);
        let one = format!(
            r#""subnet": "{0}.0/24", "rangeStart": "{0}.250", "rangeEnd": "{0}.250""#,
            self.subnet
        );
        let lease = self.root.join("ipam").join(&self.name);
        fs::create_dir_all(&lease).expect("ipam");
        let other = format!("{}.250", self.subnet);
        fs::write(lease.join(other), "of-another-pod\r\neth0").expect("lease");
        vec![
            ("nonet", None),
            ("absent", Some(r#"{"type": "cilium-cni"}"#.to_owned())),
            ("repeats", Some(r#"{"type": "multus-shim"}"#.to_owned())),
            ("agentless", Some(r#"{"type": "flannel"}"#.to_owned())),
            ("full", Some(self.bridge("bridge", &one))),
            ("slownet", Some(self.bridge("slow-bridge", &range))),
            ("hungnet", Some(self.bridge("hung-bridge", &range))),
            ("lazynet", Some(self.bridge("lazy-bridge", &range))),
            ("sticky", Some(self.bridge("sticky-bridge", &range))),
            ("killednet", Some(self.bridge("killed-bridge", &range))),
            ("panicnet", Some(self.bridge("panicking-bridge", &range))),
            ("slowdel", Some(self.bridge("slow-del-bridge", &range))),
            (
                "noipam",
                Some(
                    self.bridge("bridge", &range)
                        .replace("host-local", "whereabouts"),
                ),
            ),
            (
                "chain",
                Some(format!(
                    r#"{}, {{"type": "tuning", "sysctl": {{"net.ipv4.no_such_setting": "1"}}}}"#,
                    self.bridge("bridge", &range)
                )),
            ),
        ]
    }

    /// Writes the configuration of a network; returns its directory.
    pub(super) fn write(&self, handler: &str, plugins: Option<&str>) -> PathBuf {
        let dir = self.root.join("networks").join(handler);
        fs::create_dir_all(&dir).expect("dir");
        if let Some(plugins) = plugins {
            let text = format!(
                r#"{{"cniVersion": "1.0.0", "name": "{}", "plugins": [{plugins}]}}"#,
                self.name
            );
            fs::write(dir.join("10-test.conflist"), text).expect("network");
        }
        dir
    }
}

/// The OCI runtimes that fail, by handler.
pub(super) fn runtimes(root: &Path) -> Vec<(&'static str, PathBuf)> {
    let real = oci_runtime();
    let bin = root.join("oci");
    fs::create_dir_all(&bin).expect("bin");
    // Containers only: their bundle says so.
    let of_container =
        r#"grep -qE '"io.kubernetes.cri.container-type": ?"container"' $bundle/config.json"#;
    let create = command("create");
    let refuses = format!(
        "#!/bin/sh\nbefore=\nfor word in \"$@\"; do [ \"$before\" = --bundle ] && bundle=$word; before=$word; done\n\
         if {create}; then if {of_container}; then echo 'nvidia-container-cli: initialization error: \
         nvml error: driver not loaded' >&2; exit 1; fi; fi\nexec {} \"$@\"\n",
        real.display()
    );
    let mut all = Vec::new();
    for (handler, file, script) in [
        ("slowrunc", "slow/runc", slow(2.5, &command("start"), &real)),
        (
            "hungrunc",
            "hung/runc",
            hangs(root, &command("start"), &real),
        ),
        ("wrapper", "nvidia-container-runtime", refuses),
    ] {
        let path = bin.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("bin");
        executable(&path, &script);
        all.push((handler, path));
    }
    all.push(("norunc", bin.join("kata-runtime")));
    all
}

/// A containerd whose pods fail by their handler.
pub(super) fn break_by_handler(containerd: &Containerd, config: &mut Config) {
    let root = containerd.root();
    let conflist = fs::read_to_string(root.join("cni/10-test.conflist")).expect("network");
    let subnet = conflist.split("\"subnet\": \"").nth(1).expect("a subnet");
    let subnet = subnet.split(".0/24").next().expect("a subnet");
    let networks = Networks::new(&root, containerd.name(), subnet);
    config.cni_bin = root.join("bin");
    let mut tables = String::new();
    let mut handler = |name: &str, runc: &Path, network: &Path| {
        let table = format!("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}");
        tables.push_str(&format!(
            "\n{table}]\nruntime_type = \"io.containerd.runc.v2\"\ncni_conf_dir = {network:?}\n\
             {table}.options]\nSystemdCgroup = false\nBinaryName = {runc:?}\nRoot = \"/run/{}/runc\"\n",
            containerd.name()
        ));
    };
    for (name, plugins) in networks.all() {
        let dir = networks.write(name, plugins.as_deref());
        handler(name, &config.runc, &dir);
    }
    for (name, runc) in runtimes(&root) {
        handler(name, &runc, &config.cni_conf);
    }
    config.cri.push_str(&tables);
}

/// A built-in runtime whose pods fail by their handler.
pub(super) fn break_daemon(daemon: &mut Daemon) {
    let root = daemon.root();
    let networks = Networks::new(&root, daemon.name(), daemon.subnet());
    let mut tables = String::new();
    for (name, plugins) in networks.all() {
        let dir = networks.write(name, plugins.as_deref());
        let runc = oci_runtime();
        tables.push_str(&format!(
            "[runtime.handlers.{name}]\npath = {runc:?}\ncni_conf_dir = {dir:?}\n"
        ));
    }
    for (name, runc) in runtimes(&root) {
        // It is looked for at the start.
        if runc.exists() {
            tables.push_str(&format!("[runtime.handlers.{name}]\npath = {runc:?}\n"));
        }
    }
    daemon.configure(&tables);
}
