//! Invariant 4: no secret leaves. Every string and bytes field of every message is a secret, unless it is on the list
//! of what may be shown; none is found in any form in any signal, whatever the backend quotes.

mod backends;
mod filler;
mod quoted;
mod run;
mod shown;
mod words;

use criscope::cri::identity::SHOWN;

use self::filler::leaks;
use self::run::Run;
use crate::prelude::*;

/// On the list, but told by nothing that a single backend makes us say.
const NOT_TOLD: [&str; 6] = [
    // Told where a kubelet does not send the name that the pod has for it.
    "ImageSpec.image",
    // Told only of containers that cannot start, or end at once.
    "Mount.container_path",
    // Told by the calls that follow.
    "RestoredContainer.name",
    "RestoredContainer.container_id",
    // The fake runtime names itself; see `Node`.
    "VersionResponse.runtime_name",
    "VersionResponse.runtime_version",
];

async fn check(level: &str, format: &str) {
    let run = Run::through(level, format).await;
    for (place, text) in &run.places {
        let found = leaks(text);
        assert!(found.is_empty(), "{place} at {level}: {found:#?}");
    }
    // The recorder keeps the last calls only; each field on the list is shown by one of them.
    assert!(
        run.told(&["dumps"]).len() > 10,
        "{:?}",
        run.told(&["dumps"])
    );
    // Polls have lines from debug on.
    if level == "info" || level == "warn" {
        return;
    }
    for places in [&["log"][..], &["spans"], &["log", "spans", "pages"]] {
        let told = run.told(places);
        let missing: Vec<_> = expected(places).difference(&told).copied().collect();
        assert_eq!(missing, [""; 0], "not in {places:?} at {level}");
    }
}

/// The fields whose tokens have to be found in one of the places.
fn expected(places: &[&str]) -> BTreeSet<&'static str> {
    let of_pages = |name: &str| name.starts_with("RuntimeCondition.");
    SHOWN
        .iter()
        .copied()
        .filter(|name| !NOT_TOLD.contains(name))
        .filter(|name| places.contains(&"pages") || !of_pages(name))
        // A line has no handler.
        .filter(|name| places != ["log"] || !name.ends_with(".runtime_handler"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn at_trace_in_json() {
    check("trace", "json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_trace_in_text() {
    check("trace", "text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_debug_in_json() {
    check("debug", "json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_debug_in_text() {
    check("debug", "text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_info_in_json() {
    check("info", "json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_info_in_text() {
    check("info", "text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_warn_in_json() {
    check("warn", "json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_warn_in_text() {
    check("warn", "text").await;
}

/// The libraries of the request path log too, where their targets are enabled by name.
#[tokio::test(flavor = "multi_thread")]
async fn with_all_that_libraries_say() {
    let level = "trace,h2=trace,hyper=trace,hyper_util=trace,tonic=trace,tower=trace,opentelemetry=trace,\
                 opentelemetry_sdk=trace,opentelemetry_proto=trace,axum=trace";
    check(level, "json").await;
}
