//! Estimates, keys and the file.

use super::file::{load, save};
use super::*;
use criscope_cri::Method;

fn key(name: &str) -> WorkKey {
    WorkKey::Plugin(name.into())
}

fn fed(samples: impl IntoIterator<Item = f64>) -> UsualDurations {
    let mut usual = UsualDurations::default();
    for (at, ms) in (0..).zip(samples) {
        let took = Duration::from_secs_f64(ms / 1e3);
        usual.learn(key("bridge"), took, UnixMicros::new(at));
    }
    usual
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn near(value: Duration, wanted: Duration) -> bool {
    value.div_duration_f64(wanted).log2().abs() < 0.5
}

#[test]
fn few_samples_are_not_compared() {
    assert_eq!(fed([100.0; 4]).typical(&key("bridge")), None);
    let typical = fed([100.0; 5]).typical(&key("bridge")).expect("typical");
    assert!(near(typical.median, ms(100)) && near(typical.high, ms(100)));
    assert_eq!(fed([100.0; 5]).typical(&key("other")), None);
}

#[test]
fn median_and_spread_are_found() {
    // 1 to 1000 ms, in no order.
    let samples = (0..5000_u32).map(|n| f64::from(n * 7919 % 1000 + 1));
    let typical = fed(samples).typical(&key("bridge")).expect("typical");
    assert!(near(typical.median, ms(500)), "{typical:?}");
    assert!(near(typical.high, ms(900)), "{typical:?}");
}

#[test]
fn a_storm_moves_it_little_and_a_change_moves_it_in_the_end() {
    let calm = [100.0; 200].into_iter();
    let storm = |n| std::iter::repeat_n(100_000.0, n);
    let typical = fed(calm.clone().chain(storm(10))).typical(&key("bridge"));
    let typical = typical.expect("typical");
    assert!(typical.median < ms(150), "{typical:?}");
    assert!(typical.is_exceeded_by(ms(20_000)));
    let typical = fed(calm.chain(storm(1000))).typical(&key("bridge"));
    assert!(near(typical.expect("typical").median, ms(100_000)));
}

#[test]
fn what_is_unusual() {
    let typical = TypicalDuration {
        median: ms(300),
        high: ms(900),
    };
    for (took, wanted) in [(300, false), (800, false), (901, true), (5000, true)] {
        assert_eq!(typical.is_exceeded_by(ms(took)), wanted, "{took}");
    }
    let short = TypicalDuration {
        median: ms(1),
        high: ms(2),
    };
    assert!(!short.is_exceeded_by(ms(100)), "too short to matter");
}

#[test]
fn it_is_bounded_and_survives_a_restart() {
    let mut usual = fed([100.0; 9]);
    for n in 0..400_u64 {
        let at = UnixMicros::new(100 + n);
        usual.learn(key(&format!("plugin-{n}")), ms(5), at);
    }
    assert_eq!(usual.keys.len(), MAX_KEYS);
    assert_eq!(
        usual.typical(&key("bridge")),
        None,
        "the oldest is forgotten"
    );
    usual.learn(
        WorkKey::call(Method::RunPodSandbox, Some("kata")),
        ms(7),
        UnixMicros::new(900),
    );
    usual.learn(
        WorkKey::repository("r.io:5000/a/b:1"),
        ms(7),
        UnixMicros::new(901),
    );
    let dir = tempfile::tempdir().expect("dir");
    let dir = dir.path().join("state");
    assert_eq!(load(&dir).expect("no file"), UsualDurations::default());
    let changed = usual.take_changed().expect("changed");
    save(&dir, &changed).expect("saved");
    let read = load(&dir).expect("read");
    assert_eq!(read.keys.len(), changed.keys.len());
    for (key, entry) in &changed.keys {
        let again = read.keys.get(key).expect("the key");
        let medians = (again.estimate.median(), entry.estimate.median());
        assert!(again.at == entry.at && near(medians.0, medians.1), "{key}");
    }
    assert_eq!(usual.take_changed(), None);
    let size = std::fs::metadata(dir.join("usual.json"))
        .expect("file")
        .len();
    assert!(size < 64 << 10, "{size}");
    std::fs::write(dir.join("usual.json"), "{\"keys\": {\"no").expect("written");
    assert!(load(&dir).is_err());
}

#[test]
fn tags_and_digests_do_not_matter() {
    let repository = |name: &str| WorkKey::Repository(name.into());
    for (image, name) in [
        ("r.io/a:1", "r.io/a"),
        ("r.io:5000/a", "r.io:5000/a"),
        ("r.io:5000/a:1@sha256:0a", "r.io:5000/a"),
        ("a", "a"),
    ] {
        assert_eq!(WorkKey::repository(image), repository(name));
    }
}

/// The journal has it: a restart of criscope changes no sentence either.
#[test]
fn what_was_usual_when_a_call_ended_is_part_of_its_line() {
    let mut call = crate::tests::script::pod("web").run(0, 1500);
    call.usual = Some(Box::new(UsualAtEnd {
        typical: TypicalDuration {
            median: ms(200),
            high: ms(300),
        },
        starts: None,
    }));
    let line = serde_json::to_string(&call).expect("JSON");
    assert!(
        line.contains(r#""usual":{"median":200000,"high":300000}"#),
        "{line}"
    );
    let read: crate::episode_call::EpisodeCall = serde_json::from_str(&line).expect("read");
    assert_eq!(read.usual, call.usual);
}
