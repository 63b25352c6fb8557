//! A private node: directories, network namespace, cgroup, daemon.

use std::sync::atomic::AtomicU32;

use criscope::client;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use criscope_linux::namespace::{self, Kind, Pins, Request};
use tonic::transport::Channel;

use super::left;
use crate::harness::daemon::{PLUGINS, RuntimeConfig};
use crate::harness::leaks::Traces;
use crate::harness::packages::file;
use crate::prelude::*;

pub(super) use crate::harness::busybox::NAME as IMAGE;

/// See the module documentation. Dropping it removes everything.
pub(super) struct Node {
    dir: TempDir,
    proxy: Option<Proxy>,
    channel: Option<Channel>,
    traces: Traces,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        left::power_off(self);
        let pins = self.dir.path().join("net");
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.map(|runtime| runtime.block_on(Pins::new(pins).remove("node")))
        });
        let _ = thread.join();
    }
}

impl Node {
    pub(super) async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        need_root();
        for plugin in ["bridge", "host-local", "portmap"] {
            file(
                &format!("/usr/lib/cni/{plugin}"),
                "containernetworking-plugins",
            );
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().expect("dir");
        let pins = Pins::new(dir.path().join("net"));
        let kinds = Request {
            kinds: vec![Kind::Net],
            ..Request::default()
        };
        pins.make("node", kinds).await.expect("network namespace");
        let node = Self {
            dir,
            proxy: None,
            channel: None,
            traces: Traces::of(&format!("crash{}x{number}", std::process::id())),
        };
        for dir in ["cni", "logs", "root"] {
            fs::create_dir_all(node.path(dir)).expect("dir");
        }
        let archive = node.path("busybox.tar");
        busybox::write(&archive, IMAGE);
        image_store::import(&archive, &node.path("root/images")).await;
        node
    }

    /// The name that all its objects contain.
    pub(super) fn name(&self) -> &str {
        self.traces.name()
    }

    /// A path below the directory that contains all files of the daemon.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(self.name()).join(name)
    }

    pub(super) fn cgroup(&self) -> String {
        format!("/{}", self.name())
    }

    /// Writes the network's configuration and returns the daemon's.
    fn configure(&self) -> String {
        let network = json!({
            "cniVersion": "1.0.0",
            "name": self.name(),
            "plugins": [
                {"type": "bridge", "bridge": "crash0", "isGateway": true, "ipMasq": false,
                 "ipam": {"type": "host-local", "dataDir": self.path("ipam"),
                          "ranges": [[{"subnet": "10.77.0.0/16"}]]}},
                {"type": "portmap", "capabilities": {"portMappings": true}},
            ],
        });
        fs::write(self.path("cni/10-crash.conflist"), network.to_string()).expect("network");
        let config = RuntimeConfig {
            root: &self.path("root"),
            state: &self.path("state"),
            shim: Some(crate::SHIM.as_ref()),
            handlers: &[("runc", &program("runc", "runc"))],
            cni_conf: &self.path("cni"),
            cni_bins: &[PLUGINS.as_ref()],
            cni_cache: &self.path("root/cni"),
            more: "restrict_oom_score_adj = true\ncgroup_driver = \"cgroupfs\"",
        };
        format!(
            "[backends.builtin]\nkind = \"builtin\"\n{config}[runtime.images]\ncerts_dirs = []\nkeep_unused = \"0s\"\n"
        )
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("criscope.sock")
    }

    /// Listens on the node's loopback.
    pub(super) async fn listen(&self) -> tokio::net::TcpListener {
        let pins = Pins::new(self.dir.path().join("net"));
        let namespace = pins.open("node", Kind::Net).expect("its namespace");
        let bind = || std::net::TcpListener::bind("127.0.0.1:0");
        let bound = namespace::run_in(move || Ok(namespace), Kind::Net, bind).await;
        let listener = bound.expect("a thread").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        tokio::net::TcpListener::from_std(listener).expect("a socket")
    }

    /// A command that runs in the node's network namespace.
    pub(super) fn inside(&self, program: &Path) -> Command {
        let mut command = self.nsenter();
        command.arg(program);
        command
    }

    fn nsenter(&self) -> Command {
        let mut command = Command::new("nsenter");
        let net = self.dir.path().join("net/node/net");
        command.arg(format!("--net={}", net.display())).arg("--");
        command
    }

    /// Starts the daemon, which kills itself at this step, and waits until it responds.
    pub(super) async fn start(&mut self, step: Option<&str>) {
        let mut start = Start::new(crate::CRISCOPE)
            .listen(&self.socket())
            .config(&self.configure());
        if let Some(step) = step {
            start = start.env("CRISCOPE_CRASH_AT", step);
        }
        self.proxy = Some(start.wrapped(self.nsenter()).spawn());
        let socket = self.socket();
        let channel = until("criscope", || async {
            let channel = client::connect(&socket, Duration::from_secs(1))
                .await
                .ok()?;
            let mut client = client::runtime(channel.clone());
            client.version(v1::VersionRequest::default()).await.ok()?;
            let request = v1::ImageStatusRequest {
                image: Some(image_spec()),
                verbose: false,
            };
            let mut images = client::images(channel.clone());
            let image = images.image_status(request).await.ok()?;
            image.into_inner().image.map(|_| channel)
        });
        self.channel = Some(channel.await);
    }

    pub(super) async fn restart(&mut self, step: Option<&str>) {
        self.kill();
        self.start(step).await;
    }

    /// Kills it with SIGKILL. Its pods keep running.
    pub(super) fn kill(&mut self) {
        self.channel = None;
        self.proxy = None;
    }

    /// Waits until it has killed itself.
    pub(super) async fn died(&mut self, what: &str) {
        use std::os::unix::process::ExitStatusExt as _;
        let (status, _) = self.proxy.take().expect("started").ended().await;
        assert_eq!(status.signal(), Some(9), "{what}");
        self.channel = None;
    }

    /// The pid of the daemon.
    pub(super) fn pid(&self) -> u32 {
        let pid = self.proxy.as_ref().expect("started").pid();
        pid.as_raw().cast_unsigned()
    }

    pub(super) fn client(&self) -> RuntimeServiceClient<Channel> {
        client::runtime(self.channel.clone().expect("started"))
    }

    pub(super) fn images(&self) -> ImageServiceClient<Channel> {
        client::images(self.channel.clone().expect("started"))
    }

    /// The status of a container, and its pid.
    pub(super) async fn container(&self, id: &str) -> Option<(v1::ContainerStatus, u32)> {
        let request = requests::status(id, true);
        let answer = self
            .client()
            .container_status(request)
            .await
            .ok()?
            .into_inner();
        let info: Value = serde_json::from_str(answer.info.get("info")?).ok()?;
        let pid = info["pid"].as_u64()?.try_into().ok()?;
        Some((answer.status?, pid))
    }

    /// Kills a process of this node.
    pub(super) fn end(pid: u32) {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("kill");
    }
}

pub(super) fn image_spec() -> v1::ImageSpec {
    requests::image_spec(IMAGE)
}

/// A container that runs throughout and must not be affected.
pub(super) struct Witness {
    pub(super) life: super::Life,
    pid: u32,
    begun: u64,
    log: PathBuf,
}

impl Witness {
    pub(super) async fn new(node: &mut Node) -> Self {
        use super::Verb;
        let mut life = super::Life::new(node, "witness", false).writing();
        for verb in [Verb::Run, Verb::Create, Verb::Start] {
            life.ask(node, verb).await.expect("the witness");
        }
        let (_, pid) = node.container(&life.container).await.expect("its status");
        let begun = criscope_shim::record::start_time(pid).expect("the container is running");
        let log = node.path("logs").join("witness.log");
        Self {
            life,
            pid,
            begun,
            log,
        }
    }

    /// Asserts that it is the same process, still writing, with the same status.
    pub(super) async fn is_well(&self, node: &mut Node, when: &str) {
        let begun = criscope_shim::record::start_time(self.pid);
        assert_eq!(begun, Some(self.begun), "{when}: its process");
        let (status, pid) = node
            .container(&self.life.container)
            .await
            .expect("its status");
        assert_eq!(pid, self.pid, "{when}");
        assert_eq!(
            status.state,
            v1::ContainerState::ContainerRunning as i32,
            "{when}"
        );
        let length = || fs::metadata(&self.log).map_or(0, |found| found.len());
        let before = length();
        until_true("a line of the witness", async || length() > before).await;
    }

    pub(super) async fn end(mut self, node: &Node) {
        let done = self.life.ask(node, super::Verb::RemovePod).await;
        done.expect("the witness is removed");
    }
}
