//! The runtimes, each with its own directories. No pod runs, so they need neither an OCI runtime nor a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use criscope::client;
use criscope::cri::v1;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope_testkit::containerd;
use criscope_testkit::daemon::{PLUGINS, RuntimeConfig};
use criscope_testkit::requests;
use tonic::Status;
use tonic::transport::Channel;

use crate::error::{Error, IoContext, Result};
use crate::process::{Process, Proportional, find};
use crate::registry::Registries;

pub(crate) const CRISCOPE: &str = "criscope";
/// Another one, to compare with.
pub(crate) const OTHER: &str = "other criscope";
const CONTAINERD: &str = "containerd";
const CRIO: &str = "CRI-O";
/// Timeout for a runtime to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running runtime.
pub(crate) struct Daemon {
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// Its version.
    pub(crate) version: String,
    /// Its process.
    pub(crate) process: Process,
    images: ImageServiceClient<Channel>,
}

impl Daemon {
    /// Starts a criscope.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn criscope(
        name: &'static str,
        binary: &Path,
        at: [PathBuf; 2],
        from: &Registries,
    ) -> Result<Self> {
        let [root, state] = make(at)?;
        let socket = state.join("criscope.sock");
        let runc = find("runc", "runc")?;
        let config = RuntimeConfig {
            root: &root.join("runtime"),
            state: &state.join("runtime"),
            shim: None,
            handlers: &[("runc", &runc)],
            cni_conf: &root.join("cni"),
            cni_bins: &[Path::new(PLUGINS)],
            cni_cache: &root.join("cni-cache"),
            more: "",
        };
        let text = format!(
            "[server]\nlisten = \"unix://{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [backends.builtin]\nkind = \"builtin\"\n{config}\
             [runtime.images]\ncerts_dirs = [{:?}]\n",
            socket.display(),
            from.certs
        );
        let config = write(&root.join("criscope.toml"), &text)?;
        let mut command = Command::new(binary);
        command.args(["serve", "--config"]).arg(config);
        Self::start(name, &command, &root, &socket).await
    }

    /// Starts containerd.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub(crate) async fn containerd(at: [PathBuf; 2], from: &Registries) -> Result<Self> {
        let [root, state] = make(at)?;
        let config = containerd::Config {
            root: root.clone(),
            state,
            sandbox_image: "registry.example/none:1".to_owned(),
            cni_conf: root.join("cni"),
            cni_bin: PLUGINS.into(),
            runc: find("runc", "runc")?,
            cri: format!(
                "[plugins.\"io.containerd.grpc.v1.cri\".registry]\n    config_path = {:?}",
                from.certs
            ),
            log_level: "warn",
        };
        let socket = config.socket();
        let mut command = Command::new(find("containerd", "containerd")?);
        command.arg("--config").arg(config.write()?);
        Self::start(CONTAINERD, &command, &root, &socket).await
    }

    /// Starts CRI-O.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn crio(at: [PathBuf; 2], from: &Registries) -> Result<Self> {
        let [root, state] = make(at)?;
        let socket = state.join("crio.sock");
        let policy = write(
            &root.join("policy.json"),
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
        )?;
        let insecure = [&from.fast, &from.slow]
            .map(|host| format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true\n"));
        let registries = write(&root.join("registries.conf"), &insecure.concat())?;
        let config = write(
            &root.join("crio.conf"),
            &crio_conf([&root, &state], &socket, &policy)?,
        )?;
        let mut command = Command::new(find("crio", "cri-o")?);
        command
            .arg("--config")
            .arg(config)
            .args(["--config-dir", ""])
            .env("CONTAINERS_REGISTRIES_CONF", registries);
        Self::start(CRIO, &command, &root, &socket).await
    }

    async fn start(
        name: &'static str,
        command: &Command,
        root: &Path,
        socket: &Path,
    ) -> Result<Self> {
        let mut process = Process::spawn_bound(name, command, root.join("log"))?;
        process.wait_for_socket(socket).await?;
        let failed = |error: client::ClientError| Error::Connect {
            socket: socket.to_owned(),
            cause: error.to_string(),
        };
        let channel = client::connect(socket, PATIENCE).await.map_err(failed)?;
        let version = client::runtime(channel.clone())
            .version(v1::VersionRequest::default())
            .await
            .map_err(call("Version"))?
            .into_inner();
        Ok(Self {
            name,
            version: format!("{} {}", version.runtime_name, version.runtime_version),
            process,
            images: client::images(channel),
        })
    }

    /// PullImage.
    ///
    /// # Errors
    /// If it fails; the same for the next method.
    pub(crate) async fn pull(&mut self, image: &str) -> Result<Duration> {
        let request = v1::PullImageRequest {
            image: Some(spec(image)),
            ..Default::default()
        };
        let begun = Instant::now();
        let pulled = self.images.pull_image(request).await;
        let took = begun.elapsed();
        pulled.map_err(call("PullImage"))?;
        Ok(took)
    }

    /// RemoveImage.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn remove(&mut self, image: &str) -> Result<()> {
        let image = Some(spec(image));
        let request = v1::RemoveImageRequest { image };
        let removed = self.images.remove_image(request).await;
        removed.map(drop).map_err(call("RemoveImage"))
    }

    /// Its memory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn memory(&self) -> Result<Proportional> {
        Proportional::of(self.process.pid())
    }
}

fn crio_conf([root, state]: [&Path; 2], socket: &Path, policy: &Path) -> Result<String> {
    let (root, state) = (root.display(), state.display());
    let runc = find("runc", "runc")?;
    let (conmon, pinns) = (find("conmon", "conmon")?, find("pinns", "cri-o")?);
    Ok(format!(
        r#"[crio]
root = "{root}/storage"
runroot = "{state}/runroot"
storage_driver = "overlay"
log_dir = "{state}/logs"
version_file = "{state}/version"
version_file_persist = "{root}/version"
clean_shutdown_file = "{root}/clean"
[crio.api]
listen = {socket:?}
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
default_runtime = "runc"
pinns_path = {pinns:?}
container_exits_dir = "{state}/exits"
container_attach_socket_dir = "{state}/attach"
namespaces_dir = "{state}/ns"
hooks_dir = []
[crio.runtime.runtimes.runc]
runtime_path = {runc:?}
runtime_type = "oci"
runtime_root = "{state}/runc"
monitor_path = {conmon:?}
monitor_cgroup = "pod"
[crio.image]
signature_policy = {policy:?}
[crio.network]
network_dir = "{root}/cni"
plugin_dirs = ["{PLUGINS}"]
[crio.nri]
enable_nri = false
[crio.metrics]
enable_metrics = false
"#
    ))
}

fn make(dirs: [PathBuf; 2]) -> Result<[PathBuf; 2]> {
    for dir in &dirs {
        fs::create_dir_all(dir).during(|| format!("making {}", dir.display()))?;
    }
    Ok(dirs)
}

fn write(file: &Path, text: &str) -> Result<PathBuf> {
    fs::write(file, text).during(|| format!("writing {}", file.display()))?;
    Ok(file.to_owned())
}

fn spec(image: &str) -> v1::ImageSpec {
    requests::image_spec(image)
}

fn call(method: &'static str) -> impl Fn(Status) -> Error {
    move |status| Error::Call {
        method: method.to_owned(),
        cause: status.to_string(),
    }
}
