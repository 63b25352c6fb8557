//! Snapshots of stories and calls. `UPDATE_DOCS=1 cargo test --lib render` rewrites them; review the difference.

use std::path::Path;

use super::calls::CallsScreen;
use super::pods::PodColumns;
use super::{calls, explain, pods};
use crate::examples;
use crate::tables::{RateWindow, RpcMethodRow, RpcTable};
use crate::terminal::WaterfallStyle;
use crate::view::{
    CallView, EpisodeView, ListedContainerView, ListedPodView, OpenSessionView, PodList, PodState,
    PodStory, PodSummary, SessionView,
};
use criscope_cri::units::times::UnixMicros;

fn look(width: usize, unicode: bool) -> WaterfallStyle {
    WaterfallStyle {
        width,
        colour: false,
        unicode,
    }
}

/// Compares with the snapshot of that name.
fn picture(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/terminal/render/pictures")
        .join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{}", path.display());
}

/// The widest line but the first.
fn widest(text: &str) -> usize {
    let lines = text.lines().skip(1).map(|line| line.chars().count());
    lines.max().unwrap_or_default()
}

#[test]
fn stories_look_like_this() {
    let cases = [
        ("slow-cni", examples::slow_cni()),
        ("slow-pull", examples::slow_pull()),
        ("slow-init", examples::slow_init()),
        ("failed-image", examples::failed_image()),
        ("crash-loop", examples::crash_loop()),
        ("retries", examples::retries()),
        ("in-flight", examples::in_flight()),
        ("many-tries", examples::many_tries()),
    ];
    for (name, episode) in cases {
        let story = examples::story(episode);
        for (width, unicode) in [(60, false), (80, true), (140, true)] {
            let text = explain::story(&story, false, look(width, unicode));
            // A headline is not truncated.
            let cut = text.replace(&story.episodes[0].headline, "");
            assert!(widest(&cut) <= width, "{name} at {width}:\n{text}");
            assert_eq!(text.lines().next(), Some(story.headline.as_str()));
            picture(&format!("explain-{name}-{width}.txt"), &text);
        }
    }
}

#[test]
fn the_episode_that_matters_is_shown_and_the_others_are_named() {
    let failed = examples::failed_image();
    let mut later = examples::slow_cni();
    later.name.clone_from(&failed.name);
    let story = PodStory {
        episodes: vec![failed, later],
        ..examples::story(examples::failed_image())
    };
    let one = explain::story(&story, false, look(80, true));
    assert!(
        one.contains("NOT_FOUND") && !one.contains("calico"),
        "{one}"
    );
    assert!(
        one.contains("1 more episode: start (ok, 2 min ago). --all shows them."),
        "{one}"
    );
    let all = explain::story(&story, true, look(80, true));
    assert!(all.contains("NOT_FOUND") && all.contains("calico") && !all.contains("--all"));
    let many = PodStory {
        episodes: vec![examples::failed_image(); 6],
        ..examples::story(examples::failed_image())
    };
    let text = explain::story(&many, false, look(200, true));
    assert!(text.contains("5 more episodes: "), "{text}");
    assert!(text.contains("), and 2 before. --all shows"), "{text}");
    let other = PodStory {
        headline: "it keeps ending".to_owned(),
        ..examples::story(examples::failed_image())
    };
    let text = explain::story(&other, false, look(80, true));
    let headline = &other.episodes[0].headline;
    assert!(
        text.starts_with(&format!("it keeps ending\n\n{headline}\n\npod ")),
        "each headline stands alone: {text}"
    );
    let none = PodStory::default();
    assert_eq!(explain::story(&none, false, look(80, true)), "\n");
}

#[test]
fn a_pod_from_before_is_drawn_as_the_runtime_lists_it() {
    let container = |name: &str, state: &str, restarts| ListedContainerView {
        name: name.to_owned(),
        state: state.to_owned(),
        restarts,
        created_unix_us: UnixMicros::new(1_750_000_000_000_000),
        ..ListedContainerView::default()
    };
    let ended = ListedContainerView {
        exit_code: Some(137),
        exit_reason: Some("oom_killed".to_owned()),
        ended_unix_us: Some(UnixMicros::new(1_750_000_060_000_000)),
        ..container("app", "exited", 7)
    };
    let story = PodStory {
        now_unix_us: UnixMicros::new(1_750_000_120_000_000),
        headline: "app is down".to_owned(),
        listed: Some(ListedPodView {
            uid: "u-1".to_owned(),
            state: PodState::Failed,
            containers: vec![ended, container("proxy", "running", 0)],
            ..ListedPodView::default()
        }),
        ..examples::story(examples::failed_image())
    };
    let text = explain::story(&story, false, look(80, true));
    assert!(
        text.contains("\nwhat    failed, as the runtime lists it\n"),
        "{text}"
    );
    let table = "\nCONTAINER  STATE    SINCE   RESTARTS  EXIT\n\
        app        exited   1 min          7  code 137, OOMKilled\n\
        proxy      running  2 min          0\n";
    assert!(text.contains(table), "{text}");
    // An earlier pod of this name.
    assert!(!text.contains("NOT_FOUND"), "{text}");
    assert!(text.contains("1 more episode: start"), "{text}");
}

/// The examples of one namespace, without the hostile one.
fn list() -> PodList {
    let mut list = examples::pods();
    list.pods.retain(|it| it.namespace == "shop");
    list
}

/// A name as long as Kubernetes' controllers make them.
fn long_names() -> PodList {
    let mut list = list();
    for (n, pod) in list.pods.iter_mut().enumerate() {
        let middle = "recommendation-engine-canary-".repeat(3);
        pod.name = format!("{middle}{}-7d4b9c6f5-{n:05}", pod.name);
        pod.namespace = "team-with-a-rather-long-name-production".to_owned();
    }
    list
}

#[test]
fn lists_of_pods_look_like_this() {
    let list = list();
    for (width, unicode) in [(60, false), (80, true), (120, true), (160, true)] {
        let text = pods::table(&list, look(width, unicode), PodColumns::Fitting, true);
        assert!(widest(&text) <= width, "at {width}:\n{text}");
        picture(&format!("pods-{width}.txt"), &text);
        let text = pods::table(
            &long_names(),
            look(width, unicode),
            PodColumns::Fitting,
            true,
        );
        assert!(widest(&text) <= width, "at {width}:\n{text}");
        picture(&format!("pods-long-{width}.txt"), &text);
        for (n, _) in list.pods.iter().enumerate() {
            assert!(
                text.contains(&format!("-{n:05}")),
                "names differ at their end:\n{text}"
            );
        }
    }
    let own = pods::table(&list, look(60, true), PodColumns::Fitting, false);
    assert!(!own.contains("shop/db-0") && own.contains("db-0"), "{own}");
    let none = pods::table(
        &PodList::default(),
        look(80, true),
        PodColumns::Fitting,
        true,
    );
    assert_eq!(none.lines().count(), 1);
}

#[test]
fn a_list_for_programs_has_a_line_per_pod_and_nothing_truncated() {
    let list = long_names();
    for columns in [PodColumns::Lines, PodColumns::Wide] {
        let text = pods::table(&list, look(80, true), columns, true);
        assert_eq!(text.lines().count(), 1 + list.pods.len(), "{text}");
        for pod in &list.pods {
            assert!(
                text.contains(&pod.path()) && text.contains(&pod.reason),
                "{text}"
            );
            assert_eq!(text.contains(&pod.uid), columns == PodColumns::Wide);
        }
    }
    let state = |text: &str| text.lines().next().and_then(|line| line.find("STATE"));
    let mut one = self::list();
    let text = pods::table(&one, look(80, true), PodColumns::Lines, true);
    one.pods.extend(long_names().pods);
    let with_long = pods::table(&one, look(80, true), PodColumns::Lines, true);
    assert!(
        state(&text) < Some(40) && state(&with_long) <= Some(62),
        "{with_long}"
    );
}

#[test]
fn a_screen_begins_with_the_verdict() {
    let text = pods::summary(&list(), look(80, true));
    let verdict = &list().verdict.headline;
    assert!(
        text.starts_with(&**verdict) && verdict.contains("crash-loops"),
        "{text}"
    );
}

fn running() -> Vec<CallView> {
    let call = |method: &str, pod: &str, duration_ms: f64, deadline_ms| CallView {
        method: method.to_owned(),
        phase: Some("waiting".to_owned()),
        duration_ms,
        deadline_ms,
        namespace: Some("shop".to_owned()),
        pod: Some(pod.to_owned()),
        ..CallView::default()
    };
    let mut stuck = call("RunPodSandbox", "stuck-1", 130_000.0, Some(240_000.0));
    stuck.stuck = Some(50);
    let mut pull = call("PullImage", "model-0", 41_000.0, None);
    pull.image = Some("registry.example.com/ml/model-server:2026-01".to_owned());
    vec![
        stuck,
        pull,
        call("CreateContainer", "web", 30_020.0, Some(30_000.0)),
    ]
}

fn table() -> RpcTable {
    let row = |method: &str, calls, errors, p50, p99| {
        let window = RateWindow {
            seconds: 60.0,
            calls,
            errors,
            p50_ms: p50,
            p99_ms: p99,
            ..RateWindow::default()
        };
        RpcMethodRow {
            method: method.to_owned(),
            minute: window.clone(),
            all: window,
            ..RpcMethodRow::default()
        }
    };
    RpcTable {
        methods: vec![
            row("RunPodSandbox", 3, 1, Some(310.0), Some(9830.0)),
            row("ContainerStatus", 240, 0, Some(0.81), Some(2.4)),
            row("RemoveImage", 0, 0, None, None),
            row("ReopenContainerLog", 2, 0, Some(1.2), Some(1.2)),
        ],
        ..RpcTable::default()
    }
}

fn sessions() -> Vec<OpenSessionView> {
    let exec = OpenSessionView {
        id: "0123456789abcdef0123".to_owned(),
        namespace: Some("shop".to_owned()),
        pod: Some("web-1".to_owned()),
        session: SessionView {
            kind: "exec".to_owned(),
            program: Some("sh".to_owned()),
            container: Some("app".to_owned()),
            client: Some("kubelet".to_owned()),
            duration_ms: 754_000.0,
            bytes_in: 211,
            bytes_out: 33_000_000,
            outcome: SessionView::OPEN.to_owned(),
            ..SessionView::default()
        },
    };
    let mut forward = OpenSessionView {
        namespace: None,
        pod: None,
        ..exec.clone()
    };
    forward.session.kind = "portforward".to_owned();
    forward.session.duration_ms = 2_100.0;
    (forward.session.program, forward.session.container) = (None, None);
    vec![exec, forward]
}

fn now() -> CallsScreen {
    CallsScreen {
        calls: running(),
        sessions: sessions(),
        methods: table(),
    }
}

#[test]
fn the_screen_of_calls_looks_like_this() {
    for (width, unicode) in [(80, false), (140, true)] {
        let text = calls::screen("127.0.0.1:9478", &now(), look(width, unicode), None);
        assert!(widest(&text) <= width, "at {width}:\n{text}");
        picture(&format!("calls-{width}.txt"), &text);
    }
    let none = calls::screen("a", &CallsScreen::default(), look(80, true), None);
    assert!(none.contains("0 in flight, 0.0 calls/s"), "{none}");
    assert!(none.contains("No call is in flight.") && none.contains("No call has ended yet."));
    assert!(!none.contains("SESSION") && !none.contains("session"));
    let many = CallsScreen {
        calls: running().into_iter().cycle().take(100).collect(),
        sessions: sessions().into_iter().cycle().take(100).collect(),
        methods: table(),
    };
    let short = calls::screen("a", &many, look(80, true), Some(22));
    assert!(
        short.lines().count() <= 22 && short.contains("and 93 more"),
        "{short}"
    );
    assert!(
        short.contains("and 97 more") && short.contains(", 100 sessions,"),
        "{short}"
    );
    assert!(
        short.contains("ContainerStatus"),
        "rates have room: {short}"
    );
}

#[test]
fn hostile_names_stay_text() {
    let hostile = examples::hostile();
    let story = examples::story(hostile.clone());
    let reason = hostile.headline.clone();
    let list = PodList {
        pods: PodSummary::from_episodes(vec![hostile], reason, examples::NOW)
            .into_iter()
            .collect(),
        ..examples::pods()
    };
    let mut call = running().remove(0);
    call.pod = Some("\u{1b}[2J\u{202e}\r\nweb".to_owned());
    call.method = "\u{9b}31m".to_owned();
    let mut session = sessions().remove(0);
    session.pod.clone_from(&call.pod);
    session.session.program.clone_from(&call.pod);
    session.session.client = Some("\u{1b}[2J".to_owned());
    let now = CallsScreen {
        calls: vec![call],
        sessions: vec![session],
        methods: table(),
    };
    for unicode in [false, true] {
        let look = look(80, unicode);
        for text in [
            explain::story(&story, false, look),
            pods::table(&list, look, PodColumns::Fitting, true),
            pods::table(&list, look, PodColumns::Wide, true),
            calls::screen("\u{1b}c", &now, look, None),
        ] {
            let bad = |c: char| {
                (c.is_control() && c != '\n')
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            };
            assert!(!text.contains(bad), "{text:?}");
            assert!(unicode || text.is_ascii(), "{text}");
        }
    }
    // A name cannot add a line.
    let text = pods::table(&list, look(80, true), PodColumns::Lines, true);
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn colours_are_closed_and_do_not_move_anything() {
    let colour = WaterfallStyle {
        colour: true,
        ..look(100, true)
    };
    let stripped = |text: &str| anstream::adapter::strip_str(text).to_string();
    let story = examples::story(examples::retries());
    let text = explain::story(&story, false, colour);
    assert!(text.contains("\x1b[31m"));
    assert_eq!(
        stripped(&text),
        explain::story(&story, false, look(100, true))
    );
    for line in text.lines().filter(|line| line.contains('\x1b')) {
        assert!(
            line.matches("\x1b[0m").count() * 2 == line.matches('\x1b').count(),
            "{line:?}"
        );
    }
    for width in [80, 160] {
        let colour = WaterfallStyle { width, ..colour };
        let list = examples::pods();
        assert_eq!(
            stripped(&pods::table(&list, colour, PodColumns::Fitting, true)),
            pods::table(&list, look(width, true), PodColumns::Fitting, true)
        );
    }
}

#[test]
fn times_that_are_no_numbers_are_drawn_all_the_same() {
    let mut episode = examples::slow_cni();
    episode.duration_ms = f64::NAN;
    episode.calls[0].duration_ms = f64::INFINITY;
    episode.calls[1].offset_ms = -5.0;
    episode.phases[0].ms = f64::NAN;
    let text = explain::story(&examples::story(episode.clone()), false, look(80, true));
    assert!(text.contains("RunPodSandbox"));
    let pods = [episode, EpisodeView::default()]
        .map(|it| PodSummary::from_episodes(vec![it], String::new(), UnixMicros::EPOCH));
    let list = PodList {
        pods: pods.into_iter().flatten().collect(),
        ..PodList::default()
    };
    let text = pods::table(&list, look(160, true), PodColumns::Fitting, true);
    assert_eq!(text.lines().count(), 5);
}
