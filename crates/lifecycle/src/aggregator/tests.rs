//! The aggregator on a simulated clock.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::CallSink;
use crate::handover::HandoverSteps;
use crate::recorder::FlightRecorder;
use crate::settings::StorySettings;
use crate::view::{EpisodeState, EpisodeView};
use criscope_cri::Method;
use criscope_cri::call::episode::Ids;
use criscope_cri::call::{Ending, Outcome, Source};
use criscope_cri::status::Code;
use criscope_cri::subject::{
    ContainerExit, ContainerIdentity, ContainerState, ExitReason, PodIdentity, ResponseDetails,
    Subject,
};
use criscope_cri::units::times::UnixMicros;
use criscope_settings::SettingsReader;

mod boot;
mod events;
mod handover;
mod panics;
mod restart;

/// Records closed episodes.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<(EpisodeView, Ids)>>, Mutex<Vec<String>>);

impl EpisodeSubscriber for Heard {
    fn closed(&self, episode: &EpisodeView, ids: &Ids) {
        self.0.lock().expect("lock").push((episode.clone(), *ids));
    }

    fn failing(&self, episode: &EpisodeView, _: &Ids) {
        let line = format!("{} fails", episode.name);
        self.1.lock().expect("lock").push(line);
    }

    fn continued(&self, episode: &EpisodeView, ids: &Ids, from: f64) {
        let line = format!("{} is {} from {from}", episode.name, episode.state.name());
        self.1.lock().expect("lock").push(line);
        self.closed(episode, ids);
    }

    fn keeps(&self, _: &EpisodeView, _: &Ids) -> bool {
        true
    }
}

struct Running {
    sink: CallSink,
    stories: Arc<Stories>,
    in_flight: Arc<Mutex<Vec<Arc<Call>>>>,
    drops: Arc<Drops>,
    registry: Registry,
    heard: Arc<Heard>,
    handover: HandoverSteps,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// An aggregator on tokio's paused clock.
fn aggregator(state_dir: Option<&Path>) -> Running {
    let base = (Instant::now(), SystemTime::now());
    with_clock(state_dir, Arc::new(move || base.1 + base.0.elapsed()))
}

fn with_clock(state_dir: Option<&Path>, clock: WallClock) -> Running {
    let settings = StorySettings::read(&mut SettingsReader::empty(), "/nowhere".as_ref());
    let drops = Arc::<Drops>::default();
    let registry = Registry::new(prometheus::Registry::new(), []);
    let stories = Arc::new(Stories::new(&settings, Arc::default()));
    let recorder = Arc::new(FlightRecorder::new(1, 1));
    let (sink, events) = CallSink::new(recorder, Arc::clone(&drops));
    let in_flight: Arc<Mutex<Vec<Arc<Call>>>> = Arc::default();
    let heard = Arc::<Heard>::default();
    let parts = AggregatorParts {
        stories: Arc::clone(&stories),
        events,
        in_flight: Arc::new({
            let in_flight = Arc::clone(&in_flight);
            move || in_flight.lock().expect("lock").clone()
        }),
        state_dir: state_dir.map(Path::to_owned),
        kubelet_dir: state_dir.map(Path::to_owned),
        drops: Arc::clone(&drops),
        subscriber: Some(Arc::clone(&heard) as _),
        node: Arc::new(crate::node::UnknownNode),
        bypass: crate::node::BypassFiles::at(state_dir.unwrap_or(Path::new("/nowhere"))),
        clock,
    };
    let handover = HandoverSteps::default();
    let aggregator = Aggregator::new(parts, &registry).expect("metrics");
    let aggregator = aggregator.with_handover(handover.clone());
    let stop = CancellationToken::new();
    let task = tokio::spawn(aggregator.run(stop.clone()));
    Running {
        sink,
        stories,
        in_flight,
        drops,
        registry,
        heard,
        handover,
        stop,
        task,
    }
}

impl Running {
    fn end(&self, call: &Call, ending: Ending) {
        let code = match ending {
            Ending::Ok => Code::Ok,
            _ => Code::Unknown,
        };
        let outcome = Outcome {
            ending,
            code,
            source: Source::Backend,
            message: None,
            elapsed: Duration::from_millis(100),
        };
        self.sink.end(call, &outcome, true);
    }

    fn start(&self, name: &str) {
        for method in [
            Method::RunPodSandbox,
            Method::CreateContainer,
            Method::StartContainer,
        ] {
            self.end(&call(method, name, 0), Ending::Ok);
        }
    }

    async fn finish(&mut self) {
        self.stop.cancel();
        (&mut self.task).await.expect("no panic");
    }

    fn metrics(&self) -> String {
        String::from_utf8(self.registry.encode().expect("encodes")).expect("utf-8")
    }

    fn heard(&self) -> Vec<EpisodeView> {
        let heard = self.heard.0.lock().expect("lock");
        heard.iter().map(|(episode, _)| episode.clone()).collect()
    }
}

fn call(method: Method, name: &str, attempt: u32) -> Call {
    let call = Call::example(method);
    let pod = PodIdentity {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        attempt: 0,
    };
    let of_container = !matches!(
        method,
        Method::RunPodSandbox | Method::StopPodSandbox | Method::PullImage
    );
    let container = ContainerIdentity {
        name: "app".into(),
        attempt,
    };
    let subject = Subject {
        pod: Some(Arc::new(pod)),
        sandbox_id: (method != Method::PullImage).then(|| format!("s-{name}").into()),
        container: of_container.then(|| Arc::new(container)),
        container_id: of_container.then(|| format!("c-{name}-{attempt}").into()),
        image: (method == Method::PullImage).then(|| "app:1".into()),
        handler: (method == Method::RunPodSandbox).then(|| "".into()),
        ..Subject::default()
    };
    call.subject.set(subject).expect("unset");
    call
}

#[tokio::test(start_paused = true)]
async fn a_start_is_told_once_and_everywhere() {
    let mut aggregator = aggregator(None);
    aggregator.start("web");
    aggregator.end(&call(Method::PullImage, "bad", 0), Ending::Error);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(aggregator.heard(), []);
    assert!(
        aggregator
            .metrics()
            .contains("criscope_pod_starts_open 2\n")
    );
    assert_eq!(aggregator.stories.recent(&[]).episodes.len(), 2);
    advance(Duration::from_secs(10)).await;
    sleep(Duration::from_secs(20)).await;
    let heard = aggregator.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!((&*heard[0].name, heard[0].state), ("web", EpisodeState::Ok));
    assert_eq!(
        aggregator.heard.0.lock().expect("lock")[0].1,
        Ids::start("uid-web", 0)
    );
    let metrics = aggregator.metrics();
    for line in [
        "criscope_pod_start_duration_seconds_count{image_pull=\"none\",outcome=\"ok\",runtime_handler=\"default\"} 1",
        "criscope_pod_start_phase_seconds_count{phase=\"sandbox\"} 1",
        "criscope_pod_start_failures_total{cause=\"image_pull_failed\",phase=\"image_pull\"} 1",
        "criscope_pod_start_failures_total{cause=\"sandbox_failed\",phase=\"sandbox\"} 0",
        "criscope_pod_starts_open 1",
        "criscope_story_episodes{kind=\"start\"} 2",
    ] {
        assert!(
            metrics.lines().any(|l| l == line),
            "{line} is not in\n{metrics}"
        );
    }
    assert!(metrics.contains("criscope_pod_start_oldest_open_seconds "));
    aggregator.finish().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_is_shown_and_waited_for() {
    let aggregator = aggregator(None);
    aggregator.start("web");
    let pull = Arc::new(call(Method::PullImage, "web", 0));
    let run = Arc::new(call(Method::RunPodSandbox, "new", 0));
    *aggregator.in_flight.lock().expect("lock") = vec![Arc::clone(&pull), Arc::clone(&run)];
    sleep(Duration::from_secs(60)).await;
    assert_eq!(aggregator.heard(), []);
    let in_flight = [pull, run];
    let recent = aggregator.stories.recent(&in_flight).episodes;
    let names: Vec<_> = recent.iter().map(|e| &*e.name).collect();
    assert_eq!(names, ["new", "web"]);
    assert!(recent.iter().all(|e| e.calls.is_empty()));
    let story = aggregator
        .stories
        .pod_story("shop", "web", None, &in_flight)
        .expect("story");
    let outcomes: Vec<_> = story.episodes[0]
        .calls
        .iter()
        .map(|c| &*c.outcome)
        .collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "in_flight"]);
    assert_eq!(
        aggregator
            .stories
            .pod_story("shop", "other", None, &in_flight),
        None
    );
    assert_eq!(
        aggregator
            .stories
            .pod_story("other", "web", None, &in_flight),
        None
    );
    // Reading does not store.
    assert_eq!(aggregator.stories.recent(&[]).episodes.len(), 1);
    aggregator.in_flight.lock().expect("lock").clear();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(aggregator.heard().len(), 1);
}

fn status(name: &str, attempt: u32, at: SystemTime, reason: ExitReason) -> Call {
    let call = call(Method::ContainerStatus, name, attempt);
    let at = i64::try_from(UnixMicros::from(at).as_micros()).expect("fits") * 1000;
    let exit = ContainerExit {
        at,
        code: 1,
        reason,
    };
    let state = ContainerState {
        started_at: at - 200_000_000,
        exit: Some(exit),
    };
    let answer = ResponseDetails {
        state: Some(state),
        ..ResponseDetails::default()
    };
    call.response.set(answer).expect("unset");
    call
}

#[tokio::test(start_paused = true)]
async fn ends_of_containers_count_once_if_they_are_of_our_time() {
    let aggregator = aggregator(None);
    aggregator.start("web");
    let now = SystemTime::now() + Duration::from_secs(5);
    for _ in 0..3 {
        aggregator.end(&status("web", 0, now, ExitReason::OomKilled), Ending::Ok);
    }
    let long_ago = now - Duration::from_secs(3600);
    aggregator.end(&status("old", 0, long_ago, ExitReason::Error), Ending::Ok);
    for method in [Method::CreateContainer, Method::StartContainer] {
        aggregator.end(&call(method, "web", 1), Ending::Ok);
    }
    sleep(Duration::from_secs(1)).await;
    let metrics = aggregator.metrics();
    for line in [
        "criscope_container_exits_total{reason=\"oom_killed\"} 1",
        "criscope_container_exits_total{reason=\"error\"} 0",
        "criscope_container_restarts_total 1",
    ] {
        assert!(
            metrics.lines().any(|l| l == line),
            "{line} is not in\n{metrics}"
        );
    }
    let story = aggregator
        .stories
        .pod_story("shop", "web", None, &[])
        .expect("story");
    let exits: Vec<_> = story.episodes.iter().flat_map(|e| &e.exits).collect();
    assert_eq!((exits.len(), exits[0].ran_ms), (1, 200.0));
}

#[tokio::test(start_paused = true)]
async fn a_list_says_of_a_crash_loop_what_the_story_of_the_pod_says() {
    let aggregator = aggregator(None);
    aggregator.start("web");
    let stop = Arc::new(call(Method::StopContainer, "web", 1));
    let now = SystemTime::now() + Duration::from_millis(150);
    aggregator.end(&status("web", 0, now, ExitReason::Error), Ending::Ok);
    for method in [Method::CreateContainer, Method::StartContainer] {
        aggregator.end(&call(method, "web", 1), Ending::Ok);
    }
    aggregator.end(&status("web", 1, now, ExitReason::Error), Ending::Ok);
    sleep(Duration::from_secs(30)).await;
    let story = aggregator
        .stories
        .pod_story("shop", "web", None, &[])
        .expect("story");
    assert!(
        story.headline.contains("keeps crashing"),
        "{}",
        story.headline
    );
    let recent = aggregator.stories.recent(&[]);
    for episode in recent.episodes.iter().chain(&story.episodes) {
        assert_eq!(episode.state, EpisodeState::Ok);
        assert_eq!(episode.crash_loop.as_ref(), Some(&story.headline));
    }
    assert_eq!(
        aggregator.heard()[1].crash_loop.as_ref(),
        Some(&story.headline),
        "so does the log"
    );
    // By uid the result is the same.
    let mut one = aggregator
        .stories
        .pod_story("shop", "web", Some("uid-web"), &[])
        .expect("story");
    one.now_unix_us = story.now_unix_us;
    assert_eq!(one, story);
    // The container may exit, since its pod is being stopped.
    let recent = aggregator.stories.recent(&[stop]);
    assert!(recent.episodes.iter().all(|it| it.crash_loop.is_none()));
}

#[tokio::test]
async fn a_restart_of_ours_repeats_nothing() {
    let dir = tempfile::tempdir().expect("dir");
    let mut first = aggregator(Some(dir.path()));
    first.start("web");
    first.end(&call(Method::RunPodSandbox, "half", 0), Ending::Ok);
    first.end(&call(Method::RunPodSandbox, "gone", 0), Ending::Ok);
    first.end(&call(Method::StopPodSandbox, "gone", 0), Ending::Ok);
    // Queued lines are written before it ends.
    first.finish().await;
    let names: Vec<_> = first.heard().iter().map(|e| e.name.clone()).collect();
    // The start that the stop ended, and the stop itself.
    assert_eq!(names, ["gone", "gone"]);

    let mut second = aggregator(Some(dir.path()));
    second.end(&call(Method::CreateContainer, "half", 0), Ending::Ok);
    second.end(&call(Method::StartContainer, "half", 0), Ending::Ok);
    second.finish().await;
    assert_eq!(second.heard(), []);
    let story = second
        .stories
        .pod_story("shop", "half", None, &[])
        .expect("story");
    let calls: Vec<_> = story.episodes[0].calls.iter().map(|c| &*c.method).collect();
    assert_eq!(
        calls,
        ["RunPodSandbox", "CreateContainer", "StartContainer"]
    );
    assert_eq!(second.stories.recent(&[]).episodes.len(), 4);
}

/// The root span is exported while a start fails, since its end is not known.
#[tokio::test(start_paused = true)]
async fn a_start_that_keeps_failing_is_told_before_it_is_over() {
    let mut aggregator = aggregator(None);
    aggregator.end(&call(Method::RunPodSandbox, "bad", 0), Ending::Ok);
    aggregator.end(&call(Method::PullImage, "bad", 0), Ending::Error);
    let told = |aggregator: &Running| aggregator.heard.1.lock().expect("lock").clone();
    sleep(Duration::from_secs(55)).await;
    assert_eq!(told(&aggregator), [""; 0]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(told(&aggregator), ["bad fails"]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(told(&aggregator).len(), 1, "a span is exported once");
    aggregator.start("bad");
    aggregator.end(&call(Method::PullImage, "bad", 0), Ending::Ok);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(told(&aggregator), ["bad fails", "bad is ok from 0"]);
    aggregator.finish().await;
}
