//! The lower bound: the OCI runtime and the CNI plugins alone, with a prepared bundle, mounted root and network namespace.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use criscope_linux::namespace::{Kind, Pins, Request};
use criscope_linux::rootfs::{MountRequest, Rootfs};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cri::{BEFORE_EXEC, TRUE};
use crate::error::{Error, IoContext, Result};
use crate::network::Network;

/// Durations of groups of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// ADD of all plugins.
    pub(crate) add: Duration,
    /// `create` and `start`.
    pub(crate) start: Duration,
    /// `exec`.
    pub(crate) exec: Duration,
    /// `kill` with SIGKILL, the end of the process, and `delete`.
    pub(crate) delete: Duration,
    /// DEL of all plugins.
    pub(crate) del: Duration,
}

/// The inputs of the calls.
pub(crate) struct Bare {
    runc: PathBuf,
    network: Network,
    layer: PathBuf,
    folder: PathBuf,
    pins: Pins,
    spec: Value,
}

/// A prepared pod: its namespace, bundle and mounted root.
pub(crate) struct Prepared {
    id: String,
    rootfs: Rootfs,
    bundle: PathBuf,
    netns: PathBuf,
}

/// A running pod, and how long its start took.
struct Up {
    /// The result of the CNI plugins, which DEL needs.
    result: Value,
    add: Duration,
    start: Duration,
}

impl Prepared {
    fn pid_file(&self) -> PathBuf {
        self.bundle.join("pid")
    }
}

impl Bare {
    /// `spec` was created by criscope for a container of the same image; its container-specific parts are replaced.
    pub(crate) fn new(
        runc: PathBuf,
        network: Network,
        layer: PathBuf,
        folder: PathBuf,
        spec: Value,
    ) -> Self {
        Self {
            runc,
            network,
            layer,
            pins: Pins::new(folder.join("ns")),
            folder,
            spec,
        }
    }

    /// Prepares what is not part of the measurement.
    ///
    /// # Errors
    /// If a file, namespace or mount cannot be created.
    pub(crate) async fn prepare(&self, id: &str, cgroup: &str) -> Result<Prepared> {
        let failed = |what: String| Error::Setup(format!("preparing {id}: {what}"));
        let request = Request {
            kinds: vec![Kind::Net, Kind::Ipc, Kind::Uts],
            ..Request::default()
        };
        let made = self.pins.make(id, request).await;
        made.map_err(|error| failed(error.to_string()))?;
        let netns = self.pins.path(id, Kind::Net);
        let bundle = self.folder.join("bundles").join(id);
        let rootfs = Rootfs::new(&bundle);
        let mounted = rootfs.mount(&MountRequest {
            layers: vec![self.layer.clone()],
            ..MountRequest::default()
        });
        let root = mounted.map_err(|error| failed(error.to_string()))?;
        let mut spec = self.spec.clone();
        spec["root"]["path"] = json!(root);
        spec["linux"]["cgroupsPath"] = json!(format!("{cgroup}/{id}"));
        let namespaces = spec["linux"]["namespaces"].as_array_mut();
        for namespace in namespaces.into_iter().flatten() {
            let kind = match namespace["type"].as_str() {
                Some("network") => Kind::Net,
                Some("ipc") => Kind::Ipc,
                Some("uts") => Kind::Uts,
                _ => continue,
            };
            namespace["path"] = json!(self.pins.path(id, kind));
        }
        let file = bundle.join("config.json");
        fs::write(&file, spec.to_string()).during(|| format!("writing {}", file.display()))?;
        Ok(Prepared {
            id: id.to_owned(),
            rootfs,
            bundle,
            netns,
        })
    }

    /// Removes what [`Self::prepare`] created.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub(crate) async fn clear(&self, prepared: Prepared) -> Result<()> {
        let id = &prepared.id;
        let failed = |what: String| Error::Setup(format!("clearing {id}: {what}"));
        let removed = prepared.rootfs.remove();
        removed.map_err(|error| failed(error.to_string()))?;
        let unpinned = self.pins.remove(id).await;
        unpinned.map_err(|error| failed(error.to_string()))
    }

    /// All calls of a pod with one container: ADD, create, start, kill, delete, DEL. Blocks.
    ///
    /// # Errors
    /// If a call fails; the same for the parts.
    pub(crate) fn live(&self, pod: &Prepared) -> Result<()> {
        let up = self.start(pod)?;
        self.end(pod, &up).map(drop)
    }

    /// The same with an `exec` after the start, and the durations. Blocks.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) fn measure(&self, pod: &Prepared) -> Result<Floor> {
        let up = self.start(pod)?;
        thread::sleep(BEFORE_EXEC);
        let begin = Instant::now();
        self.runc(pod, &["exec".as_ref()], &TRUE)?;
        let exec = begin.elapsed();
        let (delete, del) = self.end(pod, &up)?;
        Ok(Floor {
            add: up.add,
            start: up.start,
            exec,
            delete,
            del,
        })
    }

    fn start(&self, pod: &Prepared) -> Result<Up> {
        let begin = Instant::now();
        let result = self.network.add(&pod.id, &pod.netns)?;
        let added = Instant::now();
        self.runc(
            pod,
            &[
                "create".as_ref(),
                "--bundle".as_ref(),
                pod.bundle.as_ref(),
                "--pid-file".as_ref(),
                pod.pid_file().as_ref(),
            ],
            &[],
        )?;
        self.runc(pod, &["start".as_ref()], &[])?;
        Ok(Up {
            result,
            add: added - begin,
            start: added.elapsed(),
        })
    }

    /// Returns the durations of `kill` and `delete`, and of DEL.
    fn end(&self, pod: &Prepared, up: &Up) -> Result<(Duration, Duration)> {
        let begin = Instant::now();
        self.runc(pod, &["kill".as_ref()], &["KILL"])?;
        let file = pod.pid_file();
        let text = fs::read_to_string(&file).during(|| format!("reading {}", file.display()))?;
        let pid = text
            .trim()
            .parse()
            .map_err(|_| Error::Setup(format!("no pid: {text}")))?;
        // The process is a child of this one, which is a subreaper, since runc has exited.
        waitpid(Pid::from_raw(pid), None)
            .map_err(std::io::Error::from)
            .during(|| format!("waiting for {pid}"))?;
        self.runc(pod, &["delete".as_ref()], &[])?;
        let deleted = Instant::now();
        self.network.del(&pod.id, &pod.netns, &up.result)?;
        Ok((deleted - begin, deleted.elapsed()))
    }

    fn runc(&self, pod: &Prepared, verb: &[&Path], last: &[&str]) -> Result<()> {
        let what = || format!("running {} {}", self.runc.display(), verb[0].display());
        let log = pod.bundle.join("log");
        let output = File::create(&log).during(what)?;
        let status = Command::new(&self.runc)
            .arg("--root")
            .arg(self.folder.join("oci"))
            .args(verb)
            .arg(&pod.id)
            .args(last)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .status()
            .during(what)?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        Err(Error::Setup(format!("{}: {}", what(), said.trim())))
    }
}
