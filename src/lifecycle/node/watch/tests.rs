//! Facts that begin and end as the node changes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use super::*;
use crate::lifecycle::node::FalseCondition;

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

const SECOND: u64 = 1_000_000;

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
    watch.begin(100 * SECOND, false);
    let set = |state| *fake.backends.lock().expect("lock") = vec![state];
    set(backend(None, ""));
    assert_eq!(watch.check(100 * SECOND, &[], &[]).await, []);
    set(backend(Some(false), "connection refused"));
    let [down] = &watch.check(101 * SECOND, &[], &[]).await[..] else {
        panic!("one");
    };
    assert_eq!(
        down.sentence(131 * SECOND),
        "the runtime main has not answered for 31.0 s: connection refused"
    );
    let held = [down.clone()];
    assert_eq!(watch.check(102 * SECOND, &held, &[]).await, []);
    // After a restart of criscope it is not known yet whether that still holds.
    set(backend(None, ""));
    assert_eq!(watch.check(103 * SECOND, &held, &[]).await, []);
    let not_ready = FalseCondition {
        condition: "NetworkReady".to_owned(),
        since: UNIX_EPOCH + Duration::from_secs(104),
        reason: "no CNI".to_owned(),
    };
    set(BackendState {
        not_ready: vec![not_ready],
        ..backend(Some(true), "")
    });
    let changes = watch.check(105 * SECOND, &held, &[]).await;
    let said: Vec<_> = changes.iter().map(|f| f.sentence(106 * SECOND)).collect();
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
    watch.begin(0, false);
    *fake.backends.lock().expect("lock") = vec![backend(Some(true), "")];
    let poll = UnansweredPoll {
        backend: "main".into(),
        method: crate::cri::Method::ListContainers,
        since: 10 * SECOND,
    };
    let polls = [poll];
    let [hangs] = &watch.check(14 * SECOND, &[], &polls).await[..] else {
        panic!("one");
    };
    assert_eq!(
        hangs.sentence(14 * SECOND),
        "the runtime main has not answered for 4.00 s: ListContainers was not answered"
    );
    let held = [hangs.clone()];
    assert_eq!(watch.check(15 * SECOND, &held, &polls).await, []);
    let [ended] = &watch.check(16 * SECOND, &held, &[]).await[..] else {
        panic!("one");
    };
    assert_eq!(ended.to, Some(16 * SECOND));
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
    watch.begin(0, false);
    *fake.backends.lock().expect("lock") = vec![BackendState {
        pid: Some(child.id()),
        ..backend(Some(false), "no answer to Status for 10s")
    }];
    let found = watch.check(101 * SECOND, &[], &[]).await;
    let again = watch.check(102 * SECOND, &found, &[]).await;
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
    watch.begin(0, false);
    assert_eq!(watch.check(60 * SECOND, &[], &[]).await, []);
    assert_eq!(watch.status.kubelet, None, "a node without any");
    fake.kubelets.store(2, Ordering::Relaxed);
    assert_eq!(watch.check(61 * SECOND, &[], &[]).await, []);
    fake.kubelets.store(0, Ordering::Relaxed);
    assert_eq!(
        watch.check(65 * SECOND, &[], &[]).await,
        [],
        "it may restart"
    );
    let [gone] = &watch.check(75 * SECOND, &[], &[]).await[..] else {
        panic!("one");
    };
    assert_eq!(
        (gone.from, &gone.kind),
        (61 * SECOND, &NodeFactKind::NoKubelet)
    );
    let mut later = NodeWatch::new(fake, None);
    later.begin(0, true);
    assert_eq!(
        later.status.kubelet,
        Some(false),
        "an earlier process saw it"
    );
}

#[test]
fn a_look_that_comes_much_too_late_is_a_stall() {
    assert_eq!(stalled(Duration::from_secs(2), 40 * SECOND), None);
    let fact = stalled(Duration::from_secs(32), 40 * SECOND).expect("a fact");
    assert_eq!((fact.from, fact.to), (8 * SECOND, Some(40 * SECOND)));
    assert_eq!(
        fact.sentence(0),
        "criscope did not run from 00:00:08 to 00:00:40 UTC (32.0 s): it was stopped, frozen or starved"
    );
}

fn boot(id: &str, at: u64) -> NodeBoot {
    NodeBoot {
        id: id.to_owned(),
        at,
    }
}

#[test]
fn the_time_without_observation_is_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let (alive, boot) = (AliveFile::new(&dir.path().join("state"), "a"), boot("a", 1));
    let downtime = |last, now| NodeWatch::downtime(&alive, &boot, last, now);
    assert_eq!(downtime(0, 9 * SECOND), None, "never run");
    alive.write(5 * SECOND).expect("written");
    let gap = downtime(0, 9 * SECOND).expect("known");
    assert_eq!((gap.from, gap.to), (5 * SECOND, Some(9 * SECOND)));
    assert_eq!(gap.kind, NodeFactKind::CriscopeDown);
    let gap = downtime(7 * SECOND, 9 * SECOND).expect("known");
    assert_eq!(gap.from, 7 * SECOND, "the journal knows better");
    assert_eq!(downtime(0, 5 * SECOND + 10), None, "at once");
    assert_eq!(downtime(0, 1), None, "the clock was set back");
}

#[test]
fn another_boot_is_a_restart_of_the_node() {
    let dir = tempfile::tempdir().expect("a directory");
    AliveFile::new(dir.path(), "a")
        .write(5 * SECOND)
        .expect("written");
    let alive = AliveFile::new(dir.path(), "b");
    let found =
        |boot: NodeBoot| NodeWatch::downtime(&alive, &boot, 0, 60 * SECOND).expect("a fact");
    let fact = found(boot("b", 40 * SECOND));
    let booted = 40 * SECOND;
    assert_eq!(fact.kind, NodeFactKind::NodeRestarted { booted });
    assert_eq!((fact.from, fact.to), (5 * SECOND, Some(60 * SECOND)));
    assert_eq!(
        fact.sentence(0),
        "the node was started again at 00:00:40 UTC"
    );
    // The id of this boot cannot be read, or that of the one before is not known.
    assert_eq!(found(boot("", 1)).kind, NodeFactKind::CriscopeDown);
    AliveFile::new(dir.path(), "")
        .write(5 * SECOND)
        .expect("written");
    assert_eq!(found(boot("b", 1)).kind, NodeFactKind::CriscopeDown);
}
