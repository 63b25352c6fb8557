//! Episodes as metrics.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TraceId;

use super::Stories;
use super::aggregator::CallsInFlight;
use super::diagnosis::{COMMON_FAILURES, FailureCause, FaultOrigin, StartFailure};
use super::episode_call::EpisodeCall;
use super::episode_store::{Episode, ExitRecord};
use super::timeline::EpisodePhase;
use super::view::EpisodeState;
use criscope_cri::call::Ending;
use criscope_cri::call::episode::Kind;
use criscope_cri::status::Code;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::times::millis;
use criscope_cri::{Method, names};
use criscope_telemetry::family::{Counters, Histograms};
use criscope_telemetry::labels::{HandlerLabel, HandlerLabels};
use criscope_telemetry::metric::{Label, Metric, RUNTIME_HANDLER, Unit, label, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

const EPISODE_OUTCOME: Label = label::<EpisodeOutcome>("outcome");
/// The phases of a start.
const START_PHASE: Label = label::<StartPhase>("phase");
/// The parts of a start that can fail.
const START_CALL: Label = label::<StartCall>("phase");
/// Starts and stops of pods.
const START_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
/// The buckets of the kubelet's `kubelet_pod_start_sli_duration_seconds`.
const SLI_BUCKETS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Relists of the kubelet.
const RELIST_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0,
];
/// Phases of starts.
const PHASE_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

metrics! {
    POD_START_DURATION = Metric::histogram("pod_start_duration_seconds", Unit::Seconds,
        &[EPISODE_OUTCOME, label::<ImagePulls>("image_pull"), RUNTIME_HANDLER], START_BUCKETS,
        "Time from the first call of a pod's start to the end of its last, counted once no call follows for `story.quiet`. A start that its caller broke off is `cancelled`; one that continues after it was counted is counted again when it is up.").with_exemplars();
    POD_START_PHASE = Metric::histogram("pod_start_phase_seconds", Unit::Seconds, &[START_PHASE], PHASE_BUCKETS,
        "Parts of the same time; they add up to it, and a part that did not occur is not counted.");
    POD_START_SLI = Metric::histogram("pod_start_sli_duration_seconds", Unit::Seconds, &[], SLI_BUCKETS,
        "Time from the moment at which the kubelet saw a pod to the end of the last StartContainer of its start, without pulls of \
        images and without init containers: the pod startup SLI of SIG Scalability. Has the buckets of \
        `kubelet_pod_start_sli_duration_seconds`, which begins earlier, with the creation of the pod in the API, and ends later, \
        with the status that the kubelet reported. Only the first sandbox of a pod counts, and only if it came up.");
    POD_START_TOTAL = Metric::histogram("pod_start_total_duration_seconds", Unit::Seconds, &[], SLI_BUCKETS,
        "The same with pulls and init containers.");
    POD_START_BEFORE_CRI = Metric::histogram("pod_start_before_cri_seconds", Unit::Seconds, &[], PHASE_BUCKETS,
        "The part of it before the first call: volumes, admission and the queue of the kubelet.");
    POD_START_FAILURES = Metric::counter("pod_start_failures_total", &[START_CALL, label::<FailureCause>("cause")],
        "Calls of pod starts that failed, each at once, by the cause that `criscope explain` names. Series of common causes exist from \
        the start, others since they occurred.");
    POD_AUTHOR_FAILURES = Metric::counter("pod_author_failures_total", &[label::<AuthorCall>("method")],
        "Calls that failed with a code that counts as a fault of the node, by a fault of the pod's author: the command is not in the \
        image, the registry has no such image. Rules subtract them from the failed calls of `criscope_rpc_total`.");
    POD_STOP_DURATION = Metric::histogram("pod_stop_duration_seconds", Unit::Seconds, &[EPISODE_OUTCOME], START_BUCKETS,
        "Time from the first call that stops a pod to the end of the first StopPodSandbox that succeeds.");
    CONTAINER_RESTARTS = Metric::counter("container_restarts_total", &[],
        "Containers that were started again.");
    CONTAINER_EXITS = Metric::counter("container_exits_total", &[label::<ExitReason>("reason")],
        "Containers that ended, as far as the kubelet asked how they are.");
    CONTAINER_OOM_KILLS = Metric::counter("container_oom_kills_total", &[],
        "Processes of containers that the kernel killed for lack of memory, in containers that run on too, as far as the runtime tells: \
        the built-in one, and containerd, of which reports within a second count as one.");
    SANDBOX_DEATHS = Metric::counter("sandbox_deaths_total", &[],
        "Sandboxes that ended without a request to stop them, with all their containers, as far as the runtime tells: containerd, \
        and the built-in one of a pod with an init or a sandbox container; its lost shims are `criscope_runtime_shims_lost_total`.");
    RELIST_DURATION = Metric::histogram("kubelet_relist_duration_seconds", Unit::Seconds, &[], RELIST_BUCKETS,
        "Duration of the kubelet's relists (PLEG), rebuilt from its calls: from its lists of all sandboxes and containers to a \
        second before the next. The kubelet's own `kubelet_pleg_relist_duration_seconds` ends at 10 s.");
    RELIST_LAST = Metric::gauge("kubelet_relist_last_seconds", Unit::Seconds, &[],
        "Time since the begin of the kubelet's last relist whose lists succeeded; above 180 the node is not ready. Absent without \
        a kubelet at work, and with evented PLEG.");
    STORY_EPISODES = Metric::gauge("story_episodes", Unit::Count, &[label::<Kind>("kind")],
        "Starts, restarts and stops that are remembered.");
}

criscope_cri::named! {
    /// How an episode ended.
    #[derive(Clone, Copy, Debug)]
    enum EpisodeOutcome {
        Ok = "ok",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

criscope_cri::named! {
    /// Whether a start pulled images.
    #[derive(Clone, Copy, Debug)]
    enum ImagePulls {
        None = "none",
        Some = "some",
    }
}

criscope_cri::listed! {
    /// A phase of a start.
    struct StartPhase in &names!(START_PHASES, EpisodePhase::name);
}

const START_PHASES: [EpisodePhase; 10] = [
    EpisodePhase::Sandbox,
    EpisodePhase::Restore,
    EpisodePhase::Network,
    EpisodePhase::ImagePull,
    EpisodePhase::ContainerCreate,
    EpisodePhase::ContainerStart,
    EpisodePhase::InitContainer,
    EpisodePhase::Hook,
    EpisodePhase::Checkpoint,
    EpisodePhase::OutsideCri,
];

criscope_cri::listed! {
    /// A part of a start that can fail.
    struct StartCall in &names!(START_CALLS, EpisodePhase::name);
}

const START_CALLS: [EpisodePhase; 6] = [
    EpisodePhase::Sandbox,
    EpisodePhase::Restore,
    EpisodePhase::Network,
    EpisodePhase::ImagePull,
    EpisodePhase::ContainerCreate,
    EpisodePhase::ContainerStart,
];

impl StartCall {
    fn in_phase(phase: EpisodePhase) -> Option<Self> {
        START_CALLS.iter().position(|p| *p == phase).map(Self)
    }
}

criscope_cri::listed! {
    /// A call that can fail by a fault of the pod's author.
    struct AuthorCall in &names!(AUTHOR_CALLS, Method::name);
}

const AUTHOR_CALLS: [Method; 4] = [
    Method::RunPodSandbox,
    Method::PullImage,
    Method::CreateContainer,
    Method::StartContainer,
];

/// The codes with which a call counts as failed by the node in the rules of the objectives.
const NODE_FAULT_CODES: [Code; 5] = [
    Code::Unknown,
    Code::DeadlineExceeded,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
];

/// Metrics that the aggregator counts.
#[derive(Debug)]
pub(super) struct StoryMetrics {
    starts: Histograms<(EpisodeOutcome, ImagePulls, HandlerLabel)>,
    phases: Histograms<StartPhase>,
    sli: Histograms,
    total: Histograms,
    before_cri: Histograms,
    failures: Counters<(StartCall, FailureCause)>,
    author_failures: Counters<AuthorCall>,
    stops: Histograms<EpisodeOutcome>,
    relists: Histograms,
    restarts: Counters,
    exits: Counters<ExitReason>,
    oom_kills: Counters,
    sandbox_deaths: Counters,
    handlers: HandlerLabels,
}

/// The counters of failed calls of starts, with the series of common causes.
fn start_failures(
    registry: &Registry,
) -> Result<Counters<(StartCall, FailureCause)>, RegistryError> {
    let failures = registry.counters(&POD_START_FAILURES)?;
    for common in COMMON_FAILURES {
        if let Some(call) = StartCall::in_phase(common.phase) {
            failures.inc_by((call, FailureCause::named(common.cause)), 0);
        }
    }
    Ok(failures)
}

fn seconds(time: Duration) -> f64 {
    millis(time) / 1e3
}

fn outcome(state: EpisodeState) -> EpisodeOutcome {
    match state {
        EpisodeState::Open | EpisodeState::Failing | EpisodeState::Ok => EpisodeOutcome::Ok,
        EpisodeState::Failed => EpisodeOutcome::Failed,
        EpisodeState::Cancelled => EpisodeOutcome::Cancelled,
    }
}

impl StoryMetrics {
    /// Registers the metrics that are counted, and the metrics that are computed from `stories`.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub(super) fn new(
        registry: &Registry,
        stories: &Arc<Stories>,
        in_flight: &CallsInFlight,
    ) -> Result<Self, RegistryError> {
        compute(registry, stories)?;
        super::pod_gauges::register(registry, stories, in_flight)?;
        super::node::metrics::register(registry, stories)?;
        Ok(Self {
            starts: registry.histograms(&POD_START_DURATION)?,
            phases: registry.histograms(&POD_START_PHASE)?,
            sli: registry.histograms(&POD_START_SLI)?,
            total: registry.histograms(&POD_START_TOTAL)?,
            before_cri: registry.histograms(&POD_START_BEFORE_CRI)?,
            failures: start_failures(registry)?,
            author_failures: registry.counters(&POD_AUTHOR_FAILURES)?.with_all_series(),
            stops: registry.histograms(&POD_STOP_DURATION)?,
            relists: registry.histograms(&RELIST_DURATION)?,
            restarts: registry.counters(&CONTAINER_RESTARTS)?.with_all_series(),
            exits: registry.counters(&CONTAINER_EXITS)?.with_all_series(),
            oom_kills: registry.counters(&CONTAINER_OOM_KILLS)?.with_all_series(),
            sandbox_deaths: registry.counters(&SANDBOX_DEATHS)?.with_all_series(),
            handlers: registry.handlers().clone(),
        })
    }

    /// Counts a call of this episode.
    pub(super) fn call(&self, episode: &Episode, call: &EpisodeCall) {
        self.author_failure(episode, call);
        // A call that the kubelet breaks off because the pod was deleted has not failed.
        let is_failure = call.is_bad() && !call.has_ended(Ending::Cancelled);
        if is_failure && episode.kind == Kind::Start {
            let failure = StartFailure::from_call(episode, call);
            if let Some(call) = StartCall::in_phase(failure.phase) {
                self.failures
                    .inc((call, FailureCause::named(failure.cause)));
            }
        }
        let again = call.container.as_ref().is_some_and(|c| c.attempt > 0);
        if again && call.method == Method::StartContainer && call.is_good() {
            self.restarts.inc(());
        }
    }

    /// Counts a call that failed by a fault of the pod's author.
    fn author_failure(&self, episode: &Episode, call: &EpisodeCall) {
        let place = AUTHOR_CALLS
            .iter()
            .position(|method| *method == call.method);
        let code = call.outcome().map(|outcome| outcome.code);
        let counts = call.is_bad() && code.is_some_and(|code| NODE_FAULT_CODES.contains(&code));
        if let Some(place) = place.filter(|_| counts)
            && StartFailure::from_call(episode, call).origin == FaultOrigin::Pod
        {
            self.author_failures.inc(AuthorCall(place));
        }
    }

    /// Counts a relist of the kubelet and its duration.
    pub(super) fn relist(&self, took: Duration) {
        self.relists.observe((), seconds(took));
    }

    /// Counts the exit of a container.
    pub(super) fn exit(&self, exit: &ExitRecord) {
        self.exits.inc(exit.reason);
    }

    /// Counts processes of a container that the kernel killed for lack of memory.
    pub(super) fn oom_kills(&self, kills: u32) {
        self.oom_kills.inc_by((), u64::from(kills));
    }

    /// Counts a sandbox that ended without a request to stop it.
    pub(super) fn sandbox_death(&self) {
        self.sandbox_deaths.inc(());
    }

    /// Counts an episode that was closed. `trace` is its trace, if the trace is exported.
    pub(super) fn closed(&self, episode: &Episode, trace: Option<TraceId>) {
        let time = seconds(episode.ended.since(episode.began));
        // The start was counted when it was given up, and the kubelet still tries.
        let is_repeated = episode.closings > 1 && episode.state != EpisodeState::Ok;
        match episode.kind {
            _ if is_repeated => {}
            Kind::Start => self.start(episode, time, trace),
            // Only containers were stopped, not the pod, or it was stopped before.
            Kind::Stop if episode.is_tentative() || episode.only_cleans => {}
            Kind::Stop => self.stops.observe(outcome(episode.state), time),
            Kind::Restart => {}
        }
    }

    fn start(&self, episode: &Episode, time: f64, trace: Option<TraceId>) {
        let handler = self.handlers.value(episode.handler.as_deref());
        let pulls = if episode.pulled {
            ImagePulls::Some
        } else {
            ImagePulls::None
        };
        let labels = (outcome(episode.state), pulls, handler);
        self.starts.observe_traced(labels, time, trace);
        self.since_seen(episode);
        let shares = episode.shares();
        for (place, phase) in START_PHASES.into_iter().enumerate() {
            let share = shares[phase as usize];
            if !share.is_zero() {
                self.phases.observe(StartPhase(place), seconds(share));
            }
        }
    }
}

/// The start since the kubelet saw the pod.
impl StoryMetrics {
    fn since_seen(&self, episode: &Episode) {
        let start = episode
            .pod_start()
            .filter(|_| episode.state == EpisodeState::Ok);
        let Some(start) = start else { return };
        for (metric, time) in [
            (&self.sli, start.sli),
            (&self.total, start.total),
            (&self.before_cri, start.before_cri),
        ] {
            metric.observe((), seconds(time));
        }
    }
}

/// Metrics that are computed on each scrape.
fn compute(registry: &Registry, stories: &Arc<Stories>) -> Result<(), RegistryError> {
    let source = Arc::clone(stories);
    registry.computed(&RELIST_LAST, move |out| {
        if let Some(state) = source.relist() {
            out.put(&[], seconds(state.since));
        }
    })?;
    let source = Arc::clone(stories);
    registry.computed(&STORY_EPISODES, move |out| {
        for (kind, n) in source.remembered() {
            out.put(&[kind], n as f64);
        }
    })
}

/// Gives every metric of this module a series.
#[cfg(any(test, feature = "test-util"))]
pub fn populate(registry: &Registry) {
    use super::tests::script::{at, pod};
    let mut reader = criscope_settings::SettingsReader::empty();
    let settings = super::settings::StorySettings::read(&mut reader, "/nowhere".as_ref());
    let stories = Arc::new(Stories::new(&settings, Arc::default()));
    let no_calls: CallsInFlight = Arc::new(Vec::new);
    let metrics = StoryMetrics::new(registry, &stories, &no_calls).expect("once");
    {
        let mut node = stories.node();
        node.kubelet = Some(true);
        node.disks = vec![("upstream".into(), super::node::ImageFilesystem::default())];
    }
    metrics.relist(Duration::from_millis(20));
    stories.relists().listed_now();
    let (up, open) = (pod("up"), pod("open"));
    let mut store = stories.store();
    for call in [
        up.run(0, 10).seen_before(10),
        up.create(("app", 0), 10, 10),
        up.start(("app", 0), 20, 10),
        up.stop(60_000, 2000),
        open.run(80_000, 10),
    ] {
        store.tick(call.began_at(), &[]);
        store.apply(call);
    }
    store.tick(at(79_000), &[]);
    for number in store.take_closed() {
        metrics.closed(store.get(number).expect("remembered"), None);
    }
}
