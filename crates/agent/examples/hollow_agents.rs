//! Agents of many nodes in one process, for `tests/by-hand/scale.sh`: each is the service of this crate with a client, a port and an address of
//! its own, on a node and in a pod that exist in the API server only. What stands in for the daemons answers with pods that it makes up.
//!
//! usage: hollow_agents DIR COUNT SILENT
//! The agents listen on 10.77.0.0/16, which must be local. The daemons of the first SILENT nodes accept connections and do not answer.
//! While the file `DIR/incident` is there, three pods fail on each of the 100 nodes after these.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use criscope::lifecycle::view::{EpisodeState, EpisodeView, RecentEpisodes};
use criscope::units::times::UnixMicros;
use criscope_agent::agent;
use criscope_agent::daemon::DaemonAddress;
use criscope_pages::view::{PodList, PodState, PodStory, PodSummary};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::net::UnixListener;

/// The namespace of the agents.
const NAMESPACE: &str = "criscope";

/// Pods on each node.
const PODS_PER_NODE: usize = 30;

/// Nodes with failing pods in an incident, and failing pods on each.
const INCIDENT_NODES: usize = 100;
const FAILING_PODS_PER_NODE: usize = 3;

/// Nodes whose objects are made concurrently.
const CONCURRENT_NODES: usize = 16;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What stands in for the daemon of a node.
struct HollowDaemon {
    node: usize,
    is_silent: bool,
    may_fail: bool,
    incident: PathBuf,
}

impl HollowDaemon {
    fn is_failing(&self, pod: usize) -> bool {
        self.may_fail && pod < FAILING_PODS_PER_NODE && self.incident.exists()
    }

    /// When the incident began, or an hour ago for pods that are up.
    fn episode(&self, pod: usize) -> EpisodeView {
        let is_failing = self.is_failing(pod);
        let begin = std::fs::metadata(&self.incident).and_then(|file| file.modified());
        let begin = begin.map(micros).unwrap_or_default();
        let (began, took) = if is_failing {
            (begin, now().since(begin))
        } else {
            (now() - Duration::from_secs(3600), Duration::from_secs(2))
        };
        EpisodeView {
            kind: "start".to_owned(),
            namespace: "shop".to_owned(),
            name: format!("web-{}-{pod}", self.node),
            uid: format!("uid-{}-{pod}", self.node),
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            state: if is_failing {
                EpisodeState::Failing
            } else {
                EpisodeState::Ok
            },
            began_unix_us: began,
            duration_ms: took.as_secs_f64() * 1e3,
            headline: if is_failing {
                "network failed 3 times: the CNI plugin calico cannot reach its datastore"
                    .to_owned()
            } else {
                "1.2 s of 2.0 s were spent on pulling images".to_owned()
            },
            cause: if is_failing { "network_failed" } else { "" }.to_owned(),
            failures: u32::try_from(took.as_secs() / 10).unwrap_or_default(),
            ..EpisodeView::default()
        }
    }

    fn page(&self, path: &str, query: &str) -> Option<String> {
        let episodes = (0..PODS_PER_NODE).map(|pod| self.episode(pod));
        let text = match path {
            "/readyz" => Ok("ok\n".to_owned()),
            "/metrics" => Ok("criscope_up 1\n".to_owned()),
            "/debug/pods" if query.contains("by=pod") => {
                let pods: Vec<_> = episodes.map(summary).collect();
                serde_json::to_string(&PodList {
                    now_unix_us: now(),
                    known: pods.len(),
                    pods,
                    ..PodList::default()
                })
            }
            "/debug/pods" => serde_json::to_string(&RecentEpisodes {
                now_unix_us: now(),
                episodes: episodes.collect(),
                forgotten: 0,
            }),
            story => {
                let name = story.strip_prefix("/debug/pods/shop/")?;
                let episode = episodes.into_iter().find(|episode| episode.name == name)?;
                serde_json::to_string(&PodStory {
                    now_unix_us: now(),
                    episodes: vec![episode],
                    ..PodStory::default()
                })
            }
        };
        text.ok()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if self.is_silent {
            std::future::pending::<()>().await;
        }
        let uri = request.uri();
        let page = self.page(uri.path(), uri.query().unwrap_or_default());
        let status = page
            .as_ref()
            .map_or(StatusCode::NOT_FOUND, |_| StatusCode::OK);
        let mut response = Response::new(Full::new(page.unwrap_or_default().into()));
        *response.status_mut() = status;
        response
    }

    async fn serve(self: Arc<Self>, listener: UnixListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let own = Arc::clone(&self);
            tokio::spawn(async move {
                let answer =
                    service_fn(|request| async { Ok::<_, Infallible>(own.answer(request).await) });
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    }
}

fn now() -> UnixMicros {
    micros(SystemTime::now())
}

fn micros(time: SystemTime) -> UnixMicros {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros::new(u64::try_from(since.as_micros()).unwrap_or_default())
}

fn summary(episode: EpisodeView) -> PodSummary {
    PodSummary {
        namespace: episode.namespace.clone(),
        name: episode.name.clone(),
        uid: episode.uid.clone(),
        state: if episode.state == EpisodeState::Failing {
            PodState::Failing
        } else {
            PodState::Ok
        },
        reason: episode.headline.clone(),
        began_unix_us: episode.began_unix_us,
        since_unix_us: episode.began_unix_us,
        duration_ms: episode.duration_ms,
        failures: episode.failures,
        episode,
        ..PodSummary::default()
    }
}

fn address(node: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(node + 1).unwrap_or(u16::MAX).to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// Creates the Node and the pod of its agent.
async fn create_objects(client: &kube::Client, n: usize) -> Result<(), BoxError> {
    let (node, ip, params) = (
        format!("scale-{n}"),
        address(n).to_string(),
        PostParams::default(),
    );
    let conditions =
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now()}]);
    let object: Node = serde_json::from_value(
        json!({"metadata": {"name": node, "labels": {"kubernetes.io/os": "linux"}},
        "status": {"conditions": conditions}}),
    )?;
    Api::<Node>::all(client.clone())
        .create(&params, &object)
        .await?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let name = format!("criscope-{n}");
    let object: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "criscope", "app.kubernetes.io/component": "agent"}},
        "spec": {"nodeName": node, "serviceAccountName": "criscope-agent", "automountServiceAccountToken": false,
            "containers": [{"name": "agent", "image": "criscope:scale"}]}}))?;
    pods.create(&params, &object).await?;
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// A client with the rights of the agent's service account.
async fn agent_client() -> Result<kube::Client, BoxError> {
    let mut config = kube::Config::infer().await?;
    config.auth_info.impersonate =
        Some(format!("system:serviceaccount:{NAMESPACE}:criscope-agent"));
    Ok(kube::Client::try_from(config)?)
}

async fn start_agent(dir: &Path, n: usize, silent: usize) -> Result<(), BoxError> {
    let disk = dir.join(format!("scale-{n}"));
    std::fs::create_dir_all(&disk)?;
    let socket = disk.join("criscope.sock");
    let daemon = HollowDaemon {
        node: n,
        is_silent: n < silent,
        may_fail: (silent..silent + INCIDENT_NODES).contains(&n),
        incident: dir.join("incident"),
    };
    tokio::spawn(Arc::new(daemon).serve(UnixListener::bind(&socket)?));
    let args = agent::Args {
        node: format!("scale-{n}"),
        daemon: DaemonAddress::Socket(socket),
        listen: SocketAddr::from((address(n), criscope_agent::AGENT_PORT)),
        tls_cert: None,
        tls_key: None,
        events: true,
        slow: 5,
    };
    let client = agent_client().await?;
    tokio::spawn(async move {
        if let Err(error) = agent::run(&args, client, std::future::pending()).await {
            println!("{}: {error}", args.node);
        }
    });
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_env_filter("error").init();
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [dir, count, silent] = &args[..] else {
        return Err("usage: hollow_agents DIR COUNT SILENT".into());
    };
    let (dir, count, silent) = (
        PathBuf::from(dir),
        count.parse::<usize>()?,
        silent.parse::<usize>()?,
    );
    let client = kube::Client::try_default().await?;
    let created = stream::iter(0..count).map(|n| create_objects(&client, n));
    let created: Vec<_> = created.buffer_unordered(CONCURRENT_NODES).collect().await;
    created.into_iter().collect::<Result<Vec<_>, _>>()?;
    for n in 0..count {
        start_agent(&dir, n, silent).await?;
    }
    std::fs::write(dir.join("started"), "")?;
    std::future::pending::<()>().await;
    Ok(())
}
