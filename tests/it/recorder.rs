//! The flight recorder: read over HTTP, dumped on a signal and for a stuck call, and its behaviour when the disk is
//! full.

use std::os::unix::fs::PermissionsExt;

use criscope::lifecycle::tables::{CallSamples, RpcTable};
use criscope::lifecycle::view;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::harness::packages;
use crate::prelude::*;

fn run_pod(name: &str) -> Call {
    let config = v1::PodSandboxConfig {
        hostname: "not-to-be-shown".into(),
        ..pods::config(name)
    };
    pods::run_with(config, "")
}

/// Two pods, one of which fails, a poll, and a call that hangs.
async fn traffic(
    fake: &Fake,
    proxy: &Proxy,
) -> (crate::harness::client::Client, crate::harness::client::Open) {
    fake.on(|head| match head.uri.path().rsplit('/').next() {
        Some("PullImage") => vec![Step::Read, Step::Hang],
        Some("StopPodSandbox") => script::error(13, "no such bridge"),
        _ => script::empty(),
    });
    let client = proxy.client().await;
    for name in ["web-0", "web-1"] {
        assert_eq!(client.call(run_pod(name)).await.code(), 0);
    }
    assert_eq!(client.call(Call::plain("StopPodSandbox")).await.code(), 13);
    assert_eq!(client.call(Call::plain("ListContainers")).await.code(), 0);
    let pull = Call::image("PullImage", encode(&v1::PullImageRequest::default()));
    let open = client.start(pull).await;
    fake.wait_count(5).await;
    (client, open)
}

fn rows(dump: &Value, list: &str) -> Vec<view::CallView> {
    serde_json::from_value(dump[list].clone()).expect("rows")
}

fn methods(rows: &[view::CallView]) -> Vec<&str> {
    rows.iter().map(|row| row.method.as_str()).collect()
}

/// Checks what trace viewers require: slices of a track are nested or disjoint.
fn check_trace(trace: &Value) -> BTreeMap<&str, usize> {
    let mut open: BTreeMap<(u64, u64), Vec<f64>> = BTreeMap::new();
    let mut phases = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("events") {
        let phase = event["ph"].as_str().expect("ph");
        *phases.entry(phase).or_default() += 1;
        if phase == "M" {
            continue;
        }
        let number = |key: &str| event[key].as_u64().expect("number");
        let begin = event["ts"].as_f64().expect("ts");
        let end = event["dur"]
            .as_f64()
            .map_or(f64::INFINITY, |dur| begin + dur);
        let stack = open.entry((number("pid"), number("tid"))).or_default();
        stack.retain(|outer| *outer > begin + 0.0005);
        assert!(stack.iter().all(|outer| end <= outer + 0.0005), "{event}");
        stack.push(end);
    }
    phases
}

#[tokio::test]
async fn a_signal_writes_a_dump() {
    let (fake, proxy) = proxied().await;
    let (_client, _open) = traffic(&fake, &proxy).await;
    proxy.signal(Signal::SIGUSR2);
    let [json, trace] = proxy.wait_dump("sigusr2").await;
    let text = String::from_utf8(json).expect("utf-8");
    assert!(!text.contains("not-to-be-shown"), "{text}");
    let dump: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(dump["reason"], "sigusr2");
    assert_eq!(dump["version"], env!("CARGO_PKG_VERSION"));
    let (_, metrics) = proxy.get("/metrics").await;
    let hash = dump["config"].as_str().expect("hash");
    assert!(metrics.contains(&format!("hash=\"{hash}\"")), "{hash}");
    let calls = rows(&dump, "calls");
    assert_eq!(
        methods(&calls),
        ["RunPodSandbox", "RunPodSandbox", "StopPodSandbox"]
    );
    assert_eq!(calls[1].pod_path().as_deref(), Some("shop/web-1"));
    assert_eq!(calls[2].code, "INTERNAL");
    assert_eq!(methods(&rows(&dump, "polls")), ["ListContainers"]);
    let flying = rows(&dump, "in_flight");
    assert_eq!(
        (methods(&flying), flying[0].phase.as_deref()),
        (vec!["PullImage"], Some("waiting"))
    );
    let trace = serde_json::from_slice(&trace).expect("json");
    let phases = check_trace(&trace);
    // Four calls, each with its backend slice; one call in flight, also with it.
    assert_eq!((phases["X"], phases["B"]), (8, 2));

    let dir = proxy.dumps();
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).expect("dir") {
        assert_eq!(mode(&entry.expect("entry").path()), 0o600);
    }
    let line = proxy.wait_event("dump.written").await;
    assert!(
        line["file.path"]
            .as_str()
            .is_some_and(|p| p.starts_with(dir.to_str().expect("utf-8")))
    );
    // The program keeps running.
    proxy.signal(Signal::SIGUSR2);
    assert_eq!(proxy.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn dumps_are_read_over_http() {
    let (fake, proxy) = proxied().await;
    let (_client, _open) = traffic(&fake, &proxy).await;
    let json = async |query: &str| -> Value {
        let (status, text) = proxy
            .get(&format!("/debug/flight?format=json{query}"))
            .await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("json")
    };
    assert_eq!(rows(&json("").await, "calls").len(), 3);
    let of_pod = json("&pod=shop/web-1").await;
    let calls = rows(&of_pod, "calls");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].pod_uid.as_deref(), Some("uid-web-1"));
    assert_eq!(rows(&of_pod, "in_flight"), []);
    let pulls = json("&method=PullImage").await;
    assert_eq!(
        (rows(&pulls, "calls").len(), rows(&pulls, "in_flight").len()),
        (0, 1)
    );
    let (status, trace) = proxy
        .get("/debug/flight?format=perfetto&method=PullImage")
        .await;
    assert_eq!(status, 200);
    let trace = serde_json::from_str(&trace).expect("json");
    assert_eq!(check_trace(&trace).get("X"), None);
    let (status, html) = proxy.get("/debug/flight?pod=shop%2Fweb-1").await;
    assert_eq!(status, 200);
    assert!(
        html.contains("pod=shop%2Fweb%2D1") && !html.contains("web-0"),
        "{html}"
    );
    for bad in ["pod=web-1", "method=Fly", "format=xml"] {
        assert_eq!(
            proxy.get(&format!("/debug/flight?{bad}")).await.0,
            400,
            "{bad}"
        );
    }
    assert!(!proxy.dumps().exists(), "reading writes nothing");
}

#[tokio::test]
async fn a_stuck_call_is_logged_before_its_deadline_and_dumped() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, Step::Hang]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    // With this deadline, the checks on the call in flight have several seconds between its stages.
    let call = run_pod("slow").with("grpc-timeout", "10S");
    let open = client.start(call).await;
    let stuck = async |percent: u32| {
        let wanted = move |l: &Value| l["event"] == "rpc.stuck" && l["percent"] == percent;
        proxy.wait_line("a stuck call", wanted).await
    };
    let half = stuck(50).await;
    assert_eq!(
        (&half["k8s.pod.name"], &half["phase"]),
        (&"slow".into(), &"waiting".into())
    );
    let after = half["duration_ms"].as_f64().expect("number");
    // The machine may be busy; unit tests with a mock clock check the exact time.
    assert!((5000.0..9000.0).contains(&after), "{after}");
    let scrape = proxy.scrape().await;
    for name in ["criscope_rpc_stuck_total", "criscope_rpc_stuck_in_flight"] {
        let of_method = scrape.metric(name).with("method", "RunPodSandbox");
        assert_eq!(of_method.sum(), 1.0, "{name}");
    }
    let table: RpcTable = serde_json::from_value(proxy.json("/debug/rpcz").await).expect("json");
    assert_eq!((table.methods[0].in_flight, table.methods[0].stuck), (1, 1));
    stuck(90).await;
    stuck(100).await;
    let [json, trace] = proxy.wait_dump("stuck").await;
    let dump: Value = serde_json::from_slice(&json).expect("json");
    // It ends half a second after its deadline, possibly before the dump is taken.
    let seen = [rows(&dump, "in_flight"), rows(&dump, "calls")].concat();
    assert_eq!(
        (methods(&seen), seen[0].stuck),
        (vec!["RunPodSandbox"], Some(100))
    );
    assert_eq!(dump["detail"], "RunPodSandbox of shop/slow, call 0");
    check_trace(&serde_json::from_slice(&trace).expect("json"));
    assert_eq!(open.finish().await.code(), 4);
    let end = proxy.wait_event("rpc.end").await;
    assert_eq!(
        (&end["stuck"], &end["rpc.status_code"]),
        (&100.into(), &"DEADLINE_EXCEEDED".into())
    );
    let gone = |s: &Scrape| s.metric("criscope_rpc_stuck_in_flight").is_empty();
    proxy.wait_scrape("no stuck calls", gone).await;
    // Another one soon afterwards is logged, but not dumped.
    let again = client
        .call(run_pod("slow").with("grpc-timeout", "100m"))
        .await;
    assert_eq!(again.code(), 4);
    let log = proxy.stop().await.join("\n");
    assert_eq!(log.matches("dump.written").count(), 1, "{log}");
}

/// A 64 KiB file system, unmounted on drop.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(crate) fn new() -> Self {
        packages::need_root();
        let dir = tempfile::tempdir().expect("dir");
        let size = Some("size=64k");
        mount(
            Some("none"),
            dir.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            size,
        )
        .expect("mount");
        Self(dir)
    }
}

impl SmallDisk {
    pub(crate) fn directory(&self) -> &TempDir {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).expect("unmount");
    }
}

#[tokio::test]
async fn a_full_disk_is_counted_and_harms_no_call() {
    let small = SmallDisk::new();
    let ballast = small.0.path().join("ballast");
    fs::write(&ballast, vec![0; 56 << 10]).expect("written");
    let config = format!("[story]\nstate_dir = {:?}\n", small.0.path());
    let fake = Fake::new();
    let proxy = Start::new(crate::CRISCOPE)
        .config(&config)
        .upstream(fake.path())
        .ready()
        .await;
    let client = proxy.client().await;
    for n in 0..40 {
        assert_eq!(client.call(run_pod(&format!("web-{n}"))).await.code(), 0);
    }
    proxy.signal(Signal::SIGUSR2);
    let line = proxy.wait_event("dump.failed").await;
    let error = line["error.message"].as_str().expect("error");
    assert!(
        error.contains("dumps/") && error.contains("No space left"),
        "{error}"
    );
    let dropped = |s: &Scrape| {
        let dumps = s
            .metric("criscope_telemetry_dropped_total")
            .with("signal", "dump");
        dumps.with("reason", "write_failed").sum()
    };
    proxy
        .wait_scrape("the dropped dump", |s| dropped(s) == 1.0)
        .await;
    let dir = small.0.path().join("dumps");
    assert_eq!(
        fs::read_dir(&dir).expect("dir").count(),
        0,
        "no partial dump remains"
    );
    assert_eq!(client.call(run_pod("after")).await.code(), 0);
    assert_eq!(proxy.get("/debug/flight").await.0, 200);
    // With free space it is written again.
    fs::remove_file(&ballast).expect("removed");
    until_true("a dump", async || {
        proxy.signal(Signal::SIGUSR2);
        // A failed dump is told by its count only; the next signal is to find this one done.
        tokio::time::sleep(Duration::from_millis(100)).await;
        fs::read_dir(&dir).expect("dir").count() >= 1
    })
    .await;
    proxy.stop().await;
}

#[tokio::test]
async fn rates_samples_and_settings_have_pages() {
    let (fake, proxy) = proxied().await;
    let (_client, _open) = traffic(&fake, &proxy).await;
    let table: RpcTable = serde_json::from_value(proxy.json("/debug/rpcz").await).expect("json");
    let row = |name: &str| {
        table
            .methods
            .iter()
            .find(|m| m.method == name)
            .expect("there")
    };
    let run = row("RunPodSandbox");
    assert_eq!(
        (
            run.minute.calls,
            run.hour.calls,
            run.all.calls,
            run.all.errors
        ),
        (2, 2, 2, 0)
    );
    assert!(run.minute.p99_ms > Some(0.0) && run.minute.seconds > 0.0);
    assert_eq!(row("StopPodSandbox").all.errors, 1);
    assert_eq!(
        (row("PullImage").in_flight, row("PullImage").all.calls),
        (1, 0)
    );

    let samples: CallSamples =
        serde_json::from_value(proxy.json("/debug/tracez").await).expect("json");
    let of = |name: &str| {
        samples
            .methods
            .iter()
            .find(|m| m.method == name)
            .expect("there")
    };
    assert_eq!(
        of("RunPodSandbox")
            .buckets
            .iter()
            .map(|b| b.count)
            .sum::<u64>(),
        2
    );
    assert_eq!(
        of("StopPodSandbox").errors.samples[0].error.as_deref(),
        Some("no such bridge")
    );
    let (status, html) = proxy.get("/debug/tracez?method=RunPodSandbox").await;
    assert!(
        status == 200 && html.contains("shop/web-0") && !html.contains("StopPodSandbox"),
        "{html}"
    );
    assert_eq!(proxy.get("/debug/tracez?method=Fly").await.0, 400);

    let json = async |page: &str| -> Value {
        let (status, text) = proxy.get(&format!("{page}?format=json")).await;
        assert_eq!((status, proxy.get(page).await.0), (200, 200), "{page}");
        serde_json::from_str(&text).expect("json")
    };
    let backends = json("/debug/backends").await;
    assert_eq!(
        (&backends[0]["name"], &backends[0]["up"]),
        (&"upstream".into(), &true.into())
    );
    assert_eq!(
        (&backends[0]["api"], &backends[0]["in_flight"]),
        (&"runtime.v1".into(), &1.into())
    );
    let routes = json("/debug/routes").await;
    assert_eq!(routes["default"], "upstream");
    assert_eq!(routes["decisions"][0]["calls"], 4);
    let config = json("/debug/config").await;
    let listen = format!("\"unix://{}\"", proxy.socket().display());
    assert_eq!(
        config["settings"]["server.listen"]["value"],
        Value::String(listen)
    );
    proxy.set_log_level("warn").await;
    assert_eq!(json("/debug/config").await["log_level_now"], "warn");
}

#[tokio::test]
async fn a_reload_shows_in_the_settings() {
    let fake = Fake::new();
    let config = "[telemetry.log]\nlevel = \"info\"\n";
    let proxy = Start::new(crate::CRISCOPE)
        .config(config)
        .upstream(fake.path())
        .ready()
        .await;
    proxy.reload("[telemetry.log]\nlevel = \"info,criscope::rpc=debug\"\n");
    until_true("the new level is shown", async || {
        let config = proxy.json("/debug/config").await;
        let level = &config["settings"]["telemetry.log.level"]["value"];
        level == "\"info,criscope::rpc=debug\""
    })
    .await;
}
