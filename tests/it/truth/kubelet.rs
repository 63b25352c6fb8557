//! A kubelet: the calls of a real one (1.36), in its order and with its deadlines. Only its patience is shorter.
//!
//! What carries over: lists once a second and statuses of what has changed; one image pull at a time; PodSandboxStatus
//! after RunPodSandbox; ImageStatus before and after a pull; init containers one after the other, the next one after the
//! status of the last; postStart and preStop by ExecSync without a timeout, probes with one; a deadline of two minutes,
//! four for RunPodSandbox, the grace period more for StopContainer, none for PullImage; calls of a deleted pod are
//! cancelled; StopPodSandbox twice, the second time by the garbage collection before RemovePodSandbox.

use std::time::SystemTime;

use criscope::client;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinHandle;
use tonic::Request;
use tonic::transport::Channel;

use super::spec::{Container, PodSpec};
use super::worker::Worker;
use crate::prelude::*;

/// Deadline of most calls.
pub(super) const DEADLINE: Duration = Duration::from_secs(120);

/// Between two lists of everything.
const RELIST: Duration = Duration::from_millis(700);

/// So many lists from one question for the state of the runtime to the next.
const STATUS_EVERY: u32 = 5;

/// The kubelet of a node. Dropping it ends what it does; pods stay.
pub(super) struct Kubelet {
    pub(super) runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    /// Held during a pull, where it pulls one image at a time.
    pulls: AsyncMutex<()>,
    cgroup: String,
    logs: PathBuf,
    /// The directory of the kubelet.
    dir: PathBuf,
    /// Woken when something of their pod has changed, by uid.
    workers: Mutex<HashMap<String, Arc<Notify>>>,
    relist: Mutex<Option<JoinHandle<()>>>,
    /// The containers of pods, by uid, as in its checkpoint.
    allocated: Mutex<HashMap<String, Value>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.relist).take() {
            task.abort();
        }
    }
}

/// A pod that the kubelet looks after. Dropping it ends that, and leaves the pod as it is.
pub(super) struct Pod {
    worker: Arc<Worker>,
    task: JoinHandle<()>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.worker.forget();
        self.task.abort();
    }
}

impl Pod {
    /// The API server says that it is deleted.
    pub(super) fn delete(&self) {
        self.worker.deleted.cancel();
    }

    /// Its ephemeral container is added.
    pub(super) fn debug(&self) {
        self.worker.debugged.cancel();
        self.worker.wake.notify_one();
    }

    /// Waits until it is deleted and everything of it is removed.
    pub(super) async fn gone(mut self) {
        self.delete();
        let _ = (&mut self.task).await;
    }

    /// What the kubelet has done for it so far.
    pub(super) fn done(&self) -> Done {
        lock(&self.worker.done).clone()
    }
}

/// Counts and ids that a test waits for.
#[derive(Clone, Default)]
pub(super) struct Done {
    pub(super) sandbox: Option<String>,
    pub(super) containers: HashMap<&'static str, String>,
    pub(super) started: u32,
    pub(super) failed: u32,
    pub(super) probes_failed: u32,
    pub(super) killed: u32,
    pub(super) exited: u32,
    /// The last error.
    pub(super) error: Option<Status>,
}

impl Kubelet {
    /// Connects, and begins to list.
    pub(super) async fn of(socket: &Path, cgroup: &str, root: &Path) -> Arc<Self> {
        let channel = client::connect(socket, Duration::from_secs(30)).await;
        let channel = channel.expect("connect");
        let kubelet = Arc::new(Self {
            runtime: client::runtime(channel.clone()),
            images: client::images(channel),
            pulls: AsyncMutex::default(),
            cgroup: cgroup.to_owned(),
            logs: root.join("logs"),
            dir: root.join(super::stage::KUBELET),
            workers: Mutex::default(),
            relist: Mutex::default(),
            allocated: Mutex::default(),
        });
        let weak = Arc::downgrade(&kubelet);
        let task = tokio::spawn(async move {
            let mut known = HashMap::new();
            for round in 0_u32.. {
                let Some(kubelet) = weak.upgrade() else {
                    return;
                };
                if round.is_multiple_of(STATUS_EVERY) {
                    let request = kubelet.timed(v1::StatusRequest::default(), DEADLINE);
                    let _ = kubelet.runtime.clone().status(request).await;
                }
                kubelet.relist(&mut known).await;
                drop(kubelet);
                tokio::time::sleep(RELIST).await;
            }
        });
        *lock(&kubelet.relist) = Some(task);
        kubelet
    }

    /// Removes a pod and the images of a registry, so that the next pull is a first one.
    pub(super) async fn forget(&self, pod: &str, registry: &str) {
        let mut runtime = self.runtime.clone();
        let request = v1::ListPodSandboxRequest::default();
        let listed = runtime.list_pod_sandbox(request).await;
        let sandboxes = listed.expect("ListPodSandbox").into_inner().items;
        let has_name =
            |sandbox: &v1::PodSandbox| sandbox.metadata.as_ref().is_some_and(|of| of.name == pod);
        for sandbox in sandboxes.into_iter().filter(has_name) {
            let pod_sandbox_id = sandbox.id;
            let request = v1::StopPodSandboxRequest {
                pod_sandbox_id: pod_sandbox_id.clone(),
            };
            // The case may have broken it. Then it stays.
            let _ = runtime.stop_pod_sandbox(request).await;
            let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
            let _ = runtime.remove_pod_sandbox(request).await;
        }
        let mut images = self.images.clone();
        let request = v1::ListImagesRequest::default();
        let listed = images.list_images(request).await.expect("ListImages");
        for image in listed.into_inner().images {
            if image.repo_tags.iter().any(|tag| tag.starts_with(registry)) {
                let request = v1::RemoveImageRequest {
                    image: Some(requests::image_spec(&image.id)),
                };
                images.remove_image(request).await.expect("RemoveImage");
            }
        }
    }

    /// Hears of a pod, and looks after it from now on.
    pub(super) fn add(self: &Arc<Self>, spec: PodSpec) -> Pod {
        let wake = Arc::new(Notify::new());
        lock(&self.workers).insert(spec.uid(), Arc::clone(&wake));
        let worker = Arc::new(Worker::new(Arc::clone(self), spec, wake));
        let own = Arc::clone(&worker);
        let task = tokio::spawn(async move { own.run().await });
        Pod { worker, task }
    }

    pub(super) fn remove(&self, uid: &str) {
        lock(&self.workers).remove(uid);
    }

    /// The pod lifecycle event generator: wakes the worker of each pod of which something has changed.
    async fn relist(&self, known: &mut HashMap<String, (String, i32)>) {
        let pods = self.timed(v1::ListPodSandboxRequest::default(), DEADLINE);
        let containers = self.timed(v1::ListContainersRequest::default(), DEADLINE);
        let (mut one, mut two) = (self.runtime.clone(), self.runtime.clone());
        let Ok(pods) = one.list_pod_sandbox(pods).await else {
            return;
        };
        let Ok(containers) = two.list_containers(containers).await else {
            return;
        };
        let uid = |labels: &HashMap<String, String>| {
            let uid = labels.get("io.kubernetes.pod.uid");
            uid.cloned().unwrap_or_default()
        };
        let pods = pods.into_inner().items.into_iter();
        let pods = pods.map(|pod| (uid(&pod.labels), pod.id, pod.state));
        let containers = containers.into_inner().containers.into_iter();
        let containers = containers.map(|c| (uid(&c.labels), c.id, c.state));
        let now: HashMap<_, _> = pods
            .chain(containers)
            .map(|(uid, id, state)| (id, (uid, state)))
            .collect();
        let differs = |a: &HashMap<String, (String, i32)>, b: &HashMap<String, (String, i32)>| {
            let differing = a.iter().filter(|(id, it)| b.get(*id) != Some(it));
            differing.map(|(_, it)| it.0.clone()).collect::<Vec<_>>()
        };
        let mut changed = differs(&now, known);
        changed.extend(differs(known, &now));
        let workers = lock(&self.workers);
        for uid in changed {
            if let Some(worker) = workers.get(&uid) {
                worker.notify_one();
            }
        }
        drop(workers);
        *known = now;
    }

    /// A request with a deadline.
    pub(super) fn timed<T>(&self, message: T, deadline: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(deadline);
        request
    }

    /// The configuration of a sandbox of this pod.
    pub(super) fn sandbox_config(
        &self,
        spec: &PodSpec,
        attempt: u32,
        seen: SystemTime,
    ) -> v1::PodSandboxConfig {
        fs::create_dir_all(self.pod_dir(spec)).expect("the directory of the pod");
        if spec.is_written_down {
            self.write_down(spec);
        }
        let logs = self.logs.join(&spec.name);
        for container in spec.init.iter().chain(&spec.containers) {
            fs::create_dir_all(logs.join(container.name)).expect("logs");
        }
        spec.sandbox(attempt, &self.cgroup, seen, &logs)
    }

    fn pod_dir(&self, spec: &PodSpec) -> PathBuf {
        self.dir.join("pods").join(spec.uid())
    }

    /// Adds the names of the containers to the kubelet's checkpoint of allocated resources.
    fn write_down(&self, spec: &PodSpec) {
        let mut entries = lock(&self.allocated);
        let containers = spec.init.iter().chain(&spec.containers);
        let names: HashMap<_, _> = containers.map(|c| (c.name, json!({}))).collect();
        entries.insert(spec.uid(), json!({"ContainerResources": names}));
        let data = json!({"entries": &*entries}).to_string();
        let checkpoint = json!({"data": data, "checksum": 7}).to_string();
        fs::write(self.dir.join("allocated_pods_state"), checkpoint).expect("a checkpoint");
    }

    /// The pod is admitted, and its volumes are awaited: its directory is there, and no call comes.
    pub(super) fn admit(&self, spec: &PodSpec) {
        let volumes = self
            .pod_dir(spec)
            .join("volumes/kubernetes.io~empty-dir/cache");
        fs::create_dir_all(volumes).expect("the directory of the pod");
        self.write_down(spec);
    }

    /// The pod is gone.
    pub(super) fn remove_dir(&self, spec: &PodSpec) {
        let _ = fs::remove_dir_all(self.pod_dir(spec));
    }

    /// Is this image there?
    pub(super) async fn has_image(&self, container: &Container) -> Result<bool, Status> {
        let request = v1::ImageStatusRequest {
            image: Some(container.image_spec()),
            verbose: false,
        };
        let request = self.timed(request, DEADLINE);
        let status = self.images.clone().image_status(request).await?;
        Ok(status.into_inner().image.is_some())
    }

    /// Pulls; `serial`: waits for its turn first.
    pub(super) async fn pull(
        &self,
        container: &Container,
        sandbox: &v1::PodSandboxConfig,
        serial: bool,
    ) -> Result<(), Status> {
        let _turn = match serial {
            true => Some(self.pulls.lock().await),
            false => None,
        };
        let request = v1::PullImageRequest {
            image: Some(container.image_spec()),
            auth: None,
            sandbox_config: Some(sandbox.clone()),
        };
        self.images.clone().pull_image(request).await?;
        // Its size, for the event.
        self.has_image(container).await?;
        Ok(())
    }

    /// Runs a script in a container; `timeout` in seconds, 0 for none. Returns its exit code.
    pub(super) async fn exec(&self, id: &str, script: &str, timeout: i64) -> Result<i32, Status> {
        let message = requests::exec_sync(id, requests::shell_command(script), timeout);
        let mut request = Request::new(message);
        if let Ok(seconds @ 1..) = u64::try_from(timeout) {
            request.set_timeout(DEADLINE + Duration::from_secs(seconds));
        }
        let done = self.runtime.clone().exec_sync(request).await?;
        Ok(done.into_inner().exit_code)
    }
}
