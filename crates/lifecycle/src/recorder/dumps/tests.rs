//! Who requests dumps, how often, and what happens when one cannot be written.

use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::TEST_TIMEOUT;
use crate::examples::{pod, record};
use crate::process_scanner::{Observation, WorkKind};
use criscope_cri::Method;
use criscope_cri::subject::Subject;

fn flying() -> Vec<Arc<Call>> {
    let call = Call::example(Method::RunPodSandbox);
    let subject = Subject {
        pod: Some(pod("web-0")),
        ..Subject::default()
    };
    call.subject.set(subject).expect("once");
    vec![Arc::new(call)]
}

fn dumps(state: &Path, keep: usize, max_bytes: usize) -> Arc<DumpWriter> {
    let recorder = FlightRecorder::new(100, 10);
    for n in 0..50 {
        recorder.record(Arc::new(record(n)), true);
        recorder.record(Arc::new(record(1000 + n)), false);
    }
    let observations = Observations::default();
    let seen = Observation {
        work: WorkKind::Cni,
        name: "calico".into(),
        command: None,
        activity: None,
        began: SystemTime::now(),
        last_seen: SystemTime::now(),
    };
    assert!(observations.put(0, vec![seen]));
    Arc::new(DumpWriter::new(DumpSources {
        recorder: Arc::new(recorder),
        in_flight: Box::new(flying),
        observations: Arc::new(observations),
        config: Box::new(|| "c0ffee".to_owned()),
        drops: Arc::default(),
        state_dir: state.to_owned(),
        keep,
        max_bytes,
    }))
}

/// Requests a dump although the last one is recent.
fn write(dumps: &Arc<DumpWriter>, reason: DumpReason) {
    dumps.last_ms[reason as usize].store(0, Ordering::Relaxed);
    assert!(dumps.ask(reason, None));
    dumps.wait(TEST_TIMEOUT);
}

fn names(dumps: &DumpWriter) -> Vec<String> {
    dumps.stored().into_iter().map(|(name, _)| name).collect()
}

fn read(dumps: &DumpWriter, name: &str) -> Value {
    let text = fs::read(dumps.dir().join(name)).expect("file");
    serde_json::from_slice(&text).expect("json")
}

fn failed(dumps: &DumpWriter) -> u64 {
    dumps.parts.drops.count(DropReason::DumpFailed)
}

#[test]
fn a_dump_is_two_files_with_everything() {
    let dir = TempDir::new().expect("dir");
    let dumps = dumps(dir.path(), 3, 1 << 20);
    write(&dumps, DumpReason::Signal);
    let names = names(&dumps);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("Z-sigusr2.trace.json"), "{names:?}");
    assert!(names[1].ends_with("Z-sigusr2.json"), "{names:?}");
    let dump = read(&dumps, &names[1]);
    let len = |list: &str| dump[list].as_array().expect("list").len();
    assert_eq!([len("in_flight"), len("calls"), len("polls")], [1, 50, 10]);
    assert_eq!(
        (&dump["reason"], &dump["config"]),
        (&"sigusr2".into(), &"c0ffee".into())
    );
    assert_eq!(dump["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(dump["forgotten"], 40);
    assert_eq!(dump["in_flight"][0]["doing"], "cni plugin calico");
    let trace = read(&dumps, &names[0]);
    assert!(
        trace["traceEvents"]
            .as_array()
            .is_some_and(|e| e.len() > 100)
    );
    assert_eq!(failed(&dumps), 0);
}

#[test]
fn number_and_size_have_bounds() {
    let dir = TempDir::new().expect("dir");
    let dumps = dumps(dir.path(), 2, 5000);
    for reason in DumpReason::ALL.into_iter().cycle().take(7) {
        write(&dumps, reason);
    }
    let names = names(&dumps);
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(
        names[0].contains("sigusr2") && names[2].contains("stuck"),
        "the newest: {names:?}"
    );
    for (name, len) in dumps.stored() {
        assert!((2500..=5000).contains(&len), "{name} {len}");
    }
    let left_out = &read(&dumps, &names[1])["left_out"];
    assert!(left_out["calls"].as_u64() > Some(30), "{left_out}");
}

#[test]
fn one_for_the_same_reason_waits() {
    let dir = TempDir::new().expect("dir");
    let dumps = dumps(dir.path(), 100, 1 << 20);
    for reason in DumpReason::ALL {
        assert!(dumps.ask(reason, None), "{reason:?}");
        assert!(!dumps.ask(reason, None), "{reason:?}");
        dumps.wait(TEST_TIMEOUT);
    }
    assert_eq!(names(&dumps).len(), 6);
    // The minimum interval for stuck calls has not passed yet.
    let soon = DumpReason::Stuck.pause() - Duration::from_secs(1);
    let ago = |time: Duration| -> Arc<DumpWriter> {
        let mut dumps = self::dumps(dir.path(), 100, 1 << 20);
        let inner = Arc::get_mut(&mut dumps).expect("ours");
        inner.began -= time;
        inner.last_ms[DumpReason::Stuck as usize] = 1.into();
        dumps
    };
    assert!(!ago(soon).is_due(DumpReason::Stuck));
    assert!(ago(DumpReason::Stuck.pause() + soon).is_due(DumpReason::Stuck));
}

#[test]
fn none_are_written_if_none_are_kept() {
    let dir = TempDir::new().expect("dir");
    let dumps = dumps(dir.path(), 0, 1 << 20);
    assert!(!dumps.ask(DumpReason::Signal, None));
    assert!(!dumps.dir().exists());
}

#[test]
fn what_cannot_be_written_is_counted() {
    let dir = TempDir::new().expect("dir");
    fs::write(dir.path().join("dumps"), "a file in the way").expect("written");
    let dumps = dumps(dir.path(), 3, 1 << 20);
    write(&dumps, DumpReason::Signal);
    assert_eq!(failed(&dumps), 1);
    // It works again once the cause is removed.
    fs::remove_file(dir.path().join("dumps")).expect("removed");
    write(&dumps, DumpReason::Signal);
    assert_eq!((failed(&dumps), names(&dumps).len()), (1, 2));
}

#[test]
fn a_writer_that_hangs_delays_no_caller() {
    let dir = TempDir::new().expect("dir");
    let dumps = dumps(dir.path(), 3, 1 << 20);
    let disk = lock(&dumps.writing);
    for expected in [true, true, false, false] {
        dumps.last_ms[0].store(0, Ordering::Relaxed);
        assert_eq!(dumps.ask(DumpReason::Signal, None), expected);
    }
    assert_eq!(dumps.parts.drops.count(DropReason::DumpQueueFull), 2);
    dumps.wait(Duration::from_millis(1));
    drop(disk);
    dumps.wait(TEST_TIMEOUT);
    assert!(names(&dumps).len() >= 2);
}

/// Also while the panicking thread holds a lock of the recorder and of the calls in flight. In a child process: the hook is
/// global, and a panic in another test would be counted here.
#[test]
fn a_panic_is_written_down_and_told_as_before() {
    const NAME: &str = "recorder::dumps::tests::a_panic_is_written_down_and_told_as_before";
    const ALONE: &str = "CRISCOPE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return a_panic_is_written_down();
    }
    let output = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", NAME])
        .env(ALONE, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

fn a_panic_is_written_down() {
    let dir = TempDir::new().expect("dir");
    let dumps = dumps(dir.path(), 3, 1 << 20);
    let reported = Arc::new(AtomicBool::new(false));
    let before = panic::take_hook();
    let report = Arc::clone(&reported);
    panic::set_hook(Box::new(move |_| report.store(true, Ordering::Relaxed)));
    on_panic(Arc::clone(&dumps));
    let recorder = Arc::clone(&dumps.parts.recorder);
    let thread = thread::spawn(move || recorder.while_locked(|| panic!("a secret")));
    assert!(thread.join().is_err());
    dumps.wait(TEST_TIMEOUT);
    drop(panic::take_hook());
    panic::set_hook(before);

    assert!(reported.load(Ordering::Relaxed));
    let names = names(&dumps);
    assert_eq!(names.len(), 2, "{names:?}");
    let dump = read(&dumps, &names[1]);
    let detail = dump["detail"].as_str().expect("where");
    assert!(
        detail.starts_with("crates/lifecycle/src/") && !detail.contains("secret"),
        "{detail}"
    );
    assert_eq!(dump["calls"].as_array().map(Vec::len), Some(50));
}
