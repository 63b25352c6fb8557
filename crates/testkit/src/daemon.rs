//! criscope with the built-in runtime: its root, state, network, cgroup and socket contain one name, which identifies
//! what it leaves behind on the machine. The OCI runtime and the CNI plugins are real.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use nix::unistd::Pid;

use crate::PATIENCE;
use crate::busybox;
use crate::executable::executable;
use crate::image_store;
use crate::kubelet::{Kubelet, Pod};
use crate::leaks::{self, Traces};
use crate::packages::{file, need_root, program};
use crate::proxy::{Proxy, Start};

/// The only image.
pub use crate::busybox::NAME as IMAGE;

/// The volume of the image.
pub const VOLUME: &str = "/volume";

/// Directory of Debian's CNI plugins.
pub const PLUGINS: &str = "/usr/lib/cni";

/// The table `runtime` of a configuration.
pub struct RuntimeConfig<'a> {
    pub root: &'a Path,
    pub state: &'a Path,
    pub shim: Option<&'a Path>,
    /// Runtime handlers: name and OCI runtime.
    pub handlers: &'a [(&'a str, &'a Path)],
    pub cni_conf: &'a Path,
    pub cni_bins: &'a [&'a Path],
    pub cni_cache: &'a Path,
    /// Additional settings of the table `runtime`.
    pub more: &'a str,
}

impl fmt::Display for RuntimeConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "[runtime]\nroot = {:?}\nstate = {:?}",
            self.root, self.state
        )?;
        if let Some(shim) = self.shim {
            writeln!(f, "shim = {shim:?}")?;
        }
        writeln!(f, "{}", self.more)?;
        for (name, path) in self.handlers {
            writeln!(f, "[runtime.handlers.{name}]\npath = {path:?}")?;
        }
        let (conf, bins, cache) = (self.cni_conf, self.cni_bins, self.cni_cache);
        writeln!(
            f,
            "[runtime.cni]\nconf_dir = {conf:?}\nbin_dirs = {bins:?}\ncache_dir = {cache:?}"
        )
    }
}

/// See the module documentation. Dropping it kills all its processes and removes everything it created.
pub struct Daemon {
    criscope: PathBuf,
    subnet: String,
    proxy: Option<Proxy>,
    traces: Traces,
    env: Vec<(String, String)>,
    has_second_handler: bool,
    has_apparmor: bool,
    more_runtime: String,
    more_cni: String,
    more_config: String,
}

/// runc, or the OCI runtime of `CRISCOPE_TEST_RUNTIME`: `tests/v2/run.sh` runs the same tests with crun.
pub fn oci_runtime() -> PathBuf {
    let name = std::env::var("CRISCOPE_TEST_RUNTIME");
    let name = name.as_deref().unwrap_or("runc");
    program(name, name)
}

impl Daemon {
    /// Starts a daemon with the image imported, and waits until it is ready.
    pub async fn new(criscope: impl AsRef<Path>) -> Self {
        let mut daemon = Self::prepared(criscope).await;
        daemon.start().await;
        daemon
    }

    /// A started daemon, and a connection to it.
    pub async fn with_kubelet(criscope: impl AsRef<Path>) -> (Self, Kubelet) {
        let mut daemon = Self::prepared(criscope).await;
        let kubelet = daemon.serve().await;
        (daemon, kubelet)
    }

    /// A configured daemon with the image imported, not started yet.
    pub async fn prepared(criscope: impl AsRef<Path>) -> Self {
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
            criscope: criscope.as_ref().to_owned(),
            subnet: format!("10.{}.{}", 150 + number % 50, pid % 256),
            proxy: None,
            // Interface names have at most 15 characters.
            traces: Traces::of(&format!("crt{}x{number}", pid % 10_000_000)),
            env: Vec::new(),
            has_second_handler: true,
            has_apparmor: false,
            more_runtime: String::new(),
            more_cni: String::new(),
            more_config: String::new(),
        };
        for dir in [daemon.root().join("cni"), daemon.root().join("bin")] {
            fs::create_dir_all(dir).expect("root");
        }
        fs::create_dir_all(daemon.state()).expect("state");
        daemon.set_network(&daemon.bridge(""));
        daemon.import().await;
        daemon
    }

    /// Sets an environment variable for the next start.
    pub fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Removes the second runtime handler at the next start.
    pub fn without_second(&mut self) {
        self.has_second_handler = false;
    }

    /// Sets the OCI runtime of the second handler for the next start.
    pub fn set_second(&mut self, program: &Path) {
        self.without_second();
        self.configure(&format!("[runtime.handlers.second]\npath = {program:?}\n"));
    }

    /// Uses AppArmor from the next start on, if the node has it. It loads a profile into the kernel.
    pub fn with_apparmor(&mut self) {
        self.has_apparmor = true;
    }

    /// Adds settings of the table `runtime` to the next start, in place of those added before.
    pub fn set_runtime(&mut self, settings: &str) {
        settings.clone_into(&mut self.more_runtime);
    }

    /// Adds settings of the table `runtime.cni` to the next start.
    pub fn set_cni(&mut self, settings: &str) {
        settings.clone_into(&mut self.more_cni);
    }

    /// Adds tables to the configuration of the next start.
    pub fn configure(&mut self, tables: &str) {
        self.more_config.push_str(tables);
    }

    /// Starts it, and waits until it is ready.
    pub async fn start(&mut self) {
        let proxy = self.spawn();
        proxy.wait_event("started").await;
        proxy.wait_ready().await;
        self.proxy = Some(proxy);
    }

    /// Starts it, waits until it is ready, and connects.
    pub async fn serve(&mut self) -> Kubelet {
        self.start().await;
        Kubelet::of(self).await
    }

    /// Kills it, starts it again, and connects. Its pods keep running.
    pub async fn restart(&mut self) -> Kubelet {
        self.kill();
        self.serve().await
    }

    /// Starts it without waiting, for a start that is expected to fail.
    pub fn spawn(&self) -> Proxy {
        let mut start = Start::new(&self.criscope)
            .listen(&self.socket())
            .config(&self.config());
        for (name, value) in &self.env {
            start = start.env(name, value);
        }
        start.spawn()
    }

    /// Kills it with SIGKILL. Its pods keep running.
    pub fn kill(&mut self) {
        drop(self.proxy.take());
    }

    /// Gives the running daemon the settings that were set since its start.
    pub fn reload(&self) {
        self.program().reload(&self.config());
    }

    /// The running process.
    pub fn program(&self) -> &Proxy {
        self.proxy.as_ref().expect("the daemon is running")
    }

    /// The shim of a pod.
    pub fn shim(&self, pod: &str) -> Pid {
        let all = leaks::processes(self.name());
        let mut shims = all.iter();
        let found = shims.find(|(_, what)| what.contains("criscope-shim") && what.contains(pod));
        Pid::from_raw(found.expect("a shim").0)
    }

    /// The name that all its objects contain.
    pub fn name(&self) -> &str {
        self.traces.name()
    }

    /// The directory for persistent state, configuration and pod logs.
    pub fn root(&self) -> PathBuf {
        Path::new("/tmp").join(self.name())
    }

    /// The directory for state that does not survive a reboot.
    pub fn state(&self) -> PathBuf {
        Path::new("/run").join(self.name())
    }

    /// The CRI socket.
    pub fn socket(&self) -> PathBuf {
        self.state().join("criscope.sock")
    }

    /// The parent cgroup for pods.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.name())
    }

    /// The first three octets of its pods' addresses.
    pub fn subnet(&self) -> &str {
        &self.subnet
    }

    /// Replaces the plugins in the network configuration.
    pub fn set_network(&self, plugins: &str) {
        let network = format!(
            r#"{{"cniVersion": "1.0.0", "name": "{}", "plugins": [{plugins}]}}"#,
            self.name()
        );
        let path = self.root().join("cni/10-test.conflist");
        // Atomically, because it may be read at any time.
        let new = path.with_extension("new");
        fs::write(&new, network).expect("network");
        fs::rename(new, path).expect("network");
    }

    /// The plugins `bridge` and `portmap`, preceded by `before`, in which each plugin ends with a comma.
    pub fn bridge(&self, before: &str) -> String {
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

    /// Adds a CNI plugin or another program to the plugin directory.
    pub fn add_program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.root().join("bin").join(name);
        executable(&path, script);
        path
    }

    fn config(&self) -> String {
        let (root, state) = (self.root(), self.state());
        let runc = oci_runtime();
        let mut handlers = vec![("runc", &*runc)];
        if self.has_second_handler {
            handlers.push(("second", &runc));
        }
        let config = RuntimeConfig {
            root: &root.join("root"),
            state: &state.join("state"),
            shim: None,
            handlers: &handlers,
            cni_conf: &root.join("cni"),
            cni_bins: &[&root.join("bin"), Path::new(PLUGINS)],
            cni_cache: &root.join("cache"),
            more: &format!(
                "restrict_oom_score_adj = true\ncgroup_driver = \"cgroupfs\"\ndisable_apparmor = {}\nstats_collect_period = \"1s\"\n\
                 cdi_spec_dirs = [{:?}]\n{}",
                !self.has_apparmor,
                root.join("cdi"),
                self.more_runtime
            ),
        };
        let (cni, more) = (&self.more_cni, &self.more_config);
        format!("{config}{cni}\n[telemetry.log]\nlevel = \"debug\"\n{more}")
    }

    async fn import(&self) {
        let archive = self.root().join("image.tar");
        busybox::write_with(
            &archive,
            IMAGE,
            &serde_json::json!({"Volumes": {VOLUME: {}}}),
        );
        image_store::import(&archive, &self.root().join("root/images")).await;
    }

    /// Ends the last pods, and asserts that nothing of them is left.
    pub async fn end(&self, kubelet: &Kubelet, pods: impl IntoIterator<Item = &Pod>) {
        for pod in pods {
            kubelet.end(pod).await;
        }
        self.assert_clean();
    }

    /// Asserts that only the bridge and the parent cgroup are left; they outlive pods.
    pub fn assert_clean(&self) {
        let kept = |line: &String| {
            *line == format!("link {}", self.name())
                || line.starts_with("directory ")
                || line.starts_with("cgroup ") && line.ends_with(&self.cgroup())
        };
        let end = Instant::now() + PATIENCE;
        let mut left = loop {
            let mut left = leaks::find(self.name());
            left.retain(|line| !kept(line));
            // A shim exits after its last response, and the kernel removes a link some time after its namespace.
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
