//! A containerd of our own: own root, state, socket, network and cgroup, all with one name, so that what it leaves
//! behind can be told from everybody else's.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use criscope::config::StreamingTls;

use crate::harness::executable::executable;
use crate::harness::image;
use crate::harness::leaks::Traces;
use crate::harness::packages::{file, need_root, program};
use crate::harness::until;

/// The only image there is; sandboxes use it, too.
pub(super) const IMAGE: &str = "registry.example/criscope/busybox:1";

/// See the module documentation. Dropping it removes everything.
pub(super) struct Containerd {
    child: Option<Child>,
    /// Its name is in everything that is made: directories, bridge, network, cgroup.
    traces: Traces,
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.root().join("log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(60).collect();
            for line in lines.iter().rev() {
                eprintln!("containerd: {line}");
            }
        }
        self.kill();
    }
}

impl Containerd {
    /// Starts one, with the image in it.
    pub(super) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// Starts one whose CNI plugin is called `slow-bridge`, and whose OCI runtime goes through a script called `runc`.
    /// Each sleeps first for as many seconds as its file `slow-bridge.delay` or `runc.delay` in the root says.
    pub(super) async fn with_slow_parts() -> Self {
        Self::with(Self::slow_parts).await
    }

    /// Starts one whose streaming server has a certificate.
    pub(super) async fn with_tls(files: &StreamingTls) -> Self {
        Self::with(|containerd| {
            let tls = format!(
                r#"stream_server_port = "0"
  enable_tls_streaming = true
  [plugins."io.containerd.grpc.v1.cri".x509_key_pair_streaming]
    tls_cert_file = "{}"
    tls_key_file = "{}""#,
                files.cert.display(),
                files.key.display()
            );
            containerd.edit("config.toml", "stream_server_port = \"0\"", &tls);
        })
        .await
    }

    async fn with(edit: impl FnOnce(&Self)) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        need_root();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cit{}x{number}", std::process::id());
        let mut containerd = Self {
            child: None,
            traces: Traces::of(&name),
        };
        containerd.configure(number);
        edit(&containerd);
        containerd.start().await;
        image::import(&containerd.root(), &containerd.socket(), IMAGE);
        containerd
    }

    pub(super) fn name(&self) -> &str {
        self.traces.name()
    }

    pub(super) fn root(&self) -> PathBuf {
        Path::new("/tmp").join(self.name())
    }

    fn state(&self) -> PathBuf {
        Path::new("/run").join(self.name())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.state().join("containerd.sock")
    }

    /// The parent cgroup for pods.
    pub(super) fn cgroup(&self) -> String {
        format!("/{}", self.name())
    }

    fn configure(&self, number: u32) {
        for plugin in ["bridge", "host-local", "loopback"] {
            file(
                &format!("/usr/lib/cni/{plugin}"),
                "containernetworking-plugins",
            );
        }
        program("runc", "runc");
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
        let config = format!(
            r#"version = 2
root = "{root}/root"
state = "{state}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{state}/runc"
"#,
            root = root.display(),
            state = state.display(),
            socket = self.socket().display(),
        );
        fs::write(root.join("config.toml"), config).expect("config");
    }

    fn slow_parts(&self) {
        let root = self.root();
        let bin = root.join("bin");
        fs::create_dir(&bin).expect("bin");
        for plugin in ["bridge", "host-local", "loopback"] {
            symlink(format!("/usr/lib/cni/{plugin}"), bin.join(plugin)).expect("link");
        }
        let parts = [
            ("slow-bridge", PathBuf::from("/usr/lib/cni/bridge")),
            ("runc", program("runc", "runc")),
        ];
        for (name, real) in parts {
            let delay = root.join(format!("{name}.delay"));
            let (delay, real) = (delay.display(), real.display());
            let script = format!(
                "#!/bin/sh\nif [ -e {delay} ]; then sleep $(cat {delay}); fi\nexec {real} \"$@\"\n"
            );
            executable(&bin.join(name), &script);
        }
        let bin = bin.display();
        self.edit(
            "cni/10-test.conflist",
            "\"type\": \"bridge\"",
            "\"type\": \"slow-bridge\"",
        );
        self.edit(
            "config.toml",
            "bin_dir = \"/usr/lib/cni\"",
            &format!("bin_dir = \"{bin}\""),
        );
        let runc = format!("SystemdCgroup = false\n        BinaryName = \"{bin}/runc\"");
        self.edit("config.toml", "SystemdCgroup = false", &runc);
    }

    /// Writes something else in a file of the root.
    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.root().join(file);
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replace(from, to)).expect("write");
    }

    /// Starts it (again) and waits until it answers.
    pub(super) async fn start(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.root().join("log"))
            .expect("log");
        let child = Command::new(program("containerd", "containerd"))
            .arg("--config")
            .arg(self.root().join("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start containerd");
        self.child = Some(child);
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
            conditions.iter().all(|c| c.status).then_some(())
        })
        .await;
    }

    /// `kill -9`. What it runs goes on.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Connections that it has accepted and that are open.
    pub(super) fn connections(&self) -> usize {
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
