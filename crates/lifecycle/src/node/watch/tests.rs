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
        "the runtime main has not answered for 31.0 s: connection refused"
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
            "the runtime main did not answer from 00:01:40 to 00:01:45 UTC (5.00 s): connection refused",
            "NetworkReady of main has been false for 2.00 s: no CNI",
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
        "the runtime main has not answered for 4.00 s: ListContainers was not answered"
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
    assert_eq!(stalled(Duration::from_secs(2), at(40)), None);
    let fact = stalled(Duration::from_secs(32), at(40)).expect("a fact");
    assert_eq!((fact.from, fact.to), (at(8), Some(at(40))));
    assert_eq!(
        fact.sentence(at(0)),
        "criscope did not run from 00:00:08 to 00:00:40 UTC (32.0 s): it was stopped, frozen or starved"
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
    let downtime = |last, now| NodeWatch::downtime(&alive, &boot, last, now);
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
    let found = |boot: NodeBoot| NodeWatch::downtime(&alive, &boot, at(0), at(60)).expect("a fact");
    let fact = found(boot("b", at(40)));
    let booted = at(40);
    assert_eq!(fact.kind, NodeFactKind::NodeRestarted { booted });
    assert_eq!((fact.from, fact.to), (at(5), Some(at(60))));
    assert_eq!(
        fact.sentence(at(0)),
        "the node was started again at 00:00:40 UTC"
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
