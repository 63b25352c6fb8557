//! criscope as the runtime itself: own root, state, network, cgroup and socket, all with one name, so that what it leaves
//! behind can be told from everybody else's. The program is the real one, with real runc and CNI plugins.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use criscope_image::{ImageStore, ImageStoreConfig};

use super::PATIENCE;
use super::executable::executable;
use super::image;
use super::leaks::{self, Traces};
use super::packages::{file, need_root, program};
use super::proxy::{Proxy, Start};
use super::store;

/// The only image there is; it has volumes of its own.
pub(crate) const IMAGE: &str = "registry.example/criscope/busybox:1";

/// Where the image wants a volume.
pub(crate) const VOLUME: &str = "/volume";

/// Where CNI plugins are.
const PLUGINS: &str = "/usr/lib/cni";

/// See the module documentation. Dropping it kills all of it and removes every trace.
pub(crate) struct Daemon {
    /// The first three parts of its pods' addresses.
    subnet: String,
    proxy: Option<Proxy>,
    /// Its name is in everything that is made: directories, bridge, network, cgroup.
    traces: Traces,
    env: Vec<(String, String)>,
    /// Whether it has a second runtime handler.
    second: bool,
    /// More of the configuration.
    more: String,
}

/// runc, or the one that the environment names: `tests/v2/run.sh` runs the same tests with crun.
pub(crate) fn oci_runtime() -> PathBuf {
    let name = std::env::var("CRISCOPE_TEST_RUNTIME");
    let name = name.as_deref().unwrap_or("runc");
    program(name, name)
}

impl Daemon {
    /// Starts one, with the image in it, and waits until it is ready.
    pub(crate) async fn new() -> Self {
        let mut daemon = Self::prepared().await;
        daemon.start().await;
        daemon
    }

    /// One that is configured and has the image, and was not started yet.
    pub(crate) async fn prepared() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        need_root();
        oci_runtime();
        program("iptables", "iptables");
        for plugin in ["bridge", "host-local", "portmap"] {
            file(
                &format!("{PLUGINS}/{plugin}"),
                "containernetworking-plugins",
            );
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let daemon = Self {
            subnet: format!("10.{}.{}", 150 + number % 50, pid % 256),
            proxy: None,
            // An interface's name has 15 letters at most.
            traces: Traces::of(&format!("crt{}x{number}", pid % 10_000_000)),
            env: Vec::new(),
            second: true,
            more: String::new(),
        };
        for dir in [daemon.root().join("cni"), daemon.root().join("bin")] {
            fs::create_dir_all(dir).expect("root");
        }
        fs::create_dir_all(daemon.state()).expect("state");
        daemon.set_network(&daemon.bridge(""));
        daemon.import().await;
        daemon
    }

    /// With this in its environment from the next start on.
    pub(crate) fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Without its second runtime handler from the next start on.
    pub(crate) fn without_second(&mut self) {
        self.second = false;
    }

    /// With these tables in its configuration from the next start on.
    pub(crate) fn configure(&mut self, tables: &str) {
        self.more.push_str(tables);
    }

    /// Starts it, and waits until it is ready.
    pub(crate) async fn start(&mut self) {
        let proxy = self.spawn();
        proxy.wait_event("started").await;
        proxy.wait_ready().await;
        self.proxy = Some(proxy);
    }

    /// Starts it without waiting for anything, for one that is not expected to come far.
    pub(crate) fn spawn(&self) -> Proxy {
        let mut start = Start::new().listen(&self.socket()).config(&self.config());
        for (name, value) in &self.env {
            start = start.env(name, value);
        }
        start.spawn()
    }

    /// Kills it as `kill -9` does. Its pods go on.
    pub(crate) fn kill(&mut self) {
        drop(self.proxy.take());
    }

    /// The program, which runs.
    pub(crate) fn program(&self) -> &Proxy {
        self.proxy.as_ref().expect("it was started")
    }

    /// What everything of it is called.
    pub(crate) fn name(&self) -> &str {
        self.traces.name()
    }

    /// What survives a reboot, besides configuration and logs of pods.
    pub(crate) fn root(&self) -> PathBuf {
        Path::new("/tmp").join(self.name())
    }

    /// What does not.
    pub(crate) fn state(&self) -> PathBuf {
        Path::new("/run").join(self.name())
    }

    /// The CRI socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("criscope.sock")
    }

    /// The parent cgroup for pods.
    pub(crate) fn cgroup(&self) -> String {
        format!("/{}", self.name())
    }

    /// The first three parts of its pods' addresses.
    pub(crate) fn subnet(&self) -> &str {
        &self.subnet
    }

    /// Makes these the plugins of the network.
    pub(crate) fn set_network(&self, plugins: &str) {
        let network = format!(
            r#"{{"cniVersion": "1.0.0", "name": "{}", "plugins": [{plugins}]}}"#,
            self.name()
        );
        let path = self.root().join("cni/10-test.conflist");
        // As a whole or not at all: it may be read meanwhile.
        let new = path.with_extension("new");
        fs::write(&new, network).expect("network");
        fs::rename(new, path).expect("network");
    }

    /// A bridge with port mappings, and more plugins before it, each with a comma.
    pub(crate) fn bridge(&self, before: &str) -> String {
        format!(
            r#"{before}{{"type": "bridge", "bridge": "{}", "isGateway": true, "ipMasq": false,
                "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{}.0/24"}}]],
                          "routes": [{{"dst": "0.0.0.0/0"}}], "dataDir": "{}/ipam"}}}},
              {{"type": "portmap", "capabilities": {{"portMappings": true}}}}"#,
            self.name(),
            self.subnet,
            self.root().display(),
        )
    }

    /// Puts a CNI plugin, or another program, where it is found.
    pub(crate) fn add_program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.root().join("bin").join(name);
        executable(&path, script);
        path
    }

    fn config(&self) -> String {
        let (root, state) = (self.root(), self.state());
        let (root, state) = (root.display(), state.display());
        let runc = oci_runtime();
        let runc = runc.display();
        let second = match self.second {
            true => format!("[runtime.handlers.second]\npath = \"{runc}\""),
            false => String::new(),
        };
        format!(
            r#"
[runtime]
root = "{root}/root"
state = "{state}/state"
cgroup_driver = "cgroupfs"
disable_apparmor = true
restrict_oom_score_adj = true
stats_collect_period = "1s"
cdi_spec_dirs = ["{root}/cdi"]
[runtime.handlers.runc]
path = "{runc}"
{second}
[runtime.cni]
conf_dir = "{root}/cni"
bin_dirs = ["{root}/bin", "{PLUGINS}"]
cache_dir = "{root}/cache"
[telemetry.log]
level = "debug"
{more}"#,
            more = self.more,
        )
    }

    async fn import(&self) {
        let archive = self.root().join("image.tar");
        image::write_with(
            &archive,
            IMAGE,
            &serde_json::json!({"Volumes": {VOLUME: {}}}),
        );
        let root = self.root().join("root/images");
        let images = ImageStore::open(ImageStoreConfig::new(root.clone())).await;
        let images = images.expect("store");
        images.import(&archive).await.expect("import");
        store::close(images, &root).await;
    }

    /// Everything it made is gone, but what is made for good: the bridge, and the parent cgroup.
    pub(crate) fn assert_clean(&self) {
        let kept = |line: &String| {
            *line == format!("link {}", self.name())
                || line.starts_with("directory ")
                || line.starts_with("cgroup ") && line.ends_with(&self.cgroup())
        };
        let end = Instant::now() + PATIENCE;
        let mut left = loop {
            let mut left = leaks::find(self.name());
            left.retain(|line| !kept(line));
            // A shim that has said goodbye is still a process for a moment. A link goes after its namespace, when the
            // kernel has time for it.
            let is_ending = |line: &String| {
                let kinds = ["process ", "link "];
                kinds.iter().any(|kind| line.starts_with(kind))
            };
            if !left.iter().any(is_ending) || Instant::now() > end {
                break left;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        for dir in ["root/sandboxes", "root/containers", "root/cni"].map(|d| self.root().join(d)) {
            left.extend(names(&dir));
        }
        for dir in [
            "state/pods",
            "state/ns",
            "state/oci/runc",
            "state/oci/second",
        ]
        .map(|d| self.state().join(d))
        {
            left.extend(names(&dir));
        }
        let addresses = names(&self.root().join("ipam").join(self.name()));
        left.extend(addresses.into_iter().filter(|name| name.starts_with("10.")));
        assert_eq!(left, [""; 0]);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}
