//! What viewers require of a trace file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::dump::DumpFilter;
use super::super::dump::tests::example;
use super::super::{RecordedCalls, dump};
use super::*;
use crate::examples::{plain, pod, record};
use criscope_cri::call::Call;

fn trace(dump: &RecorderDump, most: usize) -> (usize, Value) {
    let mut text = Vec::new();
    dump.write_trace(&mut text, most).expect("written");
    (text.len(), serde_json::from_slice(&text).expect("json"))
}

/// Slices of one track nest or are disjoint; every track and its process have names.
fn check(trace: &Value) -> BTreeMap<(u64, u64), usize> {
    let events = trace["traceEvents"].as_array().expect("events");
    let number = |event: &Value, key: &str| event[key].as_u64().expect("number");
    let mut named = BTreeSet::new();
    for event in events.iter().filter(|e| e["name"] == "thread_name") {
        assert!(named.insert((number(event, "pid"), number(event, "tid"))));
    }
    let processes: BTreeSet<_> = events
        .iter()
        .filter(|e| e["name"] == "process_name")
        .map(|e| number(e, "pid"))
        .collect();
    let mut open: BTreeMap<(u64, u64), Vec<f64>> = BTreeMap::new();
    let mut slices = BTreeMap::new();
    let mut last = 0.0;
    for event in events.iter().filter(|e| e["ph"] != "M") {
        let track = (number(event, "pid"), number(event, "tid"));
        assert!(
            named.contains(&track) && processes.contains(&track.0),
            "{event}"
        );
        let begin = event["ts"].as_f64().expect("ts");
        let end = match event["ph"].as_str() {
            Some("X") => begin + event["dur"].as_f64().expect("dur"),
            Some("B") => f64::INFINITY,
            other => panic!("{other:?}"),
        };
        // To the nanosecond, the resolution of viewers.
        let stack = open.entry(track).or_default();
        while stack.last().is_some_and(|outer| *outer <= begin + 0.0005) {
            stack.pop();
        }
        let within = stack.last().is_none_or(|outer| end <= outer + 0.0005);
        assert!(within, "{event} overlaps a slice that ends at {stack:?}");
        stack.push(end);
        if event["cat"] != "backend" {
            assert!(stack.len() == 1, "{event} lies within another call");
            assert!(begin >= last, "by begin");
            last = begin;
            *slices.entry(track).or_default() += 1;
        }
    }
    slices
}

#[test]
fn a_dump_becomes_a_trace() {
    let (_, trace) = trace(&example(), usize::MAX);
    let slices = check(&trace);
    // Three pods, and calls without one: a poll and a call in flight.
    assert_eq!(slices.len(), 4, "{slices:?}");
    let events = trace["traceEvents"].as_array().expect("events");
    let begun: Vec<_> = events.iter().filter(|e| e["ph"] == "B").collect();
    assert_eq!(begun.len(), 1);
    assert_eq!(begun[0]["args"]["outcome"], "in_flight");
    let start = events
        .iter()
        .find(|e| e["args"]["pod"] == "web-2")
        .expect("a call");
    assert_eq!(
        (&start["name"], &start["cat"]),
        (&"StartContainer".into(), &"mutating".into())
    );
    assert_eq!(
        (&start["ts"], &start["dur"]),
        (&1e6.into(), &10_000.0.into())
    );
    let backend = events.iter().find(|e| e["cat"] == "backend").expect("one");
    assert_eq!(
        (&backend["name"], &backend["dur"]),
        (&"main".into(), &9000.0.into())
    );
    let names: Vec<_> = events
        .iter()
        .filter(|e| e["name"] == "process_name")
        .map(|e| e["args"]["name"].as_str().expect("name"))
        .collect();
    assert_eq!(names, ["shop/web-1", "shop/web-2", "shop/web-3", "no pod"]);
    assert_eq!(trace["otherData"]["reason"], "http");
    assert_eq!(
        trace["otherData"]["begin_unix_us"],
        1_700_000_001_000_000_u64
    );
}

/// Calls of one pod that overlap in every way, one with a backend's part longer than the call.
#[test]
fn calls_at_the_same_time_have_tracks_of_their_own() {
    let mut calls = Vec::new();
    for n in 0..200_u64 {
        let mut call = record(n);
        call.pod = Some(pod(if n % 3 == 0 { "a" } else { "b" }));
        call.began = std::time::UNIX_EPOCH
            + Duration::from_nanos(1_700_000_000_000_000_123 + n * n % 997 * 1_001);
        call.outcome_mut().elapsed = Duration::from_nanos(n * 7919 % 50_021);
        call.backend_time = Some((
            Duration::from_nanos(n % 5 * 10_007),
            Duration::from_secs(n % 2),
        ));
        calls.push(Arc::new(call));
    }
    calls.push(Arc::new(plain(900, Method::GetContainerEvents)));
    let flying = (0..3).map(|_| {
        view::CallView::from_record(&CallRecord::in_flight(&Call::example(
            Method::ListContainers,
        )))
    });
    let memory = RecordedCalls {
        calls,
        ..RecordedCalls::default()
    };
    let about = dump::DumpHeader::default();
    let dump = RecorderDump::new(about, flying.collect(), memory, &DumpFilter::default());
    let slices = check(&trace(&dump, usize::MAX).1);
    assert_eq!(slices.values().sum::<usize>(), 204);
    assert!(slices.len() > 10, "{slices:?}");
    assert!(
        slices.values().any(|n| *n > 3),
        "tracks are used again: {slices:?}"
    );
}

#[test]
fn it_is_never_larger_than_asked_for() {
    let whole = trace(&example(), usize::MAX).0;
    for most in (700..3 * whole).step_by(50) {
        let (len, trace) = trace(&example(), most);
        assert!(len <= most, "{len} of {most}");
        check(&trace);
        let left_out = &trace["otherData"]["left_out"];
        let all_there =
            left_out["calls"] == 0 && left_out["polls"] == 0 && left_out["in_flight"] == 0;
        assert!(
            all_there || most < 2 * whole,
            "{left_out} of {most}, {whole}"
        );
    }
}

#[test]
fn nothing_at_all_is_a_trace_too() {
    let (_, trace) = trace(&RecorderDump::default(), usize::MAX);
    assert_eq!(trace["traceEvents"], serde_json::json!([]));
}
