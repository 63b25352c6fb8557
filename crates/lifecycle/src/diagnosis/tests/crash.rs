//! Containers that exit again and again, and look-alikes.

use super::*;
use crate::node::{NodeFact, NodeFactKind};
use criscope_cri::subject::ExitReason;

/// An exit of `app`, in milliseconds.
fn end(attempt: u32, code: i32, ran: u64, ended: u64) -> ExitRecord {
    let reason = match code {
        0 => ExitReason::Completed,
        137 => ExitReason::OomKilled,
        _ => ExitReason::Error,
    };
    ExitRecord {
        container: "app".into(),
        attempt,
        code,
        reason,
        ran: Duration::from_millis(ran),
        at: at(ended),
        stop_requested: false,
        oom_kills: 0,
        oom_at: None,
        evicted: None,
        node_restarted: None,
        by_event: false,
    }
}

/// A run of `app` whose StartContainer ends 200 ms after `from`.
fn run(pod: &ScriptedPod, attempt: u32, from: u64) -> [EpisodeCall; 2] {
    let app = ("app", attempt);
    [pod.create(app, from, 100), pod.start(app, from + 100, 100)]
}

fn apply(store: &mut EpisodeStore, calls: impl IntoIterator<Item = EpisodeCall>) {
    for call in calls {
        store.apply(call);
    }
}

/// A store with the starts of a pod whose runs of `app` begin at these times, and their exits.
fn runs(
    pod: &ScriptedPod,
    from: &[u64],
    ends: impl IntoIterator<Item = ExitRecord>,
) -> EpisodeStore {
    let starts = (0..).zip(from).flat_map(|(n, from)| run(pod, n, *from));
    let mut store = store([pod.run(0, 100)].into_iter().chain(starts));
    for exit in ends {
        store.note_exit(&pod.0, None, exit);
    }
    store
}

/// The headline of the pod, and the states and crash loops of its episodes.
fn headline_and_marks(
    store: &mut EpisodeStore,
    now: u64,
) -> (String, Vec<(String, EpisodeState, Option<String>)>) {
    store.tick(at(now), &[]);
    let episodes = episodes(store);
    let headline = pod_headline(&episodes, at(now));
    let loops = crash_loops(&episodes, at(now)).into_iter();
    let marks = episodes.iter().zip(loops);
    let marks = marks.map(|(e, crash_loop)| (e.kind.name().to_owned(), e.state, crash_loop));
    (headline, marks.collect())
}

fn is_marked(store: &mut EpisodeStore, now: u64) -> bool {
    let (headline, marks) = headline_and_marks(store, now);
    // What the kubelet keeps killing is marked as well, and ends by no fault of its own.
    let crashes = |said: &str| said.contains(" keeps ") && !said.starts_with("the kubelet keeps");
    let marked = marks
        .iter()
        .any(|(.., mark)| mark.as_deref().is_some_and(crashes));
    let said = crashes(&headline);
    assert_eq!(marked, said, "{headline} {marks:?}");
    marked
}

#[test]
fn a_container_that_keeps_ending() {
    let pod = pod("web");
    let ends = [500, 1400, 20_400, 60_400, 120_500];
    let ends = (0..).zip(ends).map(|(n, at)| end(n, 1, 200, at));
    let mut store = runs(&pod, &[100, 1_000, 20_000, 60_000, 120_100], ends);
    let sentence = "container app keeps ending: exit code 1 after 200 ms, 5 starts in 2m 00s; its log may have the reason";
    let (headline, marks) = headline_and_marks(&mut store, 140_000);
    assert_eq!(headline, sentence);
    let all = |kind: &str| (kind.to_owned(), EpisodeState::Ok, Some(sentence.to_owned()));
    let restart = || all("restart");
    assert_eq!(
        marks,
        [all("start"), restart(), restart(), restart(), restart()],
        "the list says it of each that went well"
    );
    // An hour later it is still down; a run that lasted would have ended the loop.
    assert!(is_marked(&mut store, 3_600_000));
    apply(&mut store, run(&pod, 5, 200_000));
    assert!(is_marked(&mut store, 300_000));
    assert!(!is_marked(&mut store, 3_600_000));
}

#[test]
fn a_container_that_takes_too_much_memory() {
    let pod = pod("web");
    let mut store = runs(&pod, &[100, 11_000], [end(0, 137, 3000, 3300)]);
    let one = headline(episodes(&store)[0], at(4000));
    assert!(
        one.starts_with("container app was killed for lack of memory after 3.00 s (exit code 137)"),
        "{one}"
    );
    assert!(!is_marked(&mut store, 4000));
    store.note_exit(&pod.0, None, end(1, 137, 3000, 14_200));
    assert_eq!(
        headline_and_marks(&mut store, 15_000).0,
        "container app keeps being killed for lack of memory: exit code 137 after 3.00 s, 2 starts in 13.9 s"
    );
}

#[test]
fn a_container_that_did_its_work_is_no_crash() {
    let pod = pod("job");
    let mut store = runs(&pod, &[100], [end(0, 0, 1000, 1300)]);
    let (headline, marks) = headline_and_marks(&mut store, 60_000);
    assert_eq!(
        headline,
        "container app ended with exit code 0 after 1.00 s; the start took 300 ms"
    );
    assert_eq!(marks, [("start".to_owned(), EpisodeState::Ok, None)]);
}

#[test]
fn a_job_that_failed_and_then_did_its_work_is_done() {
    let pod = pod("job");
    let ends = || [end(0, 1, 100, 400), end(1, 1, 100, 1400)];
    assert!(is_marked(&mut runs(&pod, &[100, 1_000], ends()), 20_000));
    let done = ends().into_iter().chain([end(2, 0, 100, 20_400)]);
    let mut done = runs(&pod, &[100, 1_000, 20_000], done);
    assert!(!is_marked(&mut done, 30_000));
    // It was not a job: it is started again.
    apply(&mut done, run(&pod, 3, 40_000));
    assert!(is_marked(&mut done, 60_000));
}

#[test]
fn who_ends_well_each_time_is_in_a_loop_too() {
    let pod = pod("web");
    let ends = [400, 1400].into_iter().zip(0..);
    let ends = ends.map(|(at, n)| end(n, 0, 100, at));
    let mut store = runs(&pod, &[100, 1_000, 20_000], ends);
    assert!(!is_marked(&mut store, 20_300));
    store.note_exit(&pod.0, None, end(2, 0, 100, 20_400));
    assert!(is_marked(&mut store, 30_000));
}

#[test]
fn an_init_container_of_every_sandbox_is_in_no_loop() {
    let pod = pod("web");
    let mut store = store([]);
    for n in 0..4 {
        let (pod, from) = (pod.attempt(n), u64::from(n) * 100_000);
        store.apply(pod.run(from, 100));
        apply(&mut store, run(&pod, n, from + 100));
        store.note_exit(&pod.0, None, end(n, 0, 100, from + 400));
        store.apply(pod.create(("web", n), from + 500, 100));
        store.apply(pod.start(("web", n), from + 600, 100));
        store.tick(at(from + 50_000), &[]);
        store.apply(pod.stop(from + 60_000, 2000));
    }
    assert!(!is_marked(&mut store, 500_000));
}

#[test]
fn who_was_asked_to_end_does_not_crash() {
    let pod = pod("web");
    // Probes fail. The first exit is reported before StopContainer has ended, the second after.
    let kill = |n, from| pod.kill(("app", n), from, 30_000);
    let mut store = runs(&pod, &[100], [end(0, 137, 90_000, 90_300)]);
    store.apply(kill(0, 60_400));
    apply(&mut store, run(&pod, 1, 91_000));
    store.apply(kill(1, 150_000));
    store.note_exit(&pod.0, None, end(1, 143, 88_000, 179_500));
    apply(&mut store, run(&pod, 2, 180_100));
    assert!(!is_marked(&mut store, 200_000));
    // Then it crashes by itself, twice.
    store.note_exit(&pod.0, None, end(2, 1, 100, 180_400));
    assert!(!is_marked(&mut store, 200_000));
    apply(&mut store, run(&pod, 3, 200_000));
    store.note_exit(&pod.0, None, end(3, 1, 100, 200_300));
    assert!(is_marked(&mut store, 201_000));
}

#[test]
fn the_end_of_a_pod_is_no_crash_of_its_containers() {
    let pod = pod("web");
    // The second sandbox is removed without a StopContainer.
    let mut store = runs(&pod, &[100], []);
    store.apply(pod.stop(60_000, 2000));
    store.note_exit(&pod.0, None, end(0, 137, 60_000, 60_500));
    let next = pod.attempt(1);
    store.apply(next.run(70_000, 100));
    apply(&mut store, run(&next, 1, 70_100));
    store.apply(next.stop(130_000, 2000));
    store.note_exit(&next.0, None, end(1, 137, 60_000, 130_500));
    assert!(!is_marked(&mut store, 140_000));
}

#[test]
fn a_crash_loop_is_over_with_its_pod() {
    let pod = pod("web");
    let ends = [end(0, 1, 100, 400), end(1, 1, 100, 1400)];
    let mut store = runs(&pod, &[100, 1_000], ends);
    // Stopping only the container does not end the pod.
    store.apply(pod.kill(("app", 1), 5000, 1000));
    let (_, marks) = headline_and_marks(&mut store, 20_000);
    let marked = marks
        .iter()
        .map(|(kind, _, mark)| (&**kind, mark.is_some()));
    let wanted = [("start", true), ("restart", true), ("stop", false)];
    assert_eq!(marked.collect::<Vec<_>>(), wanted);
    store.apply(pod.stop(21_000, 2000));
    let (headline, marks) = headline_and_marks(&mut store, 30_000);
    assert_eq!(
        headline,
        "container app kept ending: exit code 1 after 100 ms, 2 starts in 1.10 s; its log may have the reason"
    );
    assert!(marks.iter().all(|(.., mark)| mark.is_none()), "{marks:?}");
    // Only the sandbox ended, not the pod.
    let next = pod.attempt(1);
    store.apply(next.run(31_000, 100));
    apply(&mut store, run(&next, 2, 31_200));
    assert!(is_marked(&mut store, 60_000));
}

#[test]
fn when_one_is_over_few_others_are_looked_at() {
    let pod = pod("web");
    let from: Vec<_> = (0..100).map(|n| 200 + n * 20_000).collect();
    let ends = (0..).zip(&from).map(|(n, at)| end(n, 1, 100, at + 300));
    let store = runs(&pod, &from, ends);
    let last = store.episodes().last().expect("an episode");
    let text = store.view(last, at(2_000_000)).crash_loop;
    let text = text.expect("a crash loop");
    assert!(text.contains(", 64 starts in "), "{text}");
}

#[test]
fn a_container_that_keeps_being_evicted() {
    let web = pod("web");
    let by = || Some("evicted by NRI plugin 10-quota".into());
    let ends = [end(0, 137, 100, 400), end(1, 137, 100, 1400)];
    let store = runs(&web, &[100, 1_000], ends.map(|exit| exit.evicted_by(by())));
    assert_eq!(
        pod_headline(&episodes(&store), at(3000)),
        "container app keeps being evicted: exit code 137 (SIGKILL) after 100 ms, 2 starts in 1.10 s, evicted by NRI plugin 10-quota"
    );
}

/// A runtime that does not say who sent SIGKILL: the kernel's counter may.
#[test]
fn a_kill_of_which_the_runtime_says_nothing() {
    let web = pod("web");
    let ended = |code, oom_kills| {
        let ends = [end(0, code, 100, 400), end(1, code, 100, 1400)].map(|mut exit| {
            (exit.oom_kills, exit.reason) = (oom_kills, ExitReason::Error);
            exit
        });
        let store = runs(&web, &[100, 1_000], ends);
        pod_headline(&episodes(&store), at(3000))
    };
    let killed = |oom_kills| ended(137, oom_kills);
    // It ended by itself: the killed process was another's.
    assert!(!ended(3, 1).contains("lack of memory"));
    assert_eq!(
        killed(0),
        "container app keeps ending: exit code 137 (SIGKILL) after 100 ms, 2 starts in 1.10 s, sent by an unknown process"
    );
    assert!(killed(1).ends_with(
        "2 starts in 1.10 s, when the kernel killed a process of this node for lack of memory"
    ));
    assert!(killed(3).ends_with("killed 3 processes of this node for lack of memory"));
}

#[test]
fn only_what_is_about_the_container_is_marked() {
    let [pod, other] = ["web", "other"].map(pod);
    let ends = [end(0, 1, 100, 400), end(1, 1, 100, 1400)];
    let mut store = runs(&pod, &[100, 1_000], ends);
    store.tick(at(39_000), &[]);
    store.apply(pod.create(("side", 1), 40_000, 100));
    store.apply(pod.start(("side", 1), 40_200, 100));
    apply(&mut store, run(&other, 0, 41_000));
    store.tick(at(60_000), &[]);
    let episodes = episodes(&store);
    let loops = crash_loops(&episodes, at(60_000)).into_iter();
    let container = |e: &Episode| e.container.as_ref().map(|c| c.name.to_string());
    let marked: Vec<_> = episodes
        .iter()
        .zip(loops)
        .map(|(e, crash_loop)| (e.pod.name.to_string(), container(e), crash_loop.is_some()))
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        marked,
        [
            ("web".to_owned(), None, true),
            ("web".to_owned(), some("app"), true),
            ("web".to_owned(), some("side"), false),
            ("other".to_owned(), None, false),
        ]
    );
}

/// The StartContainer of a run may end after its exit: that is no other run.
#[test]
fn a_container_that_ends_before_its_start_has_ended_is_down() {
    let pod = pod("web");
    let mut store = store([pod.run(0, 100)].into_iter().chain(run(&pod, 0, 200)));
    store.note_exit(&pod.0, None, end(0, 127, 5, 390));
    let (told, _) = headline_and_marks(&mut store, 9000);
    assert!(
        told.starts_with("container app ended with exit code 127 after 5.00 ms"),
        "{told}"
    );
    assert!(!told.contains("up again"), "{told}");
    assert!(
        told.contains("a library of it is missing: its log has the reason"),
        "{told}"
    );
}

/// Only the log of a program that ended at once is likely to tell more.
#[test]
fn a_program_that_worked_is_not_looked_up_in_its_log() {
    for (code, ran) in [(1, 5000), (127, 5000), (137, 200), (143, 200)] {
        let pod = pod("web");
        let mut store = store([pod.run(0, 100)].into_iter().chain(run(&pod, 0, 200)));
        store.note_exit(&pod.0, None, end(0, code, ran, 300 + ran));
        let (told, _) = headline_and_marks(&mut store, 9000);
        assert!(told.contains(&format!("exit code {code}")), "{told}");
        assert!(!told.contains("its log"), "{told}");
    }
}

/// The kubelet begins its back-off anew after a run of ten minutes.
#[test]
fn a_long_run_ends_a_crash_loop() {
    let pod = pod("web");
    let minute = 60_000;
    let ends = [
        end(0, 1, 10, 1000),
        end(1, 255, 14 * minute, 14 * minute + 20_000),
    ];
    let last = 14 * minute + 30_000;
    let mut store = runs(&pod, &[800, 20_000, last], ends);
    let (told, marks) = headline_and_marks(&mut store, last + 5000);
    assert!(!told.contains("keeps ending"), "{told}");
    assert!(marks.iter().all(|(.., crash_loop)| crash_loop.is_none()));
}

/// Runtimes report 255 and `Unknown` when the exit was not observed.
#[test]
fn an_unobserved_exit_is_told_as_such() {
    let pod = pod("web");
    let lost = |attempt, ran, ended| ExitRecord {
        reason: ExitReason::Unknown,
        ..end(attempt, 255, ran, ended)
    };
    let mut store = runs(&pod, &[200], [lost(0, 5000, 5300)]);
    let (told, _) = headline_and_marks(&mut store, 9000);
    let why = ": the runtime did not see how, as when its shim dies or the node goes down";
    assert!(
        told.starts_with(&format!(
            "container app ended with exit code 255 after 5.00 s{why}; "
        )),
        "{told}"
    );
    let ends = [lost(0, 100, 500), lost(1, 100, 1500)];
    let mut store = runs(&pod, &[200, 1200], ends);
    let (told, _) = headline_and_marks(&mut store, 9000);
    assert!(
        told.ends_with(why) && told.contains("keeps ending"),
        "{told}"
    );
}

/// A crash a while ago, and the node that went down: two separate causes are no series.
#[test]
fn a_run_that_was_lost_with_its_node_is_no_part_of_a_series() {
    let pod = pod("web");
    let down = |from: u64, to: u64| NodeFact {
        to: Some(at(to)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(from), "")
    };
    let lost = |attempt, ran, ended| ExitRecord {
        reason: ExitReason::Unknown,
        ..end(attempt, 255, ran, ended)
    };
    let crash = end(0, 9, 4000, 4200);
    // Before its sandbox is replaced.
    let mut store = runs(&pod, &[0, 5000], [crash.clone(), lost(1, 40_000, 45_200)]);
    let (told, _) = headline_and_marks(&mut store, 60_000);
    assert!(
        told.starts_with(
            "container app ended with exit code 255 after 40.0 s: the runtime did not see how"
        ),
        "{told}"
    );
    // Afterwards, and for the second time.
    let exits = [crash, lost(1, 40_000, 45_200), lost(2, 64_000, 125_000)];
    let mut store = runs(&pod, &[0, 5000], exits.clone().into_iter().take(2));
    for (n, from) in [(1, 60_000), (2, 140_000)] {
        store.note_fact(down(from - 16_000, from - 5000));
        let new = pod.attempt(n);
        store.apply(new.run(from, 300));
        apply(&mut store, run(&new, n + 1, from + 400));
        if n == 1 {
            store.tick(at(100_000), &[]);
            store.note_exit(&new.0, None, exits[2].clone());
        }
    }
    let (told, _) = headline_and_marks(&mut store, 200_000);
    assert!(
        told.starts_with("the sandbox was replaced (attempt 2): the one before was not usable after criscope was down"),
        "{told}"
    );
    // Without a downtime it keeps ending.
    let mut store = runs(&pod, &[0, 5000, 50_000], exits);
    let (told, _) = headline_and_marks(&mut store, 130_000);
    assert!(told.contains("keeps ending"), "{told}");
}
