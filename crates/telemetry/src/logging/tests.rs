//! Lines, levels, limits, and pipes that are stuck.

use std::time::Instant;

use serde_json::json;

use super::limit::{BURST_LINES, LINES_PER_SECOND};
use super::testing::logged;
use super::*;
use crate::TEST_TIMEOUT;
use crate::drops::DropReason;

#[test]
fn a_json_line_is_flat() {
    let written = logged("info", LogFormat::Json, |_| {
        let error = io::Error::other("broken \"pipe\"\n");
        tracing::info!(
            target: "criscope::test",
            event = "x.y", pod.name = "web\u{1b}[31m", n = 3u64, f = 1.5, yes = true, missing = None::<&str>,
            error = &error as &dyn std::error::Error, shown = %format_args!("a{}", 1),
            "hello {}", "world"
        );
    });
    let mut objects = written.objects();
    assert_eq!(objects.len(), 1);
    let ts = objects[0]
        .as_object_mut()
        .expect("object")
        .remove("ts")
        .expect("ts");
    let ts = ts.as_str().expect("text");
    assert!(
        ts.starts_with("20") && ts.ends_with('Z') && ts.as_bytes()[10] == b'T',
        "{ts}"
    );
    assert_eq!(
        objects[0],
        json!({
            "level": "info", "target": "criscope::test", "event": "x.y", "msg": "hello world",
            "pod.name": "web\u{1b}[31m", "n": 3, "f": 1.5, "yes": true,
            "error": "broken \"pipe\"\n", "shown": "a1"
        })
    );
}

#[test]
fn a_line_is_bounded_and_has_no_line_breaks() {
    let long = "x".repeat(1 << 20);
    for format in [LogFormat::Json, LogFormat::Text] {
        let written = logged("info", format, |_| {
            let error = io::Error::other(long.clone());
            tracing::warn!(
                target: "criscope::test",
                name = long, %error, shown = ?long, cause = &error as &dyn std::error::Error,
                forged = "a\n2026-01-01T00:00:00Z ERROR criscope::rpc: forged \u{1b}[2J\u{9b}2J",
                plain = %"b\nc", "{long}"
            );
        });
        let text = written.text();
        assert_eq!(text.lines().count(), 1, "{format:?}");
        assert!(text.len() < 64 << 10, "{format:?}: {} bytes", text.len());
        assert!(text.contains("xx…"), "{format:?}: the cut is marked");
        let line = text.trim_end_matches('\n');
        // JSON may contain raw C1 controls, and its readers unescape all other control characters anyway.
        let is_raw = |c: char| c.is_ascii_control() || format == LogFormat::Text && c.is_control();
        assert!(!line.contains(is_raw), "{format:?}");
    }
}

#[test]
fn text_lines_are_human_readable() {
    let written = logged("info", LogFormat::Text, |_| {
        tracing::warn!(target: "criscope::test", n = 3, "hello");
        tracing::debug!(target: "criscope::test", "not heard");
    });
    let text = written.text();
    assert!(
        text.ends_with(" WARN criscope::test: hello n=3\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn the_level_can_change_at_run_time() {
    let written = logged("info", LogFormat::Json, |handle| {
        let say = |text: &str| tracing::debug!(target: "criscope::test", "{text}");
        assert_eq!(handle.level(), "info");
        say("too early");
        handle
            .set_level("warn,criscope::test=debug")
            .expect("a level");
        assert_eq!(handle.level(), "warn,criscope::test=debug");
        say("heard");
        assert!(matches!(handle.set_level("loud"), Err(LogError::Level(_))));
        assert_eq!(handle.level(), "warn,criscope::test=debug");
        say("still heard");
        handle.set_level("off").expect("a level");
        say("too late");
    });
    let said: Vec<_> = written.objects().iter().map(|o| o["msg"].clone()).collect();
    assert_eq!(said, ["heard", "still heard"]);
}

#[test]
fn repeated_events_are_rate_limited_and_counted() {
    testing::apart();
    let before = Instant::now();
    let drops = Arc::new(Drops::default());
    let written = testing::Written::default();
    let config = LogSettings {
        format: LogFormat::Json,
        level: "info".to_owned(),
    };
    let (subscriber, _handle, guard) = subscriber(
        &config,
        written.clone(),
        false,
        LogExports::default(),
        &drops,
    )
    .expect("set up");
    let storm =
        |n: usize| (0..n).for_each(|i| tracing::warn!(target: "criscope::test", i, "storm"));
    tracing::subscriber::with_default(subscriber, || {
        storm(2000);
        tracing::warn!(target: "criscope::test", "another event");
        // Wait until the bucket has a token again.
        thread::sleep(Duration::from_millis(30));
        storm(1);
    });
    let took = before.elapsed();
    drop(guard);
    let objects = written.objects();
    let storms = objects.iter().filter(|o| o["msg"] == "storm").count();
    // The burst, and the tokens added meanwhile.
    let most = BURST_LINES + (took.as_secs() + 1) * LINES_PER_SECOND;
    assert!((BURST_LINES..=most).contains(&(storms as u64)), "{storms}");
    assert_eq!(
        objects
            .iter()
            .filter(|o| o["msg"] == "another event")
            .count(),
        1
    );
    let told: u64 = objects
        .iter()
        .filter_map(|o| o["suppressed"].as_u64())
        .sum();
    assert_eq!(
        told,
        drops.count(DropReason::LogRateLimited),
        "every suppressed line is reported"
    );
    assert_eq!(told as usize + storms, 2001);
}

/// With standard error blocked, lines are dropped and counted, and neither callers nor shutdown wait.
#[test]
fn a_stuck_pipe_delays_no_caller() {
    testing::apart();
    let (reader, writer) = io::pipe().expect("pipe");
    let drops = Arc::new(Drops::default());
    let config = LogSettings {
        format: LogFormat::Json,
        level: "info".to_owned(),
    };
    let (subscriber, _handle, guard) =
        subscriber(&config, writer, false, LogExports::default(), &drops).expect("set up");
    let before = Instant::now();
    let text = "x".repeat(4000);
    tracing::subscriber::with_default(subscriber, || {
        // Each callsite has its own limit, so that the queue overflows first.
        macro_rules! lines {
            ($($n:literal)*) => {
                $(for _ in 0..350 { tracing::info!(target: "criscope::test", n = $n, "{text}"); })*
            };
        }
        lines!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    });
    assert!(before.elapsed() < TEST_TIMEOUT, "{:?}", before.elapsed());
    assert!(drops.count(DropReason::LogQueueFull) > 0);
    drop(guard);
    assert!(
        before.elapsed() < 2 * TEST_TIMEOUT,
        "{:?}",
        before.elapsed()
    );
    drop(reader);
}
