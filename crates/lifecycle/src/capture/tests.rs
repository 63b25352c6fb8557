//! A capture says on another machine what the node said.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::Stories;
use crate::episode_call::EpisodeCall;
use crate::journal::JournalLine;
use crate::stories::tests::stories;
use crate::tests::scenario::read_calls;
use crate::tests::script::pod;
use criscope_cri::call::CallState;
use criscope_cri::units::times::UnixMicros;

fn bundle(stories: &Stories, calls: &[EpisodeCall]) -> CaptureBundle {
    let lines = calls.iter().filter_map(JournalLine::call);
    let lines = lines.map(|line| serde_json::to_string(&line).expect("json") + "\n");
    CaptureBundle {
        manifest: CaptureManifest {
            format: CAPTURE_FORMAT,
            criscope: "criscope 1".to_owned(),
            kernel: "6.1".to_owned(),
            host: "node".to_owned(),
            made_unix_us: UnixMicros::new(1),
            origin: CaptureOrigin::Daemon,
            pod: None,
            requests: None,
        },
        snapshot: ProcessSnapshot::new(stories, &[], Path::new("/nowhere")),
        journal: [Vec::new(), lines.collect::<String>().into_bytes()],
        requests: Vec::new(),
        pages: BTreeMap::from([("metrics.txt".to_owned(), b"a 1\n".to_vec())]),
    }
}

fn reread(bundle: &CaptureBundle) -> CaptureBundle {
    let mut file = Vec::new();
    bundle.write(&mut file).expect("written");
    CaptureBundle::read(&*file).expect("read")
}

fn calls() -> Vec<EpisodeCall> {
    read_calls(
        "run 0 +9s cni calico doing iptables 10..8900; pod db; run 100 +100; pull db:1 300 +100 fails NOT_FOUND no; \
         pod web; create app 9100 +100; start app 9300 +100",
    )
}

#[test]
fn it_says_the_same_elsewhere() {
    let here = stories(calls());
    let there = reread(&bundle(&here, &calls())).stories();
    for name in ["web", "db"] {
        let of = |stories: &Stories| stories.pod_story("shop", name, None, &[]).expect("known");
        // How long ago it was is that of the capture.
        let text = |stories: &Stories| of(stories).headline.split(" (").next().map(str::to_owned);
        assert_eq!(text(&here), text(&there), "{name}");
        assert_eq!(of(&here).episodes[0].calls, of(&there).episodes[0].calls);
    }
    assert_eq!(there.pods(&[]).known, 2);
}

#[test]
fn headlines_and_states_of_the_same_version_are_kept() {
    let here = stories(calls());
    let mut bundle = bundle(&here, &calls());
    bundle.manifest.criscope = criscope_telemetry::version::with_commit().to_string();
    let there = reread(&bundle).stories();
    let [here, there] = [&here, &there].map(|stories| {
        let pods = stories.pods(&[]).pods.into_iter();
        let pods = pods.map(|pod| (pod.name, pod.state));
        pods.collect::<BTreeMap<_, _>>()
    });
    assert_eq!(here, there);
}

#[test]
fn a_call_in_flight_is_in_it() {
    let run = pod("web").run(0, 5000).with_deadline(240_000).under_way();
    let mut bundle = bundle(&stories([]), &[]);
    bundle.snapshot.put_in_flight(run.clone());
    bundle.snapshot.now_unix_us = run.ended_at();
    let there = reread(&bundle).stories();
    let story = there.pod_story("shop", "web", None, &[]).expect("known");
    assert!(
        story
            .headline
            .starts_with("waiting 5 s for the sandbox (limit 4 min)"),
        "{}",
        story.headline
    );
    assert!(matches!(run.state, CallState::InFlight { .. }));
}

#[test]
fn it_may_be_of_one_pod_or_of_the_last_time() {
    let here = stories(calls());
    let mut whole = bundle(&here, &calls());
    let page = br#"{"calls":[{"namespace":"shop","pod":"web"},{"namespace":"shop","pod":"db"}]}"#;
    whole.pages.insert("calls.json".to_owned(), page.to_vec());
    let mut one = whole.clone();
    one.keep_pod("shop", "db");
    let names = |bundle: &CaptureBundle| {
        let pods = reread(bundle).stories().pods(&[]).pods;
        pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&one), ["db"]);
    assert_eq!(one.manifest.pod.as_deref(), Some("shop/db"));
    let mut late = whole.clone();
    late.keep_since(crate::tests::script::at(5000));
    assert_eq!(names(&late), ["web"]);
    let shown =
        |bundle: &CaptureBundle| String::from_utf8_lossy(&bundle.pages["calls.json"]).into_owned();
    assert!(shown(&one).contains("db") && !shown(&one).contains("web"));
    assert!(shown(&late).contains("web") && !shown(&late).contains("db"));
}

#[test]
fn other_files_are_refused() {
    let error = |bytes: &[u8]| CaptureBundle::read(bytes).expect_err("refused").to_string();
    assert!(error(b"nonsense").contains("no readable archive"));
    let mut empty = Vec::new();
    let gzip = flate2::write::GzEncoder::new(&mut empty, flate2::Compression::default());
    let archive = tar::Builder::new(gzip).into_inner().expect("empty");
    archive.finish().expect("empty");
    assert_eq!(error(&empty), "no capture: it has no manifest.json");
    let mut later = bundle(&stories([]), &[]);
    later.manifest.format = CAPTURE_FORMAT + 1;
    let mut file = Vec::new();
    later.write(&mut file).expect("written");
    assert!(error(&file).contains("use a later one"));
    // Cut anywhere, it is an error, not a shorter capture.
    let mut file = Vec::new();
    bundle(&stories(calls()), &calls())
        .write(&mut file)
        .expect("written");
    for at in (0..file.len() - 8).step_by(97) {
        assert!(CaptureBundle::read(&file[..at]).is_err(), "cut at {at}");
    }
}
