//! Facts that begin and end as the node changes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use super::*;
use crate::node::FalseCondition;

#[derive(Default)]
struct Fake {
    backends: Mutex<Vec<BackendState>>,
    kubelets: AtomicU64,
}

impl NodeSource for Fake {
    fn backends(&self) -> Vec<BackendState> {
        self.backends.lock().expect("lock").clone()
    }

    fn kubelets(&self) -> u64 {
        self.kubelets.load(Ordering::Relaxed)
    }
}

const fn at(seconds: u64) -> UnixMicros {
    UnixMicros::new(seconds * 1_000_000)
}

fn backend(up: Option<bool>, reason: &str) -> BackendState {
    BackendState {
        name: "main".into(),
        up,
        since: Some(UNIX_EPOCH + Duration::from_secs(100)),
        reason: reason.to_owned(),
        ..BackendState::default()
    }
}

#[tokio::test]
async fn facts_begin_and_end_with_what_they_are_about() {
    let fake = Arc::new(Fake::default());
    let mut watch = NodeWatch::new(Arc::clone(&fake) as _, None);
    watch.begin(at(100), false);
    let set = |state| *fake.backends.lock().expect("lock") = vec![state];
    set(backend(None, ""));
    assert_eq!(watch.check(at(100), &[], &[]).await, []);
    set(backend(Some(false), "connection refused"));
    let [down] = &watch.check(at(101), &[], &[]).await[..] else {
        panic!("one");
    };
    assert_eq!(
        down.sentence(at(131)),
        "the runtime main has not answered for 31 s: connection refused"
    );
    let held = [down.clone()];
    assert_eq!(watch.check(at(102), &held, &[]).await, []);
    // After a restart of criscope it is not known yet whether that still holds.
    set(backend(None, ""));
    assert_eq!(watch.check(at(103), &held, &[]).await, []);
    let not_ready = FalseCondition {
        condition: "NetworkReady".to_owned(),
        since: UNIX_EPOCH + Duration::from_secs(104),
        reason: "no CNI".to_owned(),
    };
    set(BackendState {
        not_ready: vec![not_ready],
        ..backend(Some(true), "")
    });
    let changes = watch.check(at(105), &held, &[]).await;
    let said: Vec<_> = changes.iter().map(|f| f.sentence(at(106))).collect();
    assert_eq!(
        said,
        [
            "the runtime main did not answer from 00:01:40 to 00:01:45 UTC (5 s): connection refused",
            "the runtime main has reported NetworkReady false for 2 s: no CNI",
        ]
    );
}

#[tokio::test]
async fn polls_without_an_answer_are_a_fact_until_they_end() {
    let fake = Arc::new(Fake::default());
    let mut watch = NodeWatch::new(Arc::clone(&fake) as _, None);
    watch.begin(at(0), false);
    *fake.backends.lock().expect("lock") = vec![backend(Some(true), "")];
    let poll = UnansweredPoll {
        backend: "main".into(),
        method: criscope_cri::Method::ListContainers,
        since: at(10),
    };
    let polls = [poll];
    let [hangs] = &watch.check(at(14), &[], &polls).await[..] else {
        panic!("one");
    };
    assert_eq!(
        hangs.sentence(at(14)),
        "the runtime main has not answered for 4 s: ListContainers was not answered"
    );
    let held = [hangs.clone()];
    assert_eq!(watch.check(at(15), &held, &polls).await, []);
    let [ended] = &watch.check(at(16), &held, &[]).await[..] else {
        panic!("one");
    };
    assert_eq!(ended.to, Some(at(16)));
}

#[tokio::test]
async fn what_holds_a_backend_up_is_read_once() {
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    let mut child = std::process::Command::new("sleep");
    let mut child = child.arg("60").spawn().expect("sleep");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    kill(pid, Signal::SIGSTOP).expect("stopped");
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("stopped");
    let fake = Arc::new(Fake::default());
    let mut watch = NodeWatch::new(Arc::clone(&fake) as _, None);
    watch.begin(at(0), false);
    *fake.backends.lock().expect("lock") = vec![BackendState {
        pid: Some(child.id()),
        ..backend(Some(false), "no answer to Status for 10s")
    }];
    let found = watch.check(at(101), &[], &[]).await;
    let again = watch.check(at(102), &found, &[]).await;
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let reasons: Vec<_> = found.iter().map(|fact| &*fact.reason).collect();
    assert_eq!(
        reasons,
        ["sleep is stopped by a signal; no answer to Status for 10s"]
    );
    assert_eq!(again, []);
}

#[tokio::test]
async fn a_kubelet_is_missed_once_it_was_seen() {
    let fake = Arc::new(Fake::default());
    let mut watch = NodeWatch::new(Arc::clone(&fake) as _, None);
    watch.begin(at(0), false);
    assert_eq!(watch.check(at(60), &[], &[]).await, []);
    assert_eq!(watch.status.kubelet, None, "a node without any");
    fake.kubelets.store(2, Ordering::Relaxed);
    assert_eq!(watch.check(at(61), &[], &[]).await, []);
    fake.kubelets.store(0, Ordering::Relaxed);
    assert_eq!(watch.check(at(65), &[], &[]).await, [], "it may restart");
    let [gone] = &watch.check(at(75), &[], &[]).await[..] else {
        panic!("one");
    };
    assert_eq!((gone.from, &gone.kind), (at(61), &NodeFactKind::NoKubelet));
    let held = [gone.clone()];
    fake.kubelets.store(2, Ordering::Relaxed);
    let [back] = &watch.check(at(80), &held, &[]).await[..] else {
        panic!("one");
    };
    assert_eq!((back.from, back.to), (at(61), Some(at(80))));
    // An absence that is too short to be told while it lasts explains a call that it broke off.
    fake.kubelets.store(0, Ordering::Relaxed);
    assert_eq!(watch.check(at(81), &[], &[]).await, []);
    fake.kubelets.store(2, Ordering::Relaxed);
    let [short] = &watch.check(at(84), &[], &[]).await[..] else {
        panic!("one");
    };
    assert_eq!((short.from, short.to), (at(80), Some(at(84))));
    let mut later = NodeWatch::new(Arc::clone(&fake) as _, None);
    later.begin(at(0), true);
    assert_eq!(later.check(at(2), &[], &[]).await, [], "it connects anew");
    let mut later = NodeWatch::new(fake, None);
    later.begin(at(0), true);
    assert_eq!(
        later.status.kubelet,
        Some(false),
        "an earlier process saw it"
    );
}

#[test]
fn a_look_that_comes_much_too_late_is_a_stall() {
    assert_eq!(
        stalled(STALL_THRESHOLD - Duration::from_millis(1), at(40)),
        None
    );
    assert!(stalled(STALL_THRESHOLD, at(40)).is_some());
    let fact = stalled(Duration::from_secs(32), at(40)).expect("a fact");
    assert_eq!((fact.from, fact.to), (at(8), Some(at(40))));
    assert_eq!(
        fact.sentence(at(0)),
        "criscope itself was stopped, frozen or starved from 00:00:08 to 00:00:40 UTC (32 s)"
    );
}

fn boot(id: &str, at: UnixMicros) -> NodeBoot {
    NodeBoot {
        id: id.to_owned(),
        at,
    }
}

#[test]
fn the_time_without_observation_is_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let (alive, boot) = (
        AliveFile::new(&dir.path().join("state"), "a"),
        boot("a", UnixMicros::new(1)),
    );
    let downtime = |last, now| NodeWatch::downtime(&alive, &boot, last, now, false);
    assert_eq!(downtime(at(0), at(9)), None, "never run");
    alive.write(at(5)).expect("written");
    let gap = downtime(at(0), at(9)).expect("known");
    assert_eq!((gap.from, gap.to), (at(5), Some(at(9))));
    assert_eq!(gap.kind, NodeFactKind::CriscopeDown);
    let gap = downtime(at(7), at(9)).expect("known");
    assert_eq!(gap.from, at(7), "the journal knows better");
    assert_eq!(
        downtime(at(0), at(5) + Duration::from_micros(10)),
        None,
        "at once"
    );
    let short = NodeWatch::downtime(
        &alive,
        &boot,
        at(0),
        at(5) + Duration::from_micros(10),
        true,
    );
    assert!(short.is_some(), "a call was lost");
    assert_eq!(
        downtime(at(0), UnixMicros::new(1)),
        None,
        "the clock was set back"
    );
}

#[test]
fn another_boot_is_a_restart_of_the_node() {
    let dir = tempfile::tempdir().expect("a directory");
    AliveFile::new(dir.path(), "a")
        .write(at(5))
        .expect("written");
    let alive = AliveFile::new(dir.path(), "b");
    let found = |boot: NodeBoot| {
        let fact = NodeWatch::downtime(&alive, &boot, at(0), at(60), false);
        fact.expect("a fact")
    };
    let fact = found(boot("b", at(40)));
    let booted = at(40);
    assert_eq!(fact.kind, NodeFactKind::NodeRestarted { booted });
    assert_eq!((fact.from, fact.to), (at(5), Some(at(60))));
    assert_eq!(
        fact.sentence(at(0)),
        "the node was restarted at 00:00:40 UTC"
    );
    // The id of this boot cannot be read, or that of the one before is not known.
    assert_eq!(
        found(boot("", UnixMicros::new(1))).kind,
        NodeFactKind::CriscopeDown
    );
    AliveFile::new(dir.path(), "")
        .write(at(5))
        .expect("written");
    assert_eq!(
        found(boot("b", UnixMicros::new(1))).kind,
        NodeFactKind::CriscopeDown
    );
}

#[tokio::test]
async fn a_kubelet_that_stops_polling_is_a_fact() {
    let fake = Arc::new(Fake::default());
    fake.kubelets.store(2, Ordering::Relaxed);
    let mut watch = NodeWatch::new(fake, None);
    watch.begin(at(0), false);
    // It need not poll, or a call of it is in flight.
    for second in 60..70 {
        watch.set_kubelet_call(None);
        assert_eq!(watch.check(at(second), &[], &[]).await, []);
    }
    watch.set_kubelet_call(Some(at(65)));
    for second in 70..77 {
        assert_eq!(watch.check(at(second), &[], &[]).await, [], "{second}");
    }
    let [silent] = &watch.check(at(77), &[], &[]).await[..] else {
        panic!("one");
    };
    assert_eq!(
        (silent.from, &silent.kind),
        (at(65), &NodeFactKind::KubeletSilent)
    );
    assert_eq!(
        silent.sentence(at(80)),
        "the kubelet is stopped or hangs: no call at all for 15 s"
    );
    watch.set_kubelet_call(Some(at(90)));
    let [ended] = &watch.check(at(91), std::slice::from_ref(silent), &[]).await[..] else {
        panic!("one");
    };
    assert_eq!((ended.from, ended.to), (at(65), Some(at(91))));
}

#[tokio::test]
async fn while_calls_run_the_end_is_known_to_a_second() {
    let dir = tempfile::tempdir().expect("a directory");
    let alive = AliveFile::new(dir.path(), "a");
    let mut watch = NodeWatch::new(Arc::new(Fake::default()), Some(alive.clone()));
    watch.begin(at(0), false);
    let mut written = Vec::new();
    for (second, has_running_calls) in [(1, false), (2, false), (3, true), (4, true), (5, false)] {
        watch.has_running_calls = has_running_calls;
        watch.check(at(second), &[], &[]).await;
        if let Some(writing) = watch.writing.take() {
            writing.await.expect("written");
        }
        written.push(alive.read().map(|last| last.at));
    }
    assert_eq!(written, [1, 1, 3, 4, 4].map(|second| Some(at(second))));
}

#[tokio::test]
async fn a_kubelet_is_not_missing_while_criscope_is_bypassed() {
    let dir = tempfile::tempdir().expect("a directory");
    let fake = Arc::new(Fake::default());
    let watch = NodeWatch::new(Arc::clone(&fake) as _, None);
    let mut watch = watch.with_bypass(BypassFiles::at(dir.path()));
    watch.begin(at(100), true);
    let since = dir.path().join(crate::node::BYPASS_SINCE_FILE);
    std::fs::write(&since, "95\n").expect("written");
    let [begun] = &watch.check(at(140), &[], &[]).await[..] else {
        panic!("one fact");
    };
    assert_eq!(
        (&begun.kind, begun.from),
        (&NodeFactKind::CriscopeBypassed, at(95))
    );
    let held = [begun.clone()];
    assert_eq!(watch.check(at(141), &held, &[]).await, []);
    std::fs::remove_file(since).expect("removed");
    let [ended] = &watch.check(at(142), &held, &[]).await[..] else {
        panic!("one fact");
    };
    assert_eq!(
        ended.sentence(at(200)),
        "criscope was bypassed from 00:01:35 to 00:02:22 UTC and saw no calls then"
    );
    // The kubelet connects again now.
    assert_eq!(watch.check(at(145), &[], &[]).await, []);
    fake.kubelets.store(1, Ordering::Relaxed);
    assert_eq!(watch.check(at(146), &[], &[]).await, []);
}
