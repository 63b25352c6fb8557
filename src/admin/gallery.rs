//! Pages of invented data. With `CRISCOPE_GALLERY=DIR` they are written to files for a browser; `docs/live.png` is `readme.html` in a
//! window of 1440 by 1000.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::StatusCode;
use maud::Markup;

use super::live::{self, FrontPageState};
use super::methods::tests::row;
use super::nav::PageNavigation;
use super::page::{HtmlPage, SCRIPT, STYLE, page_at};
use super::pods::{self, PodListQuery};
use super::runtimes::{self, BackendView};
use super::verdict::Verdict;
use super::{calls, faults, plain, pulls, rpcz};
use crate::lifecycle::examples::{self, NOW};
use crate::lifecycle::tables::RpcTable;
use crate::lifecycle::view::{
    CallView, EpisodeState, EpisodeView, ImagePullList, ImagePullView, NodeTrouble, NodeVerdict,
    OpenSessionView, PodList, PodReason, PodSummary, RawMessage, SessionView, UnknownPod,
    VerdictLevel, sort_pods,
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
        verdict: examples::pods().verdict,
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
    live.verdict = NodeVerdict::new(&live.pods, Vec::new());
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
    with_pods(starts.filter_map(pod).collect())
}

fn with_pods(pods: Vec<PodSummary>) -> FrontPageState {
    FrontPageState {
        verdict: NodeVerdict::new(&pods, Vec::new()),
        known_pods: pods.len(),
        pods,
        ..busy()
    }
}

/// Makes an example of an episode.
type ExampleEpisode = fn() -> EpisodeView;

/// Twenty pods in trouble of all kinds, and some that are up.
fn trouble() -> Vec<PodSummary> {
    let kinds: [(ExampleEpisode, &str); 5] = [
        (examples::many_tries, "image_not_found"),
        (examples::failed_image, "registry_rate_limit"),
        (examples::retries, "cni_no_addresses"),
        (examples::crash_loop, "crash_loop"),
        (examples::in_flight, "call_in_flight"),
    ];
    let troubled = (0..20_usize).map(|n| {
        let (make, cause) = kinds[n % kinds.len()];
        let mut episode = make();
        episode.name = format!("{}-{n:02}", episode.name);
        cause.clone_into(&mut episode.cause);
        if cause == "cni_no_addresses" {
            episode.state = EpisodeState::Failing;
            "no network: the CNI plugin bridge has no free address in 10.88.0.2-10.88.0.254 (9 tries in 4m 23s)"
                .clone_into(&mut episode.headline);
        }
        episode
    });
    let fine = (0..6_u32).map(|n| EpisodeView {
        name: format!("api-7f8d9c6b5-{n:05}"),
        ..examples::slow_init()
    });
    let mut pods: Vec<_> = troubled.chain(fine).filter_map(pod).collect();
    sort_pods(&mut pods, false);
    pods
}

fn pull(image: &str, outcome: &str, ago_s: u64) -> ImagePullView {
    ImagePullView::from(CallView {
        image: Some(image.to_owned()),
        namespace: Some("shop".to_owned()),
        pod: Some("web-7d4b9c6f5-x2x9k".to_owned()),
        began_unix_us: NOW - Duration::from_secs(ago_s),
        duration_ms: 3200.0,
        outcome: outcome.to_owned(),
        code: "NOT_FOUND".to_owned(),
        error: (outcome != "ok").then(|| "rpc error: code = NotFound desc = failed to pull and unpack image: failed to resolve reference: not found".to_owned()),
        client: "kubelet".to_owned(),
        ..CallView::default()
    })
}

fn pulls() -> ImagePullList {
    ImagePullList {
        now_unix_us: NOW,
        in_flight: busy().pulls,
        recent: vec![
            pull("registry.example.com/shop/wbe:latest", "error", 40),
            pull("registry.example.com/shop/web:1.2.3", "ok", 300),
        ],
    }
}

fn pod(episode: EpisodeView) -> Option<PodSummary> {
    let text = episode.crash_loop.as_ref().unwrap_or(&episode.headline);
    let reason = PodReason {
        cause: episode.cause.clone(),
        next: next_step(text),
        ..PodReason::from(text.clone())
    };
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
    down.verdict.node.push(NodeTrouble {
        cause: "backend_down".to_owned(),
        text: "the runtime containerd has not answered for 41.0 s: connect to /run/containerd/containerd.sock: no such file; no pod can start".to_owned(),
    });
    let bad = trouble();
    let bad = PodList {
        now_unix_us: NOW,
        verdict: NodeVerdict::new(&bad, Vec::new()),
        known: bad.len(),
        pods: bad,
        forgotten: 0,
    };
    let query = PodListQuery::from_query("state=cannot_start&cause=image_pull");
    let mut part = bad.clone();
    let found = query.apply_to_pods(&mut part, 100);
    let unknown = UnknownPod {
        error: "no record of pod shop/wbe-0; 9 other pods are recorded".to_owned(),
        near: vec!["shop/web-7d4b9c6f5-x2x9k".to_owned()],
        ..UnknownPod::default()
    };
    let methods = quiet().methods;
    let calls = busy().calls;
    let mut pages = vec![
        (
            "trouble".to_owned(),
            live::html(&with_pods(bad.pods.clone())).into_html(),
        ),
        (
            "pods-trouble".to_owned(),
            pods::list_page(&bad, &PodListQuery::default(), bad.known).into_html(),
        ),
        (
            "pods-part".to_owned(),
            pods::list_page(&part, &query, found).into_html(),
        ),
        (
            "pods-none".to_owned(),
            pods::list_page(&PodList::default(), &PodListQuery::default(), 0).into_html(),
        ),
        (
            "pod-unknown".to_owned(),
            pods::unknown_page(&unknown).into_html(),
        ),
        (
            "calls".to_owned(),
            report("/debug/calls", "Calls in flight", calls::page(&calls)),
        ),
        (
            "calls-none".to_owned(),
            report("/debug/calls", "Calls in flight", calls::page(&[])),
        ),
        (
            "pulls".to_owned(),
            report("/debug/images/pulls", "Images", pulls::html(&pulls())),
        ),
        (
            "pulls-none".to_owned(),
            report(
                "/debug/images/pulls",
                "Images",
                pulls::html(&ImagePullList::default()),
            ),
        ),
        (
            "methods".to_owned(),
            report("/debug/rpcz", "Calls by method", rpcz::html(&methods)),
        ),
        (
            "methods-none".to_owned(),
            report(
                "/debug/rpcz",
                "Calls by method",
                rpcz::html(&RpcTable::default()),
            ),
        ),
        (
            "backends".to_owned(),
            report("/debug/backends", "Backends", backends(&quiet().backends)),
        ),
        (
            "backends-down".to_owned(),
            report("/debug/backends", "Backends", backends(&down.backends)),
        ),
        (
            "faults".to_owned(),
            faults::page(
                &["RunPodSandbox of shop/web hangs, until 2026-01-31T09:10:00Z".to_owned()],
                true,
            )
            .into_html(),
        ),
        (
            "faults-none".to_owned(),
            faults::page(&[], false).into_html(),
        ),
        (
            "metrics".to_owned(),
            plain("/metrics", StatusCode::OK, METRICS),
        ),
        (
            "readiness".to_owned(),
            plain(
                "/readyz",
                StatusCode::OK,
                "[+] backend containerd: containerd 2.0.1 up for 93600.0s\n    [+] RuntimeReady\n[+] no call in flight\nok\n",
            ),
        ),
        (
            "not-found".to_owned(),
            plain(
                "/nowhere",
                StatusCode::NOT_FOUND,
                "page not found; see / for a list of pages\n",
            ),
        ),
        (
            "log-level".to_owned(),
            plain("/debug/log-level", StatusCode::OK, "info"),
        ),
        ("quiet".to_owned(), live::html(&quiet()).into_html()),
        ("busy".to_owned(), live::html(&busy()).into_html()),
        ("readme".to_owned(), live::html(&readme()).into_html()),
        ("many".to_owned(), live::html(&many()).into_html()),
        ("down".to_owned(), live::html(&down).into_html()),
        ("pods".to_owned(), list().into_html()),
    ];
    for (n, episode) in examples::all().into_iter().enumerate() {
        let level = pod(episode.clone()).map_or(VerdictLevel::Empty, |pod| pod.level());
        let mut story = examples::story(episode);
        story.next = next_step(&story.headline);
        if story.headline.contains("no such image") {
            story.raw_message = Some(RawMessage {
                from: "containerd".to_owned(),
                text: "NOT_FOUND failed to pull and unpack image \"registry.example.com/shop/wbe:latest\": not found".to_owned(),
            });
        }
        let page = pods::pod_page(&story, level, None).into_html();
        pages.push((format!("pod-{n}"), page));
    }
    for (name, html) in pages {
        assert!(html.ends_with("</html>\n"), "{name}");
        assert!(html.contains("</h1><p class=\"verdict "), "{name}: {html}");
        check(&name, &html.replace(STYLE, "").replace(SCRIPT, ""));
        if let Some(dir) = &dir {
            fs::write(dir.join(format!("{name}.html")), html).expect("written");
        }
    }
}

/// The next step that fits these words.
fn next_step(words: &str) -> Option<String> {
    let steps = [
        (
            "no such image",
            "look for a typing error in the name of the image: `kubectl get pod -n shop typo-2 -o jsonpath='{..image}'`",
        ),
        ("OOMKilled", "raise limits.memory of app if it needs more"),
        (
            "no free address",
            "free addresses, or widen the range of this node",
        ),
    ];
    let step = steps.iter().find(|(part, _)| words.contains(part));
    step.map(|(_, step)| (*step).to_owned())
}

const METRICS: &str = "# HELP criscope_calls_total Calls.\n# TYPE criscope_calls_total counter\n\
    criscope_calls_total{backend=\"containerd\",method=\"RunPodSandbox\",code=\"OK\",outcome=\"ok\"} 31\n";

fn report(path: &str, title: &str, (verdict, body): (Verdict, Markup)) -> String {
    page_at(path, title, &verdict, &body).into_html()
}

fn backends(states: &[BackendView]) -> (Verdict, Markup) {
    (runtimes::verdict(states), runtimes::html(states))
}

fn plain(path: &str, status: StatusCode, text: &str) -> String {
    plain::page(PageNavigation::Full, path, status, text).into_html()
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
