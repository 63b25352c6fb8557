//! Pages of invented data. With `CRISCOPE_GALLERY=DIR` they are written to files for a browser; `docs/live.png` is `readme.html` in a
//! window of 1440 by 1000.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::live::{self, FrontPageState};
use super::methods::tests::row;
use super::page::{HtmlPage, SCRIPT, STYLE};
use super::pods::{self, PodListQuery};
use super::runtimes::BackendView;
use crate::lifecycle::examples::{self, NOW};
use crate::lifecycle::tables::RpcTable;
use crate::lifecycle::view::{
    CallView, EpisodeView, ImagePullView, OpenSessionView, PodSummary, SessionView,
};
use crate::version;

fn running(method: &str, pod: &str, age_s: u64, deadline_s: u64, stuck: u32) -> CallView {
    CallView {
        method: method.to_owned(),
        phase: Some("waiting".to_owned()),
        duration_ms: age_s as f64 * 1e3,
        deadline_ms: Some(deadline_s as f64 * 1e3),
        stuck: (stuck > 0).then_some(stuck),
        backend: Some("containerd".to_owned()),
        client: "kubelet".to_owned(),
        client_pid: Some(812),
        client_comm: Some("kubelet".to_owned()),
        namespace: Some("shop".to_owned()),
        pod: Some(pod.to_owned()),
        ..CallView::default()
    }
}

fn session(kind: &str, program: Option<&str>, pod: Option<&str>) -> OpenSessionView {
    OpenSessionView {
        id: "8f3a1c5e77d04b9a".to_owned(),
        namespace: pod.map(|_| "shop".to_owned()),
        pod: pod.map(str::to_owned),
        session: SessionView {
            kind: kind.to_owned(),
            program: program.map(str::to_owned),
            container: program.map(|_| "app".to_owned()),
            client: Some("kubelet".to_owned()),
            outcome: SessionView::OPEN.to_owned(),
            duration_ms: 754_000.0,
            bytes_in: 912,
            bytes_out: 48_300,
            ..SessionView::default()
        },
    }
}

fn backend() -> BackendView {
    BackendView {
        name: "containerd".to_owned(),
        up: true,
        since_ms: Some(93_600_000.0),
        runtime: Some(("containerd".to_owned(), "2.0.1".to_owned())),
        ..BackendView::default()
    }
}

fn quiet() -> FrontPageState {
    FrontPageState {
        now_unix_us: NOW,
        version: version::with_commit(),
        host: "node-a7".to_owned(),
        uptime_ms: 93_600_000.0,
        backends: vec![backend()],
        methods: RpcTable {
            methods: vec![
                row("Status", 12, 0, 0.4),
                row("ListPodSandbox", 60, 0, 0.7),
                row("ListContainers", 60, 0, 1.1),
                row("ContainerStatus", 240, 0, 0.8),
                row("RunPodSandbox", 3, 1, 310.0),
                row("PullImage", 2, 0, 3200.0),
                row("CreateContainer", 4, 0, 41.0),
                row("RemoveImage", 0, 0, 0.0),
            ],
            ..RpcTable::default()
        },
        ..FrontPageState::default()
    }
}

fn busy() -> FrontPageState {
    let mut pull = running("PullImage", "model-0", 41, 120, 0);
    pull.image = Some("registry.example.com/ml/model-server:2026-01".to_owned());
    FrontPageState {
        calls: vec![
            running("RunPodSandbox", "stuck-1", 130, 240, 50),
            pull,
            running("CreateContainer", "web-7d4b9c6f5-x2x9k", 1, 120, 0),
        ],
        sessions: vec![
            session("exec", Some("sh"), Some("web-7d4b9c6f5-x2x9k")),
            session("portforward", None, None),
        ],
        pods: examples::pods().pods,
        known_pods: 10,
        crash_loops: 1,
        pulls: vec![ImagePullView::from(CallView {
            image: Some("registry.example.com/ml/model-server:2026-01".to_owned()),
            namespace: Some("shop".to_owned()),
            pod: Some("model-0".to_owned()),
            began_unix_us: NOW - Duration::from_secs(41),
            duration_ms: 41_000.0,
            outcome: "in_flight".to_owned(),
            client: "kubelet".to_owned(),
            ..CallView::default()
        })],
        ..quiet()
    }
}

/// Without hostile names.
fn readme() -> FrontPageState {
    let mut live = busy();
    live.pods.retain(|pod| pod.namespace == "shop");
    live.known_pods = live.pods.len();
    live
}

#[allow(clippy::cast_precision_loss)]
fn many() -> FrontPageState {
    let starts = (0..40_u64).map(|n| {
        let base = examples::slow_cni();
        let factor = 0.05 + (n * 7919 % 23) as f64 / 40.0;
        let phases = base.phases.into_iter().map(|mut phase| {
            phase.ms *= factor;
            phase
        });
        EpisodeView {
            name: format!("web-7d4b9c6f5-{:05x}", n * 104_729 % 1_048_576),
            duration_ms: base.duration_ms * factor,
            began_unix_us: NOW - Duration::from_secs(n * 11),
            phases: phases.collect(),
            ..base
        }
    });
    FrontPageState {
        pods: starts.filter_map(pod).collect(),
        ..busy()
    }
}

fn pod(episode: EpisodeView) -> Option<PodSummary> {
    let reason = episode.headline.clone();
    PodSummary::from_episodes(vec![episode], reason, NOW)
}

fn list() -> HtmlPage {
    let pods = examples::pods();
    pods::list_page(&pods, &PodListQuery::default(), pods.pods.len())
}

#[test]
fn pages_are_whole_with_nothing_with_some_and_with_many() {
    let dir = std::env::var_os("CRISCOPE_GALLERY").map(PathBuf::from);
    let mut down = quiet();
    down.backends[0].up = false;
    down.backends[0].reason = "connect to /run/containerd/containerd.sock: no such file".to_owned();
    let mut pages = vec![
        ("quiet".to_owned(), live::html(&quiet()).into_html()),
        ("busy".to_owned(), live::html(&busy()).into_html()),
        ("readme".to_owned(), live::html(&readme()).into_html()),
        ("many".to_owned(), live::html(&many()).into_html()),
        ("down".to_owned(), live::html(&down).into_html()),
        ("pods".to_owned(), list().into_html()),
    ];
    for (n, episode) in examples::all().into_iter().enumerate() {
        let page = pods::pod_page(&examples::story(episode), None).into_html();
        pages.push((format!("pod-{n}"), page));
    }
    for (name, html) in pages {
        assert!(html.ends_with("</html>\n"), "{name}");
        check(&name, &html.replace(STYLE, "").replace(SCRIPT, ""));
        if let Some(dir) = &dir {
            fs::write(dir.join(format!("{name}.html")), html).expect("written");
        }
    }
}

/// Every element is closed, and nothing is inline that the policy would refuse.
fn check(name: &str, html: &str) {
    for tag in [
        "main", "section", "table", "ol", "ul", "dl", "svg", "div", "span", "li", "header", "p",
    ] {
        let opened =
            html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        let closed = html.matches(&format!("</{tag}>")).count();
        assert_eq!(opened, closed, "{name}: {tag}");
    }
    let tags = html.split('<').filter_map(|rest| rest.split_once('>'));
    for (tag, _) in tags {
        for refused in [" style=", " onclick=", " onerror=", " onload="] {
            assert!(!tag.contains(refused), "{name}: {tag}");
        }
    }
}
