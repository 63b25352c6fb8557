//! `kubectl-criscope` as a program, through the API server to agents.

use std::net::SocketAddr;
use std::process::Output;
use std::time::{Duration, Instant};

use criscope::lifecycle::view::{
    EpisodeState, EpisodeView, PodList, PodState, PodStory, PodSummary,
};
use criscope::units::times::UnixMicros;
use tokio::net::TcpListener;

use crate::agent::agent;
use crate::api::Api;
use crate::daemon::Daemon;
use crate::support::{Program, run};

pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-criscope");

/// Of node n: a daemon with the pod shop/web-n, and its agent.
async fn node(api: &Api, n: u32) -> (Daemon, Program, SocketAddr) {
    let daemon = Daemon::start().await;
    let headline = format!("web-{n} took 9.8 s to start: network 9.5 s");
    let episode = EpisodeView {
        kind: "start".to_owned(),
        namespace: "shop".to_owned(),
        name: format!("web-{n}"),
        uid: format!("uid-{n}"),
        state: EpisodeState::Ok,
        began_unix_us: UnixMicros::new(1_750_000_000_000_000),
        duration_ms: 9_800.0 + f64::from(n),
        headline: headline.clone(),
        cause: "slow_network".to_owned(),
        ..EpisodeView::default()
    };
    let story = PodStory {
        now_unix_us: UnixMicros::new(1_750_000_060_000_000),
        namespace: "shop".to_owned(),
        name: episode.name.clone(),
        headline: headline.clone(),
        episodes: vec![episode.clone()],
        ..PodStory::default()
    };
    let pod = PodSummary {
        namespace: "shop".to_owned(),
        name: episode.name.clone(),
        uid: episode.uid.clone(),
        state: PodState::Ok,
        reason: headline,
        notable: true,
        began_unix_us: episode.began_unix_us,
        since_unix_us: episode.began_unix_us,
        duration_ms: episode.duration_ms,
        episode,
        ..PodSummary::default()
    };
    let pods = PodList {
        now_unix_us: story.now_unix_us,
        pods: vec![pod],
        known: 1,
        ..PodList::default()
    };
    daemon.set(
        &format!("/debug/pods/shop/web-{n}"),
        200,
        &serde_json::to_string(&story).expect("JSON"),
    );
    daemon.set(
        "/debug/pods",
        200,
        &serde_json::to_string(&pods).expect("JSON"),
    );
    daemon.set(
        "/debug/pods/shop/gone",
        404,
        r#"{"error":"no pod shop/gone is known","namespace":"shop","name":"gone","known":1,"near":[],"notes":["of one node"]}"#,
    );
    let name = format!("node-{n}");
    let (program, address) = agent(api, &daemon, &name, &["--events=false"]).await;
    api.add_pod(
        "criscope",
        &format!("criscope-{n}"),
        Some(&name),
        Some(address),
    );
    api.add_pod("shop", &format!("web-{n}"), Some(&name), None);
    (daemon, program, address)
}

/// Standard output and error.
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_explained_by_its_node() {
    let api = Api::start().await;
    let _nodes = (node(&api, 1).await, node(&api, 2).await);
    let alice = api.kubeconfig("alice");
    for args in [
        &["explain", "web-2"][..],
        &["explain", "shop/web-2"],
        &["explain", "pod/web-2", "-n", "shop"],
    ] {
        let output = run(PLUGIN, args, &alice).await;
        let (out, err) = said(&output);
        assert!(
            out.starts_with("web-2 took 9.8 s to start: network 9.5 s\n"),
            "{out}{err}"
        );
        assert!(output.status.success() && err.is_empty(), "{err}");
    }
    let json = run(PLUGIN, &["explain", "web-1", "-o", "json"], &alice).await;
    let story: PodStory = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(story.name, "web-1");
    // Only the node of the pod is asked.
    assert_eq!(
        api.count("GET /api/v1/namespaces/criscope/pods/https:criscope-2:9479/proxy"),
        3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_is_looked_for_on_all_nodes() {
    let api = Api::start().await;
    let (one, two) = (node(&api, 1).await, node(&api, 2).await);
    let alice = api.kubeconfig("alice");
    let gone = run(PLUGIN, &["explain", "gone"], &alice).await;
    let (out, err) = said(&gone);
    assert!(
        out.is_empty() && err.contains("no pod shop/gone is known") && !err.contains("of one node"),
        "{err}"
    );
    assert_eq!(gone.status.code(), Some(1));
    let story = r#"{"now_unix_us":1,"namespace":"shop","name":"gone","headline":"it was slow","episodes":[]}"#;
    two.0.set("/debug/pods/shop/gone", 200, story);
    let (out, err) = said(&run(PLUGIN, &["explain", "gone"], &alice).await);
    assert!(out.starts_with("it was slow\n"), "{out}{err}");
    api.add_pod("shop", "pending", None, None);
    let (_, err) = said(&run(PLUGIN, &["explain", "pending"], &alice).await);
    assert!(err.contains("pod shop/pending is on no node yet"), "{err}");
    drop(one);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_of_all_nodes_and_a_dead_one_holds_no_other_up() {
    let api = Api::start().await;
    let _nodes = (node(&api, 1).await, node(&api, 2).await);
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    api.add_pod(
        "criscope",
        "criscope-3",
        Some("node-3"),
        silent.local_addr().ok(),
    );
    let began = Instant::now();
    let output = run(PLUGIN, &["pods", "-A"], &api.kubeconfig("alice")).await;
    let (out, err) = said(&output);
    assert!(
        output.status.success() && began.elapsed() < Duration::from_secs(30),
        "{err}"
    );
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}{err}");
    assert!(lines[0].contains("NODE"), "{out}");
    for n in [1, 2] {
        let row = lines
            .iter()
            .find(|line| line.contains(&format!("shop/web-{n}")))
            .expect("a row");
        assert!(row.contains(&format!("node-{n}")), "{out}");
    }
    assert!(
        err.contains("warning: node node-3 did not answer: no answer within 4 s"),
        "{err}"
    );
    let output = run(
        PLUGIN,
        &["pods", "-A", "--node=node-2"],
        &api.kubeconfig("alice"),
    )
    .await;
    assert!(!said(&output).0.contains("web-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_the_plugin_says_which_are_missing() {
    let api = Api::start().await;
    let _node = node(&api, 1).await;
    let (out, err) = said(&run(PLUGIN, &["pods", "-A"], &api.kubeconfig("bob")).await);
    assert!(
        out.is_empty() && err.contains("cannot list the agents") && err.contains("criscope-user"),
        "{err}"
    );
    // Alice may view pods in shop only.
    let (_, err) = said(&run(PLUGIN, &["explain", "a/b"], &api.kubeconfig("alice")).await);
    assert!(
        err.contains("cannot get pod a/b") && err.contains("forbidden"),
        "{err}"
    );
    let (_, err) = said(&run(PLUGIN, &["explain", "web-1"], &api.kubeconfig("unknown")).await);
    assert!(err.contains("Unauthorized"), "{err}");
    let (_, err) = said(
        &run(
            PLUGIN,
            &["pods", "--agent-namespace=x"],
            &api.kubeconfig("alice"),
        )
        .await,
    );
    assert!(err.contains("in namespace x"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_cluster_the_plugin_says_what_is_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let none = dir.path().join("none");
    let output = run(PLUGIN, &["pods"], &none).await;
    let (out, err) = said(&output);
    let expected = format!(
        "error: there is no kubeconfig: {} does not exist\nhint: name one with --kubeconfig,",
        none.display()
    );
    assert!(out.is_empty() && err.starts_with(&expected), "{err}");
    assert_eq!(output.status.code(), Some(1));

    // Bound, so that no other process gets the port, but not listening.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
    let server = format!("https://{}", socket.local_addr().expect("bound"));
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: a,\n\
         clusters: [{{name: a, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}],\n\
         users: [{{name: a, user: {{token: t}}}}],\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}\n"
    );
    let file = dir.path().join("config");
    std::fs::write(&file, text).expect("written");
    let path = file.to_str().expect("UTF-8");
    let args = ["fleet", "--kubeconfig", path];
    let (_, err) = said(&run(PLUGIN, &args, &none).await);
    let expected = format!("error: cannot reach the API server {server}: Connection refused");
    assert!(
        err.starts_with(&expected) && err.contains("\nhint: "),
        "{err}"
    );
    let args = ["fleet", "--kubeconfig", path, "--context", "b"];
    let (_, err) = said(&run(PLUGIN, &args, &none).await);
    assert!(err.contains("has no context b; it has a"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_completed_from_the_cluster() {
    let api = Api::start().await;
    let _node = node(&api, 1).await;
    let alice = api.kubeconfig("alice");
    for (words, expected) in [
        (&["explain", "we"][..], "web-1\n:4\n"),
        (&["explain", "-n", "shop", ""], "web-1\n:4\n"),
        (&["calls", "--node", ""], "node-1\n:4\n"),
    ] {
        let words: Vec<_> = ["__complete"].iter().chain(words).copied().collect();
        let (out, err) = said(&run(PLUGIN, &words, &alice).await);
        assert_eq!(out, expected, "{err}");
    }
    // Without rights, or without a cluster, nothing is completed or printed.
    let output = run(
        PLUGIN,
        &["__complete", "explain", ""],
        &api.kubeconfig("bob"),
    )
    .await;
    assert_eq!(said(&output), (":4\n".to_owned(), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_shows_what_slow_pods_share() {
    let api = Api::start().await;
    let _nodes = (node(&api, 1).await, node(&api, 2).await);
    let (out, err) = said(&run(PLUGIN, &["fleet"], &api.kubeconfig("alice")).await);
    assert!(
        out.starts_with("2 pods on 2 of 2 nodes: 0 failing, 2 slow to start\n"),
        "{out}{err}"
    );
    assert!(out.contains("    2 of 2  cause slow network\n"), "{out}");
}

/// Puts a program in the place of criscope on the nodes.
fn criscope_is(api: &Api, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = api.dir.path().join("criscope");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    *api.state.criscope.lock().expect("criscope") = path;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_of_a_node_is_made_by_a_pod_that_is_gone_afterwards() {
    let api = Api::start().await;
    let _node = node(&api, 1).await;
    let alice = api.kubeconfig("alice");
    criscope_is(
        &api,
        "echo \"hint: $*\" >&2; head -c 300000 /dev/zero; echo \"$*\"",
    );
    let file = api.dir.path().join("a.tar.gz");
    let path = file.to_str().expect("utf-8");
    let args = ["capture", "web-1", "--since", "30m", "-o", path];
    let output = run(PLUGIN, &args, &alice).await;
    let (out, err) = said(&output);
    assert_eq!(out, format!("{path}\n"), "{err}");
    let expected = "capture -o - --pod shop/web-1 --since 30m";
    assert!(err.contains(&format!("hint: {expected}")), "{err}");
    let capture = std::fs::read(&file).expect("a file");
    assert_eq!(capture.len(), 300_000 + expected.len() + 1);
    assert!(capture.ends_with(format!("{expected}\n").as_bytes()));
    let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().expect("a file"));
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(api.count("POST /api/v1/namespaces/criscope-node/pods"), 1);
    assert_eq!(api.count("DELETE /api/v1/namespaces/criscope-node/pods"), 1);

    // A file is not overwritten, and no pod created for it. A failure has its reason, and leaves no pod and no file.
    let (_, err) = said(&run(PLUGIN, &args, &alice).await);
    assert!(err.contains("File exists"), "{err}");
    criscope_is(&api, "echo 'error: criscope is broken' >&2; exit 1");
    let path = format!("{path}.new");
    let args = ["capture", "--node", "node-1", "-o", &path];
    let output = run(PLUGIN, &args, &alice).await;
    let (_, err) = said(&output);
    assert!(!output.status.success());
    assert!(
        err.contains("capture on node node-1 failed") && err.contains("criscope is broken"),
        "{err}"
    );
    assert!(!std::path::Path::new(&path).exists());
    assert_eq!(api.count("POST /api/v1/namespaces/criscope-node/pods"), 2);
    assert_eq!(api.count("DELETE /api/v1/namespaces/criscope-node/pods"), 2);
}
