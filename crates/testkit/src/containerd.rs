//! A private containerd: its root, state, socket, network and cgroup contain one name, which identifies what it leaves
//! behind on the machine.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;
use std::{fmt, fs};

use criscope::streaming::settings::StreamingTls;

use crate::busybox;
use crate::daemon::PLUGINS;
use crate::error::{IoContext, Result};
use crate::executable::executable;
use crate::leaks::Traces;
use crate::packages::{file, need_root, program};
use crate::process::Process;
use crate::until;

/// The only image, also that of sandboxes.
pub use crate::busybox::NAME as IMAGE;

/// The configuration of a containerd with all its files below two directories.
pub struct Config {
    pub root: PathBuf,
    /// Below `/run`, with the socket.
    pub state: PathBuf,
    pub sandbox_image: String,
    pub cni_conf: PathBuf,
    pub cni_bin: PathBuf,
    pub runc: PathBuf,
    /// Additional settings of the CRI plugin, followed by its tables.
    pub cri: String,
    pub log_level: &'static str,
}

impl Config {
    /// The CRI socket.
    pub fn socket(&self) -> PathBuf {
        self.state.join("containerd.sock")
    }

    /// Writes it to `containerd.toml` in the root and returns that path.
    ///
    /// # Errors If a directory or the file cannot be written.
    pub fn write(&self) -> Result<PathBuf> {
        let file = self.root.join("containerd.toml");
        fs::create_dir_all(&self.root)
            .and_then(|()| fs::create_dir_all(&self.state))
            .and_then(|()| fs::write(&file, self.to_string()))
            .during(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            r#"version = 2
root = "{root}/containerd"
state = "{state}/state"
temp = "{root}/temp"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{socket}"
[debug]
  level = "{log_level}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  {cri}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin}"
    conf_dir = "{cni_conf}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
        Root = "{state}/runc"
"#,
            root = self.root.display(),
            state = self.state.display(),
            socket = self.socket().display(),
            cni_bin = self.cni_bin.display(),
            cni_conf = self.cni_conf.display(),
            runc = self.runc.display(),
            cri = self.cri,
            sandbox_image = self.sandbox_image,
            log_level = self.log_level,
        )
    }
}

/// A running containerd. Dropping it kills it and removes everything.
pub struct Containerd {
    process: Option<Process>,
    traces: Traces,
    // Dropped last: until then its shims listen.
    _sockets: ShimSockets,
}

/// The sockets of shims since this time. All containerds share their directory, their names are hashes, and a shim that is killed
/// leaves its own. Dropping it removes those without a listener.
struct ShimSockets(SystemTime);

impl Drop for ShimSockets {
    fn drop(&mut self) {
        let Ok(sockets) = fs::read_dir("/run/containerd/s") else {
            return;
        };
        // Read before the table of listeners: a shim that starts meanwhile is not among them.
        let sockets: Vec<_> = sockets.flatten().map(|entry| entry.path()).collect();
        let listeners = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
        let listeners: BTreeSet<_> = listeners
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().nth(7))
            .collect();
        for socket in sockets {
            let created = fs::symlink_metadata(&socket).and_then(|it| it.modified());
            let is_ours = created.is_ok_and(|created| created >= self.0);
            let is_heard = socket.to_str().is_some_and(|it| listeners.contains(it));
            if is_ours && !is_heard {
                let _ = fs::remove_file(socket);
            }
        }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Containerd {
    /// Starts a containerd with the image imported.
    pub async fn new() -> Self {
        Self::with(|_, _| ()).await
    }

    /// Starts a containerd with a CNI plugin named `slow-bridge` and a wrapper script `runc` around the OCI runtime.
    /// Each first sleeps for the number of seconds in `slow-bridge.delay` or `runc.delay` in the root.
    pub async fn with_slow_parts() -> Self {
        Self::with(Self::slow_parts).await
    }

    /// Starts a containerd whose streaming server uses TLS.
    pub async fn with_tls(files: &StreamingTls) -> Self {
        Self::with(|_, config| {
            config.cri.push_str(&format!(
                r#"
  enable_tls_streaming = true
  [plugins."io.containerd.grpc.v1.cri".x509_key_pair_streaming]
    tls_cert_file = "{}"
    tls_key_file = "{}""#,
                files.cert.display(),
                files.key.display()
            ));
        })
        .await
    }

    /// Starts a containerd with an edited configuration. `edit` runs after the root has been created.
    pub async fn with(edit: impl FnOnce(&Self, &mut Config)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        need_root();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cit{}x{number}", std::process::id());
        let mut containerd = Self {
            process: None,
            traces: Traces::of(&name),
            _sockets: ShimSockets(SystemTime::now()),
        };
        let mut config = containerd.configure(number);
        edit(&containerd, &mut config);
        config.write().expect("config");
        containerd.start().await;
        busybox::import(&containerd.root(), &containerd.socket(), IMAGE);
        containerd
    }

    pub fn name(&self) -> &str {
        self.traces.name()
    }

    pub fn root(&self) -> PathBuf {
        Path::new("/tmp").join(self.name())
    }

    fn state(&self) -> PathBuf {
        Path::new("/run").join(self.name())
    }

    pub fn socket(&self) -> PathBuf {
        self.state().join("containerd.sock")
    }

    /// The parent cgroup for pods.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.name())
    }

    fn configure(&self, number: u32) -> Config {
        for plugin in ["bridge", "host-local", "loopback"] {
            file(
                &format!("{PLUGINS}/{plugin}"),
                "containernetworking-plugins",
            );
        }
        let (root, state, name) = (self.root(), self.state(), self.name());
        fs::create_dir_all(root.join("cni")).expect("root");
        fs::create_dir_all(&state).expect("state");
        let subnet = format!("10.{}.{}.0/24", 200 + number % 50, std::process::id() % 256);
        let network = format!(
            r#"{{"cniVersion": "1.0.0", "name": "{name}", "plugins": [
                {{"type": "bridge", "bridge": "{name}", "isGateway": true, "ipMasq": false,
                  "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{subnet}"}}]],
                            "dataDir": "{root}/ipam"}}}}]}}"#,
            root = root.display(),
        );
        fs::write(root.join("cni/10-test.conflist"), network).expect("network");
        Config {
            sandbox_image: IMAGE.to_owned(),
            cni_conf: root.join("cni"),
            cni_bin: PLUGINS.into(),
            runc: program("runc", "runc"),
            cri: "disable_apparmor = true".to_owned(),
            log_level: "info",
            root,
            state,
        }
    }

    fn slow_parts(&self, config: &mut Config) {
        let root = self.root();
        let bin = root.join("bin");
        fs::create_dir(&bin).expect("bin");
        for plugin in ["bridge", "host-local", "loopback"] {
            symlink(format!("{PLUGINS}/{plugin}"), bin.join(plugin)).expect("link");
        }
        let parts = [
            ("slow-bridge", Path::new(PLUGINS).join("bridge")),
            ("runc", config.runc.clone()),
        ];
        for (name, real) in parts {
            let delay = root.join(format!("{name}.delay"));
            let (delay, real) = (delay.display(), real.display());
            let script = format!(
                "#!/bin/sh\nif [ -e {delay} ]; then sleep $(cat {delay}); fi\nexec {real} \"$@\"\n"
            );
            executable(&bin.join(name), &script);
        }
        let network = root.join("cni/10-test.conflist");
        let text = fs::read_to_string(&network).expect("read");
        let (from, to) = ("\"type\": \"bridge\"", "\"type\": \"slow-bridge\"");
        assert!(text.contains(from), "{from}");
        fs::write(&network, text.replace(from, to)).expect("write");
        config.runc = bin.join("runc");
        config.cni_bin = bin;
    }

    /// Starts or restarts it, and waits until it responds.
    pub async fn start(&mut self) {
        let mut command = Command::new(program("containerd", "containerd"));
        command
            .arg("--config")
            .arg(self.root().join("containerd.toml"));
        let process = Process::spawn("containerd", &mut command, self.root().join("log"));
        self.process = Some(process.expect("start containerd"));
        let socket = self.socket();
        until("containerd", || async {
            let patience = std::time::Duration::from_secs(1);
            let channel = criscope::client::connect(&socket, patience).await.ok()?;
            let request = criscope::cri::v1::StatusRequest::default();
            let status = criscope::client::runtime(channel)
                .status(request)
                .await
                .ok()?;
            let conditions = status.into_inner().status?.conditions;
            // containerd 2 has another one for warnings about its configuration.
            let required = ["RuntimeReady", "NetworkReady"];
            let is_up = |kind: &&str| conditions.iter().any(|c| c.r#type == *kind && c.status);
            required.iter().all(is_up).then_some(())
        })
        .await;
    }

    /// Kills it with SIGKILL. Shims and containers stay.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("wait for containerd");
        }
    }

    /// The pid of its process.
    ///
    /// # Panics If it is not running.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("containerd is running").pid()
    }

    /// The number of open connections to its socket.
    pub fn connections(&self) -> usize {
        const CONNECTED: &str = "03";
        let table = fs::read_to_string("/proc/net/unix").expect("/proc/net/unix");
        let socket = self.socket().display().to_string();
        let ours = table.lines().filter(|line| {
            let fields: Vec<_> = line.split_ascii_whitespace().collect();
            fields.get(7) == Some(&socket.as_str()) && fields[5] == CONNECTED
        });
        ours.count()
    }
}
