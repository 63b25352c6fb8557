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
        usual.learn(key("bridge"), ms, UnixMicros::new(at));
    }
    usual
}

fn near(value: f64, wanted: f64) -> bool {
    (value / wanted).log2().abs() < 0.5
}

#[test]
fn few_samples_are_not_compared() {
    assert_eq!(fed([100.0; 4]).typical(&key("bridge")), None);
    let typical = fed([100.0; 5]).typical(&key("bridge")).expect("typical");
    assert!(near(typical.median, 100.0) && near(typical.high, 100.0));
    assert_eq!(fed([100.0; 5]).typical(&key("other")), None);
}

#[test]
fn median_and_spread_are_found() {
    // 1 to 1000 ms, in no order.
    let samples = (0..5000_u32).map(|n| f64::from(n * 7919 % 1000 + 1));
    let typical = fed(samples).typical(&key("bridge")).expect("typical");
    assert!(near(typical.median, 500.0), "{typical:?}");
    assert!(near(typical.high, 900.0), "{typical:?}");
}

#[test]
fn a_storm_moves_it_little_and_a_change_moves_it_in_the_end() {
    let calm = [100.0; 200].into_iter();
    let storm = |n| std::iter::repeat_n(100_000.0, n);
    let typical = fed(calm.clone().chain(storm(10))).typical(&key("bridge"));
    let typical = typical.expect("typical");
    assert!(typical.median < 150.0, "{typical:?}");
    assert!(typical.is_exceeded_by(20_000.0));
    let typical = fed(calm.chain(storm(1000))).typical(&key("bridge"));
    assert!(near(typical.expect("typical").median, 100_000.0));
}

#[test]
fn what_is_unusual() {
    let typical = TypicalDuration {
        median: 300.0,
        high: 900.0,
    };
    for (ms, wanted) in [
        (300.0, false),
        (800.0, false),
        (901.0, true),
        (5000.0, true),
    ] {
        assert_eq!(typical.is_exceeded_by(ms), wanted, "{ms}");
    }
    let short = TypicalDuration {
        median: 1.0,
        high: 2.0,
    };
    assert!(!short.is_exceeded_by(100.0), "too short to matter");
}

#[test]
fn it_is_bounded_and_survives_a_restart() {
    let mut usual = fed([100.0; 9]);
    for n in 0..400_u64 {
        usual.learn(key(&format!("plugin-{n}")), 5.0, UnixMicros::new(100 + n));
    }
    assert_eq!(usual.keys.len(), MAX_KEYS);
    assert_eq!(
        usual.typical(&key("bridge")),
        None,
        "the oldest is forgotten"
    );
    usual.learn(
        WorkKey::call(Method::RunPodSandbox, Some("kata")),
        7.0,
        UnixMicros::new(900),
    );
    usual.learn(
        WorkKey::repository("r.io:5000/a/b:1"),
        7.0,
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
