//! What is read back after a clean or unclean end.

mod full_disk;
mod handover;
mod requests;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::episode_call::EpisodeCall;
use crate::episode_store::{EpisodeStore, ExitChange, ExitRecord, SandboxEnd};
use crate::kubelet::syncs::PodSync;
use crate::node::{NodeFact, NodeFactKind};
use crate::tests::scenario::read_calls;
use crate::tests::script::{at, pod, store};
use crate::view::EpisodeState;
use criscope_cri::subject::ExitReason;
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

struct Dir {
    dir: TempDir,
    files: JournalFiles,
    drops: Arc<Drops>,
}

fn state(max_bytes: u64) -> Dir {
    let dir = tempfile::tempdir().expect("dir");
    let files = JournalFiles {
        dir: dir.path().join("state"),
        max_bytes,
    };
    Dir {
        dir,
        files,
        drops: Arc::default(),
    }
}

impl Dir {
    fn write(&self, lines: &[JournalLine<'_>]) {
        let journal = JournalWriter::start(
            self.files.clone(),
            JournalRole::Newest { replayed: 0 },
            &self.drops,
        )
        .expect("thread");
        for line in lines {
            journal.write(line);
        }
        journal.close();
    }

    fn replay(&self) -> (EpisodeStore, ReplayResult) {
        let store = Mutex::new(store());
        let (replayed, result) = replay(&self.files, &store);
        result.expect("readable");
        (store.into_inner().expect("no panic"), replayed)
    }
}

fn calls() -> Vec<EpisodeCall> {
    read_calls(
        "pod a; run 0 +2s late; run 3s +100 cni bridge doing iptables 10..90; \
         pull app:1 3200 +100 fails NOT_FOUND `no \"such\" image\n`; pull app:1 13.2s +100; create app 13.4s +100",
    )
}

fn lines(calls: &[EpisodeCall]) -> Vec<JournalLine<'_>> {
    calls.iter().filter_map(JournalLine::call).collect()
}

#[test]
fn a_story_goes_on_where_it_was() {
    let state = state(MAX_FILE_LEN);
    let calls = calls();
    state.write(&lines(&calls));
    let (mut again, replayed) = state.replay();
    assert_eq!((replayed.lines, replayed.damaged), (5, 0));
    assert_eq!(replayed.last, at(13_500));
    let mut whole = store();
    calls.into_iter().for_each(|call| {
        whole.apply(call);
    });
    let end = pod("a").start(("app", 0), 14_000, 100);
    for store in [&mut whole, &mut again] {
        store.apply(end.clone());
        store.tick(at(30_000), &[]);
    }
    let view = |store: &EpisodeStore| {
        store
            .episodes()
            .map(|t| store.view(t, at(30_000)))
            .collect::<Vec<_>>()
    };
    assert_eq!(view(&again), view(&whole));
    assert_eq!(view(&again)[0].state, EpisodeState::Ok);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&state.files.dir), 0o700);
    assert_eq!(mode(&state.files.newer()), 0o600);
    drop(state.dir);
}

#[test]
fn what_was_told_is_not_told_again() {
    let (state, pod) = (state(MAX_FILE_LEN), pod("a"));
    let mut calls = calls();
    calls.push(pod.start(("app", 0), 14_000, 100));
    let mut before = store();
    calls.iter().for_each(|call| {
        before.apply(call.clone());
    });
    let root = before.get(0).expect("an episode").ids().root;
    // Reported after the quiet period; then the pod is stopped, and the process is killed before that episode is reported.
    let closed = JournalLine::closed(root, EpisodeState::Ok, at(30_000), None);
    let stop = [pod.stop(60_000, 2000)];
    let all = lines(&calls)
        .into_iter()
        .chain([closed])
        .chain(lines(&stop));
    state.write(&all.collect::<Vec<_>>());
    let (mut store, replayed) = state.replay();
    assert_eq!(replayed.unreported, [1]);
    assert_eq!(store.get(0).map(|t| t.state), Some(EpisodeState::Ok));
    store.tick(at(100_000), &[]);
    assert_eq!(store.take_closed(), [0; 0]);
}

#[test]
fn what_a_call_ended_is_told_if_it_was_not() {
    let (state, pod) = (state(MAX_FILE_LEN), pod("a"));
    let calls = [pod.run(0, 100), pod.stop(5000, 100)];
    state.write(&lines(&calls));
    let (_, replayed) = state.replay();
    assert_eq!(replayed.unreported, [0, 1]);
    // A reported episode is not reported again.
    let mut before = store();
    calls.iter().for_each(|call| {
        before.apply(call.clone());
    });
    let root = |number| before.get(number).expect("an episode").ids().root;
    state.write(&[
        JournalLine::closed(root(0), EpisodeState::Failed, at(5100), None),
        JournalLine::closed(root(1), EpisodeState::Ok, at(5100), None),
    ]);
    let (store, replayed) = state.replay();
    assert_eq!(replayed.unreported, [0; 0]);
    assert_eq!(store.get(0).map(|t| t.state), Some(EpisodeState::Failed));
}

#[test]
fn ends_of_containers_are_known_again() {
    let (state, pod) = (state(MAX_FILE_LEN), pod("a"));
    let exit = ExitRecord {
        reason: ExitReason::OomKilled,
        ran: Duration::from_micros(5),
        ..pod.exit(("app", 1), 137, 800, 900)
    };
    let calls = [pod.run(0, 100)];
    let all = lines(&calls).into_iter();
    let all: Vec<_> = all
        .chain([JournalLine::exit(&pod.0, Some("c1"), &exit)])
        .collect();
    state.write(&all);
    let (mut store, _) = state.replay();
    assert_eq!(
        store.get(0).map(|t| t.exits.clone()),
        Some(vec![exit.clone()])
    );
    assert_eq!(
        store.note_exit(&pod.0, Some("c1"), exit),
        ExitChange::Nothing
    );
}

#[test]
fn what_events_told_is_known_again() {
    let (state, pod) = (state(MAX_FILE_LEN), pod("a"));
    let calls = [
        pod.run(0, 100),
        pod.create(("app", 0), 200, 10),
        pod.start(("app", 0), 300, 10),
    ];
    let app = calls[2].container.clone().expect("a container");
    let exit = ExitRecord {
        node_restarted: None,
        by_event: true,
        ran: Duration::ZERO,
        ..pod.exit(("app", 0), 137, 310, 5000)
    };
    let end = SandboxEnd::new(at(6000), Some(137));
    let mut before = store();
    for call in &calls {
        before.apply(call.clone());
    }
    before.note_oom(&pod.0, &app, at(4990), Some(3));
    before.note_exit(&pod.0, Some("c"), exit.clone());
    before.note_sandbox_end(&pod.0, end.clone());
    let mut all = lines(&calls);
    all.push(JournalLine::oom(&pod.0, &app, at(4990), Some(3)));
    all.push(JournalLine::exit(&pod.0, Some("c"), &exit));
    all.push(JournalLine::sandbox_end(&pod.0, &end));
    state.write(&all);
    let (after, _) = state.replay();
    let facts = |store: &EpisodeStore| {
        let start = store.get(0).expect("a start");
        let kills = start.oom_kills.clone();
        (start.exits.clone(), kills, start.sandbox_end.clone())
    };
    assert_eq!(facts(&after), facts(&before));
    assert_eq!(facts(&after).2, Some(end));
}

#[test]
fn a_crash_loop_is_known_again() {
    let (state, pod) = (state(MAX_FILE_LEN), pod("a"));
    let (mut before, mut calls) = (store(), vec![pod.run(0, 100)]);
    for n in 0..3 {
        let from = 200 + u64::from(n) * 20_000;
        calls.push(pod.create(("app", n), from, 100));
        calls.push(pod.start(("app", n), from + 100, 100));
    }
    // This exit was requested.
    calls.push(pod.kill(("app", 2), 50_000, 100));
    for call in &calls {
        before.apply(call.clone());
    }
    let exits = [(0, 500), (1, 20_500), (2, 50_050)];
    let exits = exits.map(|(attempt, to)| pod.exit(("app", attempt), 1, to - 100, to));
    let mut all = lines(&calls);
    for exit in &exits {
        before.note_exit(&pod.0, None, exit.clone());
        all.push(JournalLine::exit(&pod.0, None, exit));
    }
    state.write(&all);
    let (after, _) = state.replay();
    let shown = |store: &EpisodeStore| {
        let episodes = store
            .episodes()
            .map(|episode| store.view(episode, at(60_000)));
        let summaries = episodes.map(|it| (it.kind, it.headline, it.crash_loop));
        summaries.collect::<Vec<_>>()
    };
    let (before, after) = (shown(&before), shown(&after));
    assert_eq!(before, after);
    let text = "app keeps crashing: exit code 1 after 0.1 s, 3 starts in 40 s; its log may have the reason";
    let marks: Vec<_> = after.iter().map(|(_, _, mark)| mark.as_deref()).collect();
    assert_eq!(marks, [Some(text), Some(text), Some(text), None]);
}

/// For instance a missing Secret, which no CRI call shows.
#[test]
fn failures_of_the_kubelet_are_known_again() {
    let (state, pod) = (state(MAX_FILE_LEN), pod("a"));
    let calls = [pod.run(0, 100)];
    let mut before = store();
    before.apply(calls[0].clone());
    let text = "failed to \"StartContainer\" for \"app\" with CreateContainerConfigError: \"secret \\\"db\\\" not found\"";
    let mut written = Vec::new();
    for n in 1..=16 {
        written.extend(before.note_sync(pod.sync_fails(1000 * n, 10, text)));
    }
    let tries: Vec<_> = written.iter().map(|sync| sync.tries).collect();
    assert_eq!(tries, [1, 2, 4, 8, 16], "the journal is bounded");
    let shown = |store: &EpisodeStore| {
        let start = store.get(0).expect("a start");
        store.view(start, at(60_000))
    };
    let failing = shown(&before);
    assert!(
        failing.headline.contains("16 tries"),
        "{}",
        failing.headline
    );
    let replayed = |written: &[Arc<PodSync>]| {
        let syncs = written.iter().map(|sync| JournalLine::sync(&pod.0, sync));
        state.write(&lines(&calls).into_iter().chain(syncs).collect::<Vec<_>>());
        let (after, replayed) = state.replay();
        assert_eq!(replayed.damaged, 0);
        fs::remove_dir_all(&state.files.dir).expect("removed");
        after
    };
    assert_eq!(shown(&replayed(&written)), failing);

    written.extend(before.note_sync(pod.syncs(20_000, 10)));
    assert_eq!(before.note_sync(pod.syncs(21_000, 10)), [], "routine");
    let over = shown(&before);
    assert_ne!(over.headline, failing.headline);
    assert_eq!(shown(&replayed(&written)), over);
}

#[test]
fn damage_costs_the_damaged_lines_only() {
    let state = state(MAX_FILE_LEN);
    state.write(&lines(&calls()));
    let file = state.files.newer();
    let text = fs::read(&file).expect("there");
    let mut parts: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
    let torn = &parts[1][..parts[1].len() / 2];
    let unknown = br#"{"later_version":{"x":1}}"#;
    parts[1] = torn;
    parts.insert(2, b"\n\xff\xfe\x00{\n");
    parts.push(unknown);
    // A kill in the middle of a line leaves no line end.
    fs::write(&file, parts.concat()).expect("write");
    let (store, replayed) = state.replay();
    assert_eq!((replayed.lines, replayed.damaged), (4, 3));
    assert_eq!(store.get(0).map(|t| t.calls.len()), Some(4));
    // The next write begins on a new line.
    let start = [pod("a").start(("app", 0), 14_000, 100)];
    state.write(&lines(&start));
    let (_, replayed) = state.replay();
    assert_eq!((replayed.lines, replayed.damaged), (5, 3));
}

#[test]
fn any_bytes_at_all_are_no_error() {
    let state = state(4096);
    fs::create_dir_all(&state.files.dir).expect("dir");
    fs::write(state.files.newer(), vec![0xaa; 100_000]).expect("write");
    fs::write(state.files.older(), "[".repeat(8000)).expect("write");
    let (store, replayed) = state.replay();
    assert_eq!((store.episodes().count(), replayed.lines), (0, 0));
    assert!(replayed.damaged > 0);
}

#[test]
fn it_does_not_grow() {
    let state = state(10_000);
    for n in 0..40 {
        let calls: Vec<_> = (0..10)
            .map(|k| pod("a").run(n * 100 + k, 1).late())
            .collect();
        state.write(&lines(&calls));
    }
    let size = |path: &Path| fs::metadata(path).expect("there").len();
    let (newer, older) = (size(&state.files.newer()), size(&state.files.older()));
    assert!(newer <= 10_000 && older <= 10_000, "{newer} {older}");
    assert!(older > 5_000);
    let (_, replayed) = state.replay();
    assert_eq!(replayed.damaged, 0);
    assert!(replayed.lines > 20, "{replayed:?}");
    assert_eq!(replayed.last, at(3910));
}

#[test]
fn a_directory_that_cannot_be_made_costs_lines_only() {
    let state = state(MAX_FILE_LEN);
    fs::write(&state.files.dir, "a file").expect("write");
    state.write(&lines(&calls()));
    assert_eq!(state.drops.count(DropReason::JournalFailed), 5);
    let (replayed, result) = replay(&state.files, &Mutex::new(store()));
    assert_eq!(replayed, ReplayResult::default());
    assert!(result.is_err());
}

#[test]
fn calls_that_were_running_are_lost_with_the_process() {
    let state = state(MAX_FILE_LEN);
    let calls =
        read_calls("run 0 +100; pull app:1 200 +1s; pull side:1 250 +3s; pull app:1 20s +1s");
    let [run, cut, ended, again] = &calls[..] else {
        panic!("four calls");
    };
    let running = |call: &EpisodeCall| JournalLine::running(call.clone().lost_at(at(1300)));
    let before = [
        JournalLine::call(run),
        running(cut),
        running(ended),
        JournalLine::call(ended),
    ];
    state.write(&before.into_iter().flatten().collect::<Vec<_>>());
    let (store, mut replayed) = state.replay();
    assert_eq!(store.episodes().map(|e| e.failures).sum::<u32>(), 0);
    let lost = replayed.take_lost(at(7000));
    let [lost] = &lost[..] else {
        panic!("the other one has ended");
    };
    assert_eq!((lost.target(), lost.ended_at()), ("app:1", at(7000)));
    // The process after the next one reads the same from the journal.
    let down = NodeFact {
        to: Some(at(18_000)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(7000), "")
    };
    let after = [Some(JournalLine::node(&down)), JournalLine::call(again)];
    state.write(&after.into_iter().flatten().collect::<Vec<_>>());
    let (store, replayed) = state.replay();
    assert_eq!(replayed.running, []);
    let episode = store.episodes().next().expect("an episode");
    let lost: Vec<_> = episode.calls.iter().map(|call| call.is_lost).collect();
    assert_eq!(lost, [false, true, false, false]);
    assert_eq!((episode.failures, episode.retries), (1, 1));
}
