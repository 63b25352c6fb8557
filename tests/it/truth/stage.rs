//! A node for the cases: real parts, criscope before them, and a kubelet.

use std::os::unix::fs::symlink;

use criscope::client;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use criscope_nri::PluginStub;
use tokio::net::UnixStream;
use tokio::sync::Mutex as AsyncMutex;
use tonic::transport::Channel;

use super::asked;
use super::kubelet::{Done, Kubelet, Pod};
use super::parts;
use super::registries;
use super::score::Seen;
use super::spec::{Container, NAMESPACE, PodSpec};
use crate::harness::process::Process;
use crate::prelude::*;

/// How long a case may wait for what it provokes.
const PATIENCE: Duration = Duration::from_secs(45);

/// What runs the pods.
pub(super) enum Runtime {
    Containerd(Box<AsyncMutex<Containerd>>, Box<Proxy>),
    Own(Box<Daemon>),
}

/// A node.
pub(super) struct Stage {
    pub(super) kubelet: Arc<Kubelet>,
    pub(super) registry: Registry,
    pub(super) root: PathBuf,
    /// Of the runtime, its mounts and its cgroup.
    pub(super) name: String,
    pub(super) relay: Relay,
    /// Other programs that call the runtime.
    nodetool: Relay,
    crictl: Relay,
    pub(super) runtime: Runtime,
    /// The NRI plugin of the built-in runtime.
    _plugin: Option<PluginStub>,
    /// When criscope began to watch.
    began: Instant,
}

/// A process of some name between a client and criscope, which asks the kernel who calls.
pub(super) struct Relay {
    process: Mutex<Option<Process>>,
    dir: TempDir,
    name: &'static str,
    criscope: PathBuf,
}

impl Relay {
    async fn to(criscope: &Path, name: &'static str) -> Self {
        let relay = Self {
            process: Mutex::default(),
            dir: tempfile::tempdir().expect("dir"),
            name,
            criscope: criscope.to_owned(),
        };
        symlink(program("socat", "socat"), relay.dir.path().join(name)).expect("link");
        relay.start().await;
        relay
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("cri.sock")
    }

    /// Starts the process.
    pub(super) async fn start(&self) {
        let mut command = Command::new(self.dir.path().join(self.name));
        command
            .arg(format!(
                "UNIX-LISTEN:{},fork,unlink-early",
                self.socket().display()
            ))
            .arg(format!("UNIX-CONNECT:{}", self.criscope.display()));
        let process = Process::spawn(self.name, &mut command, self.dir.path().join("log"));
        *lock(&self.process) = Some(process.expect("start socat"));
        // socat binds the socket before it listens.
        let connects = || async { UnixStream::connect(&self.socket()).await.ok() };
        until("the relay", connects).await;
    }

    /// Ends the process and with it all of its connections.
    pub(super) fn end(&self) {
        drop(lock(&self.process).take());
    }
}

/// The directory of the kubelet, below that of the node.
pub(super) const KUBELET: &str = "kubelet";

/// The configuration of criscope.
fn story(root: &Path) -> String {
    format!("[story]\nkubelet_dir = {:?}\n", root.join(KUBELET))
}

impl Stage {
    /// With a containerd, edited first.
    pub(super) async fn containerd(
        edit: impl FnOnce(&Containerd, &mut crate::harness::containerd::Config),
    ) -> Arc<Self> {
        let registry = Registry::start().await;
        registries::fill(&registry);
        let containerd = Containerd::with(|containerd, config| {
            parts::break_by_handler(containerd, config);
            edit(containerd, config);
        })
        .await;
        let proxy = Start::new(crate::CRISCOPE)
            .upstream(&containerd.socket())
            .config(&story(&containerd.root()))
            .ready()
            .await;
        let (name, root) = (containerd.name().to_owned(), containerd.root());
        let relay = Relay::to(&proxy.socket(), "kubelet").await;
        let nodetool = Relay::to(&proxy.socket(), "nodetool").await;
        let crictl = Relay::to(&proxy.socket(), "crictl").await;
        Arc::new(Self {
            kubelet: Kubelet::of(&relay.socket(), &containerd.cgroup(), &root).await,
            registry,
            root,
            name,
            relay,
            nodetool,
            crictl,
            runtime: Runtime::Containerd(Box::new(AsyncMutex::new(containerd)), Box::new(proxy)),
            _plugin: None,
            began: Instant::now(),
        })
    }

    /// With the built-in runtime.
    pub(super) async fn own() -> Arc<Self> {
        let registry = Registry::start().await;
        registries::fill(&registry);
        let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
        parts::break_daemon(&mut daemon);
        asked::configure(&mut daemon);
        daemon.configure(&story(&daemon.root()));
        daemon.start().await;
        let plugin = asked::plugin(&daemon).await;
        let (name, root) = (daemon.name().to_owned(), daemon.root());
        let relay = Relay::to(&daemon.socket(), "kubelet").await;
        let nodetool = Relay::to(&daemon.socket(), "nodetool").await;
        let crictl = Relay::to(&daemon.socket(), "crictl").await;
        Arc::new(Self {
            kubelet: Kubelet::of(&relay.socket(), &daemon.cgroup(), &root).await,
            registry,
            root,
            name,
            relay,
            nodetool,
            crictl,
            runtime: Runtime::Own(Box::new(daemon)),
            _plugin: Some(plugin),
            began: Instant::now(),
        })
    }

    pub(super) fn proxy(&self) -> &Proxy {
        match &self.runtime {
            Runtime::Containerd(_, proxy) => proxy,
            Runtime::Own(daemon) => daemon.program(),
        }
    }

    /// The runtime service, as another program calls it.
    async fn runtime_of(&self, relay: &Relay) -> RuntimeServiceClient<Channel> {
        let channel = client::connect(&relay.socket(), Duration::from_secs(30)).await;
        client::runtime(channel.expect("connect"))
    }

    /// The runtime service, as a program of the name `nodetool` calls it.
    pub(super) async fn nodetool(&self) -> RuntimeServiceClient<Channel> {
        self.runtime_of(&self.nodetool).await
    }

    /// The runtime service, as crictl calls it.
    pub(super) async fn crictl(&self) -> RuntimeServiceClient<Channel> {
        self.runtime_of(&self.crictl).await
    }

    /// Waits until criscope has watched for so long.
    pub(super) async fn watched_for(&self, time: Duration) {
        tokio::time::sleep(time.saturating_sub(self.began.elapsed())).await;
    }

    /// The containerd, for one case at a time.
    pub(super) async fn lock(&self) -> tokio::sync::MutexGuard<'_, Containerd> {
        match &self.runtime {
            Runtime::Containerd(containerd, _) => containerd.lock().await,
            Runtime::Own(_) => panic!("the built-in runtime is no containerd"),
        }
    }

    /// Lets go what hangs. Everything ends with the stage; nothing of it is left on the machine.
    pub(super) fn end(self: Arc<Self>) {
        let (name, root) = (self.name.clone(), self.root.clone());
        let _ = fs::remove_file(root.join("hangs"));
        let Ok(stage) = Arc::try_unwrap(self) else {
            panic!("a case still has the stage");
        };
        let log = stage.proxy().log();
        drop(stage);
        assert_eq!(leaks::find(&name), [""; 0]);
        let panics: Vec<_> = log
            .iter()
            .filter(|line| line.contains("panicked at"))
            .collect();
        assert!(panics.is_empty(), "criscope panicked: {panics:?}");
    }
}

/// What a case has to play with: the stage, and a name for its pod.
#[derive(Clone)]
pub(super) struct Play {
    pub(super) stage: Arc<Stage>,
    pub(super) pod: String,
}

impl Play {
    /// The manifest of its pod.
    pub(super) fn spec(&self, containers: Vec<Container>) -> PodSpec {
        PodSpec::new(&self.pod, containers)
    }

    /// A pod with one container that runs until it is stopped.
    pub(super) fn idle(&self) -> PodSpec {
        self.spec(vec![Container::idle("app")])
    }

    /// The kubelet hears of the pod.
    pub(super) fn add(&self, spec: PodSpec) -> Pod {
        self.stage.kubelet.add(spec)
    }

    /// Adds a pod, and waits until its container is started.
    pub(super) async fn up(&self, spec: PodSpec) -> Pod {
        let pod = self.add(spec);
        self.wait(&pod, "its start", |done| done.started == 1).await;
        pod
    }

    /// Adds a pod, and waits until it has its sandbox.
    pub(super) async fn with_sandbox(&self, spec: PodSpec) -> Pod {
        let pod = self.add(spec);
        self.wait(&pod, "the sandbox", |done| done.sandbox.is_some())
            .await;
        pod
    }

    /// The full name of an image in the registry.
    pub(super) fn image(&self, name: &str) -> String {
        self.stage.registry.name(name)
    }

    /// Adds a pod, waits for something, and returns what is said then.
    pub(super) async fn tell(
        &self,
        spec: PodSpec,
        what: &str,
        until: impl Fn(&Done) -> bool,
    ) -> String {
        let pod = self.add(spec);
        self.wait(&pod, what, until).await;
        self.line().await
    }

    /// Adds a pod, and returns what is said when its container is started.
    pub(super) async fn tell_start(&self, spec: PodSpec) -> String {
        let _pod = self.up(spec).await;
        self.line().await
    }

    /// The first line after a time: for causes that only time shows.
    pub(super) async fn line_after(&self, time: f64) -> String {
        seconds(time).await;
        self.line().await
    }

    /// Deletes the pod after a time, and returns what is said when it is gone.
    pub(super) async fn gone_after(&self, time: f64, pod: Pod) -> String {
        seconds(time).await;
        pod.gone().await;
        self.line().await
    }

    /// Waits until this holds for what the kubelet has done.
    pub(super) async fn wait(&self, pod: &Pod, what: &str, until: impl Fn(&Done) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !until(&pod.done()) {
            let done = pod.done();
            assert!(
                Instant::now() < end,
                "timed out waiting for {what}: {} started, {} failed ({:?})",
                done.started,
                done.failed,
                done.error
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The first line of `criscope explain` now.
    pub(super) async fn line(&self) -> String {
        // Calls become a story beside the request path.
        tokio::time::sleep(Duration::from_millis(700)).await;
        self.line_of(&self.pod).await
    }

    /// Waits until the start of the pod is complete.
    pub(super) async fn begun(&self) {
        let path = format!("/debug/pods/{NAMESPACE}/{}", self.pod);
        until_true("the end of its start", async || {
            let story = self.stage.proxy().json(&path).await;
            story["episodes"][0]["state"] == "ok"
        })
        .await;
    }

    /// The first line, once it has these words, or after a time without them.
    pub(super) async fn line_with(&self, words: &str) -> String {
        let end = Instant::now() + PATIENCE / 2;
        loop {
            let line = self.line().await;
            if line.contains(words) || Instant::now() > end {
                return line;
            }
        }
    }

    /// The row of a pod in `criscope pods`.
    pub(super) async fn listed(&self, name: &str) -> Option<Value> {
        let pods = self
            .stage
            .proxy()
            .json("/debug/pods?by=pod&limit=500")
            .await;
        let mut pods = pods["pods"].as_array()?.iter();
        pods.find(|pod| pod["name"] == *name).cloned()
    }

    /// The first line of `criscope explain` now, and the state in `criscope pods`.
    pub(super) async fn seen(&self) -> Seen {
        let line = self.line().await;
        let pod = self.listed(&self.pod).await;
        let state = pod.map(|pod| pod["state"].as_str().unwrap_or_default().to_owned());
        Seen {
            line,
            state: state.unwrap_or_default(),
        }
    }

    /// The same after some seconds.
    pub(super) async fn seen_after(&self, time: f64) -> Seen {
        seconds(time).await;
        self.seen().await
    }

    /// The id of the container `app`, which runs.
    pub(super) fn app(&self, pod: &Pod) -> String {
        pod.done().containers["app"].clone()
    }

    pub(super) async fn line_of(&self, pod: &str) -> String {
        let path = format!("/debug/pods/{NAMESPACE}/{pod}?format=json");
        let (_, text) = self.stage.proxy().get(&path).await;
        let story: Value = serde_json::from_str(&text).unwrap_or_default();
        let said = story["headline"].as_str().or(story["error"].as_str());
        said.unwrap_or_default().to_owned()
    }
}

pub(super) async fn seconds(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}
