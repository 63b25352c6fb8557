//! Observing the runtime's work during slow calls: real processes that behave like CNI plugins.

use std::process::Child;

use crate::harness::pid_namespace::is_alone;
use crate::harness::script::ok;
use crate::prelude::*;

const CANARY: &str = "hunter2";
const SETTINGS: &str = "[sampler]\nafter = \"50ms\"\nperiod = \"20ms\"\n";

/// A runtime whose calls wait until the token is cancelled.
fn slow_runtime() -> (Fake, CancellationToken) {
    let fake = Fake::new();
    let go = CancellationToken::new();
    let mut steps = ok(&[message(b"")]);
    steps.insert(1, Step::Wait(go.clone()));
    fake.always(steps);
    (fake, go)
}

/// A process with a plugin's name that runs until its stdin closes.
struct Plugin {
    _dir: TempDir,
    child: Child,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn plugin(name: &str, pod: &str) -> Plugin {
    let dir = tempfile::tempdir().expect("dir");
    let path: PathBuf = dir.path().join(name);
    fs::copy("/bin/cat", &path).expect("copy");
    let args =
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod};K8S_POD_UID=uid-{pod}");
    let child = Command::new(path)
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", format!("sandbox-of-{pod}"))
        .env("CNI_ARGS", args)
        .env("TOKEN", CANARY)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    Plugin { _dir: dir, child }
}

fn sightings(scrape: &Scrape, work: &str) -> f64 {
    let all = scrape.metric("criscope_sampler_observations_total");
    all.with("work", work).sum()
}

fn looks(scrape: &Scrape) -> f64 {
    scrape.metric("criscope_sampler_scans_total").sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_of_a_slow_call_is_observed() {
    if !is_alone("sampler::a_plugin_of_a_slow_call_is_observed") {
        return;
    }
    let (fake, go) = slow_runtime();
    let proxy = configured(&fake, SETTINGS).await;
    // The first scan, which shows whether it is possible, may outlast the start.
    let enabled = |scrape: &Scrape| scrape.metric("criscope_sampler_enabled").sum() == 1.0;
    let scrape = proxy.wait_scrape("a sampler", enabled).await;
    assert_eq!(looks(&scrape), 0.0, "no call is slow");
    let client = proxy.client().await;
    let calls = [
        client.start(pods::run("cart")).await,
        client.start(pods::run("till")).await,
    ];
    fake.wait_count(2).await;
    let _ours = plugin("calico", "cart");
    let _others = plugin("bridge", "unrelated");
    let scrape = proxy
        .wait_scrape("a sighting", |scrape| sightings(scrape, "cni") > 0.0)
        .await;
    assert_eq!(sightings(&scrape, "oci"), 0.0);
    let seen = looks(&scrape);
    let scrape = proxy
        .wait_scrape("more looks", |scrape| looks(scrape) > seen + 5.0)
        .await;
    assert_eq!(
        sightings(&scrape, "cni"),
        1.0,
        "one plugin, observed repeatedly"
    );

    go.cancel();
    for call in calls {
        assert_eq!(call.finish().await.code(), 0);
    }
    let after = looks(&proxy.wait_balanced(2).await);
    for _ in 0..50 {
        assert_eq!(client.call(Call::plain("Status")).await.code(), 0);
    }
    assert!(
        looks(&proxy.scrape().await) <= after + 1.0,
        "nothing is slow"
    );
    let log = proxy.stop().await.join("\n");
    assert!(!log.contains(CANARY) && !log.contains("sampler."), "{log}");
}

/// As started by the unit in `deploy/systemd`: CAP_SYS_PTRACE is required to read environments of root's processes.
#[tokio::test(flavor = "multi_thread")]
async fn the_units_capabilities_are_sufficient_and_necessary() {
    if !is_alone("sampler::the_units_capabilities_are_sufficient_and_necessary") {
        return;
    }
    let unit = include_str!("../../deploy/systemd/criscope.service");
    let all = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("a bounding set")
        .to_lowercase();
    assert!(all.contains("cap_sys_ptrace"), "{all}");
    let less = all.replace("cap_sys_ptrace", "");
    for (set, limited) in [(all, false), (less, true)] {
        let mut bounds = "-all".to_owned();
        for cap in set.split_whitespace() {
            bounds += &format!(",+{}", cap.trim_start_matches("cap_"));
        }
        let (fake, go) = slow_runtime();
        let proxy = Start::before(crate::CRISCOPE, &fake)
            .config(SETTINGS)
            .wrapped({
                let mut setpriv = Command::new(program("setpriv", "util-linux"));
                setpriv.arg(format!("--bounding-set={bounds}"));
                setpriv
            })
            .ready()
            .await;
        let client = proxy.client().await;
        let call = client.start(pods::run("cart")).await;
        fake.wait_count(1).await;
        // One with a known name, for the pod, and unrelated ones.
        let _running = [
            plugin("calico", "cart"),
            plugin("some-program", "unrelated"),
            plugin("another-one", "unrelated"),
        ];
        let scrape = proxy
            .wait_scrape("a sighting", |scrape| sightings(scrape, "cni") > 0.0)
            .await;
        assert_eq!(sightings(&scrape, "cni"), 1.0);
        if limited {
            proxy.wait_event("sampler.limited").await;
        }
        go.cancel();
        assert_eq!(call.finish().await.code(), 0);
        let log = proxy.stop().await.join("\n");
        assert_eq!(log.contains("sampler.limited"), limited, "{log}");
    }
}

/// A `/proc` that shows only a user's own processes (hidepid), in a private mount namespace.
#[tokio::test(flavor = "multi_thread")]
async fn the_sampler_disables_itself_where_processes_are_hidden() {
    need_root();
    let fake = Fake::new();
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .config(SETTINGS)
        .wrapped({
            let script = "mount -t proc -o hidepid=ptraceable proc /proc && \
                exec setpriv --bounding-set=-sys_ptrace \"$@\"";
            let mut hidden = Command::new(program("unshare", "util-linux"));
            hidden.args(["--mount", "--propagation", "private"]);
            hidden.args(["sh", "-c", script, "sh"]);
            hidden
        })
        .ready()
        .await;
    let off = proxy.wait_event("sampler.off").await;
    let reason = off["reason"].as_str().expect("a reason");
    assert!(reason.contains("hidden in /proc"), "{reason}");
    let scrape = proxy.scrape().await;
    assert_eq!(scrape.metric("criscope_sampler_enabled").sum(), 0.0);
    let got = proxy
        .client()
        .await
        .call(Call::plain("StopContainer"))
        .await;
    assert_eq!(got.code(), 0);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sampler_can_be_disabled() {
    let (fake, go) = slow_runtime();
    let config = SETTINGS.to_owned() + "enabled = false\n";
    let proxy = configured(&fake, &config).await;
    let client = proxy.client().await;
    let call = client.start(pods::run("cart")).await;
    let age = "criscope_rpc_oldest_in_flight_seconds";
    let scrape = proxy
        .wait_scrape("an old call", |scrape| scrape.metric(age).sum() > 0.2)
        .await;
    assert_eq!(scrape.metric("criscope_sampler_enabled").sum(), 0.0);
    assert_eq!(looks(&scrape), 0.0);
    go.cancel();
    assert_eq!(call.finish().await.code(), 0);
    proxy.stop().await;
}
