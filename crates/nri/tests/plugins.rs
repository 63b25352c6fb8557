//! The runtime's end with plugins of the test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use criscope_nri::api::*;
use criscope_nri::{
    Adaptation, BoxFuture, CloseReason, EventError, EvictionRequest, NriSettings, PluginInfo,
    PluginObserver, PluginReply, PluginStub, Runtime,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime with these pods, which notes what is asked of it.
#[derive(Debug)]
struct Host {
    pods: usize,
    asked: mpsc::Sender<String>,
}

impl Runtime for Host {
    fn list(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        let pods = (0..self.pods).map(|n| PodSandbox {
            id: n.to_string(),
            name: "x".repeat(1 << 20),
            ..Default::default()
        });
        let pods = pods.collect();
        Box::pin(async { (pods, Vec::new()) })
    }

    fn update(&self, update: ContainerUpdate) -> BoxFuture<'_, Result<(), String>> {
        let _ = self
            .asked
            .try_send(format!("update {}", update.container_id));
        Box::pin(async move {
            match update.container_id.as_str() {
                "bad" => Err("it cannot be updated".to_owned()),
                _ => Ok(()),
            }
        })
    }

    fn evict(&self, eviction: EvictionRequest) -> BoxFuture<'_, Result<(), String>> {
        let EvictionRequest {
            plugin,
            container_id,
            reason,
        } = eviction;
        let asked = format!("evict {container_id} by {plugin}: {reason}");
        let _ = self.asked.try_send(asked);
        Box::pin(async { Ok(()) })
    }
}

/// Notes which plugins come and go.
#[derive(Debug)]
struct Seen(mpsc::Sender<(String, Option<CloseReason>)>);

impl PluginObserver for Seen {
    fn connected(&self, plugin: &PluginInfo) {
        let _ = self.0.try_send((plugin.name.clone(), None));
    }

    fn closed(&self, plugin: &PluginInfo, reason: &CloseReason) {
        let _ = self.0.try_send((plugin.name.clone(), Some(reason.clone())));
    }
}

struct Stage {
    nri: Arc<Adaptation>,
    dir: tempfile::TempDir,
    asked: mpsc::Receiver<String>,
    seen: mpsc::Receiver<(String, Option<CloseReason>)>,
}

impl Stage {
    async fn new() -> Self {
        Self::with(0, |_| ()).await
    }

    async fn with(pods: usize, change: impl FnOnce(&mut NriSettings)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut settings = NriSettings {
            socket: Some(dir.path().join("nri.sock")),
            plugin_dir: Some(dir.path().join("plugins")),
            config_dir: dir.path().join("conf.d"),
            registration_timeout: PATIENCE,
            request_timeout: PATIENCE,
            ..NriSettings::default()
        };
        change(&mut settings);
        let (asks, asked) = mpsc::channel(1024);
        let (sees, seen) = mpsc::channel(1024);
        let host = Arc::new(Host { pods, asked: asks });
        let nri = Adaptation::new(settings, host, Arc::new(Seen(sees)));
        nri.start().await.expect("a socket");
        Self {
            nri,
            dir,
            asked,
            seen,
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("nri.sock")
    }

    /// Connects a plugin and waits until it takes part.
    async fn plugin(
        &mut self,
        index: &str,
        events: &[Event],
        serve: impl FnMut(&str, bytes::Bytes) -> PluginReply + Send + 'static,
    ) -> PluginStub {
        let path = self.socket();
        let (end, registered) = PluginStub::connect(&path, index, "test", events, serve)
            .await
            .expect("connects");
        registered.expect("registers");
        assert_eq!(self.next().await, (format!("{index}-test"), None));
        end
    }

    async fn next(&mut self) -> (String, Option<CloseReason>) {
        let next = tokio::time::timeout(PATIENCE, self.seen.recv()).await;
        next.expect("in time").expect("an event")
    }

    async fn create(&self) -> Result<ContainerAdjustment, EventError> {
        let container = Container {
            id: "c".to_owned(),
            env: vec!["A=0".to_owned()],
            ..Default::default()
        };
        let creating = self.nri.create_container(PodSandbox::default(), container);
        creating.await
    }
}

fn set_env(key: &str, value: &str) -> PluginReply {
    PluginReply::message(&CreateContainerResponse {
        adjust: Some(ContainerAdjustment {
            env: vec![KeyValue {
                key: key.to_owned(),
                value: value.to_owned(),
            }],
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn update(id: &str) -> ContainerUpdate {
    ContainerUpdate {
        container_id: id.to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn plugins_are_called_in_the_order_of_their_index() {
    use prost::Message as _;
    let mut stage = Stage::new().await;
    let saw = Arc::new(Mutex::new(Vec::new()));
    for index in ["20", "10"] {
        let saw = Arc::clone(&saw);
        let serve = move |method: &str, payload: bytes::Bytes| match method {
            "CreateContainer" => {
                let request = ContainerRequest::decode(payload).expect("a request");
                let env = request.container.expect("a container").env;
                saw.lock().expect("a lock").push((index, env));
                set_env(&format!("BY{index}"), "1")
            }
            _ => PluginReply::empty(),
        };
        stage.plugin(index, &[Event::CreateContainer], serve).await;
    }
    let adjusted = stage.create().await.expect("adjusted");
    assert_eq!(adjusted.env.len(), 2);
    let saw = saw.lock().expect("a lock");
    assert_eq!(saw[0], ("10", vec!["A=0".to_owned()]));
    assert_eq!(saw[1].0, "20");
    assert_eq!(saw[1].1, ["A=0", "BY10=1"]);
}

#[tokio::test]
async fn an_error_or_a_conflict_fails_the_event() {
    let mut stage = Stage::new().await;
    let serve = |method: &str, _| match method {
        "CreateContainer" => set_env("X", "1"),
        "RunPodSandbox" => PluginReply::Error(2, "no".to_owned()),
        _ => PluginReply::empty(),
    };
    stage.plugin("10", &[], serve).await;
    let error = stage.nri.pod(Event::RunPodSandbox, PodSandbox::default());
    let error = error.await.expect_err("refused").to_string();
    assert_eq!(error, "NRI plugin 10-test: RunPodSandbox: no (code 2)");
    stage.create().await.expect("one plugin alone");
    stage.plugin("20", &[Event::CreateContainer], serve).await;
    let error = stage.create().await.err().expect("a conflict").to_string();
    assert!(error.contains("environment variable X"), "{error}");
}

#[tokio::test]
async fn an_event_goes_on_without_a_plugin_that_disconnects_hangs_or_talks_nonsense() {
    let mut stage = Stage::with(0, |settings| {
        settings.request_timeout = Duration::from_millis(200);
    })
    .await;
    let hangs = |method: &str, _| match method {
        "CreateContainer" => PluginReply::Never,
        _ => PluginReply::empty(),
    };
    let goes = |method: &str, _| match method {
        "CreateContainer" => PluginReply::Disconnect,
        _ => PluginReply::empty(),
    };
    stage.plugin("10", &[Event::CreateContainer], goes).await;
    stage.create().await.expect("goes on");
    assert_eq!(stage.next().await.1, Some(CloseReason::Disconnected));
    stage.plugin("20", &[Event::CreateContainer], hangs).await;
    stage.create().await.expect("goes on");
    let reason = Some(CloseReason::Timeout("CreateContainer"));
    assert_eq!(stage.next().await.1, reason);
    // An answer that is no message fails the event, and the plugin is closed.
    let nonsense = |method: &str, _| match method {
        "CreateContainer" => PluginReply::Message(vec![0xff; 9].into()),
        _ => PluginReply::empty(),
    };
    stage
        .plugin("30", &[Event::CreateContainer], nonsense)
        .await;
    assert!(stage.create().await.is_err());
    assert!(matches!(
        stage.next().await.1,
        Some(CloseReason::Protocol(_))
    ));
    assert!(stage.create().await.expect("no plugin").env.is_empty());
    assert!(!stage.nri.wants(Event::CreateContainer));
}

#[tokio::test]
async fn a_peer_that_breaks_the_framing_or_never_registers_is_closed() {
    let mut stage = Stage::with(0, |settings| {
        settings.registration_timeout = Duration::from_millis(200);
    })
    .await;
    // A frame that claims 4 GiB.
    let mut socket = UnixStream::connect(stage.socket()).await.expect("connects");
    socket
        .write_all(&[0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff])
        .await
        .expect("written");
    let (name, reason) = stage.next().await;
    assert!(name.is_empty() && matches!(reason, Some(CloseReason::Protocol(_))));
    let mut rest = Vec::new();
    let _closed = socket.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    let _silent = UnixStream::connect(stage.socket()).await.expect("connects");
    let (_, reason) = stage.next().await;
    assert!(matches!(reason, Some(CloseReason::Registration(_))));
    // An invalid name.
    let path = stage.socket();
    let (_, registered) = PluginStub::connect(&path, "1", "x", &[], |_, _| PluginReply::empty())
        .await
        .expect("connects");
    assert!(registered.is_err());
}

#[tokio::test]
async fn there_are_only_so_many_plugins() {
    let mut stage = Stage::with(0, |settings| settings.max_plugins = 1).await;
    let first = stage.plugin("10", &[], |_, _| PluginReply::empty()).await;
    let _second = UnixStream::connect(stage.socket()).await.expect("connects");
    assert_eq!(stage.next().await.1, Some(CloseReason::TooMany));
    first.close();
    assert_eq!(stage.next().await.1, Some(CloseReason::Disconnected));
    stage.plugin("20", &[], |_, _| PluginReply::empty()).await;
}

#[tokio::test]
async fn a_large_state_is_synchronized_in_pieces() {
    use prost::Message as _;
    let mut stage = Stage::with(10, |_| ()).await;
    let pieces = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&pieces);
    let serve = move |method: &str, payload: bytes::Bytes| {
        if method == "Synchronize" {
            let request = SynchronizeRequest::decode(payload).expect("a request");
            noted.lock().expect("a lock").push(request.pods.len());
        }
        PluginReply::message(&SynchronizeResponse {
            update: vec![update("x")],
            more: false,
        })
    };
    stage.plugin("10", &[], serve).await;
    let pieces = pieces.lock().expect("a lock").clone();
    assert!(pieces.len() >= 3, "{pieces:?}");
    assert_eq!(pieces.iter().sum::<usize>(), 10);
    assert_eq!(stage.asked.recv().await.as_deref(), Some("update x"));
}

#[tokio::test]
async fn old_plugins_learn_of_events_by_state_change() {
    use prost::Message as _;
    let mut stage = Stage::new().await;
    let (told, mut events) = mpsc::channel(1024);
    let serve = move |method: &str, payload: bytes::Bytes| match method {
        "StateChange" => {
            let change = StateChangeEvent::decode(payload).expect("a change");
            let _ = told.try_send((change.event(), change.pod.expect("a pod").id));
            PluginReply::empty()
        }
        "Synchronize" => PluginReply::empty(),
        _ => PluginReply::Error(12, "unimplemented".to_owned()),
    };
    stage.plugin("10", &[], serve).await;
    let pod = PodSandbox {
        id: "p".to_owned(),
        ..Default::default()
    };
    for event in [Event::RunPodSandbox, Event::StopPodSandbox] {
        stage.nri.pod(event, pod.clone()).await.expect("told");
        let told = events.recv().await.expect("told");
        assert!(told.0 == event && told.1 == "p");
    }
}

#[tokio::test]
async fn containers_are_updated_and_evicted_on_demand() {
    let mut stage = Stage::new().await;
    let plugin = stage.plugin("10", &[], |_, _| PluginReply::empty()).await;
    let request = UpdateContainersRequest {
        update: vec![update("good"), update("bad")],
        evict: vec![ContainerEviction {
            container_id: "gone".to_owned(),
            reason: "too large".to_owned(),
        }],
    };
    let answer = plugin.update_containers(&request).await.expect("answered");
    let failed: Vec<_> = answer.failed.iter().map(|one| &*one.container_id).collect();
    assert_eq!(failed, ["bad"]);
    for asked in [
        "update good",
        "update bad",
        "evict gone by 10-test: too large",
    ] {
        assert_eq!(stage.asked.recv().await.as_deref(), Some(asked));
    }
}

#[tokio::test]
async fn a_validator_sees_the_owners_and_may_reject() {
    use prost::Message as _;
    let mut stage = Stage::new().await;
    let sets = |method: &str, _| match method {
        "CreateContainer" => set_env("X", "1"),
        _ => PluginReply::empty(),
    };
    stage.plugin("10", &[Event::CreateContainer], sets).await;
    let validates = |method: &str, payload: bytes::Bytes| match method {
        "ValidateContainerAdjustment" => {
            let request = ValidateContainerAdjustmentRequest::decode(payload).expect("a request");
            let owners = &request.owners.expect("owners").owners["c"];
            let owner = &owners.compound[&(Field::Env as i32)].owners["X"];
            PluginReply::message(&ValidateContainerAdjustmentResponse {
                reject: true,
                reason: format!("{owner} set X"),
            })
        }
        _ => PluginReply::empty(),
    };
    let events = [Event::ValidateContainerAdjustment];
    stage.plugin("90", &events, validates).await;
    let error = stage.create().await.err().expect("rejected");
    assert!(matches!(&error, EventError::Rejected { .. }), "{error}");
    assert!(error.to_string().ends_with("10-test set X"), "{error}");
}

/// A program that registers over descriptor 3 as Go's stub does, and then waits.
fn installed(dir: &Path, name: &str, script: &str) {
    std::fs::create_dir_all(dir).expect("a directory");
    let path = dir.join(name);
    std::fs::write(&path, script).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[tokio::test]
async fn installed_plugins_have_a_socket_and_end_with_the_runtime() {
    let dir = tempfile::tempdir().expect("a directory");
    let plugins = dir.path().join("plugins");
    let out = dir.path().join("out");
    // It never registers, so that it is ended.
    let script = format!(
        "#!/bin/sh\necho $$ $NRI_PLUGIN_NAME $NRI_PLUGIN_IDX $NRI_PLUGIN_SOCKET > {out}.new\n\
         [ -S /proc/self/fd/3 ] && mv {out}.new {out}\nexec sleep 1000\n",
        out = out.display()
    );
    installed(&plugins, "07-mine", &script);
    let mut stage = Stage::with(0, |settings| {
        settings.plugin_dir = Some(plugins);
        settings.registration_timeout = Duration::from_secs(2);
    })
    .await;
    assert!(matches!(
        stage.next().await.1,
        Some(CloseReason::Registration(_))
    ));
    let said = std::fs::read_to_string(&out).expect("it ran");
    let said: Vec<_> = said.split_whitespace().collect();
    assert_eq!(said[1..], ["mine", "07", "3"]);
    let process = PathBuf::from("/proc").join(said[0]);
    let gone = async {
        while process.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("it was ended");
}
