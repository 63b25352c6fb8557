//! Gauges of the pods of this node. They count the entries of the list of pods, so that metrics and `criscope pods` never disagree.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Stories;
use super::aggregator::CallsInFlight;
use super::diagnosis::{COMMON_FAILURES, FAILING_PHASES, FailureCause, FaultOrigin, StartFailure};
use super::timeline::EpisodePhase;
use super::view::PodState;
use criscope_cri::call::Call;
use criscope_cri::call::episode::Kind;
use criscope_cri::names;
use criscope_cri::units::times::millis;
use criscope_telemetry::metric::{Metric, Unit, label, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

/// The metrics of one scrape are read within this time, and share one look at the pods.
const COUNTS_ARE_SHARED_FOR: Duration = Duration::from_millis(100);

metrics! {
    PODS = Metric::gauge("pods", Unit::Count, &[label::<StateLabel>("state")],
        "Pods in memory, by their state in `criscope pods`.");
    POD_STARTS_FAILING = Metric::gauge("pod_starts_failing", Unit::Count,
        &[label::<FailingPhase>("phase"), label::<FaultOrigin>("origin"), label::<FailureCause>("cause")],
        "Pods that cannot start, or a container of which cannot start again, each once and for as long as it fails: what fails \
        (`outside_cri` is the kubelet's own work), by whose fault, and the cause that `criscope explain` names. The origin is the \
        pod's author (command, image name, credentials, limits), the node, the cluster or the registry. Series of common causes \
        exist from the start, others since they occurred.");
    POD_STARTS_OPEN = Metric::gauge("pod_starts_open", Unit::Count, &[],
        "Pod starts that have not come to their end.");
    POD_START_OLDEST_OPEN = Metric::gauge("pod_start_oldest_open_seconds", Unit::Seconds, &[],
        "Age of the oldest start that has not come to its end, pods that wait before their first call included; 0 when there is none.");
}

criscope_cri::listed! {
    /// A state of a pod.
    struct StateLabel in &STATE_NAMES;
}

const STATE_NAMES: [&str; PodState::ALL.len()] = names!(PodState::ALL, PodState::name);

criscope_cri::listed! {
    /// A part of a start that fails.
    struct FailingPhase in &names!(FAILING_PHASES, EpisodePhase::name);
}

/// The pods of the node, counted.
#[derive(Debug, Default)]
pub(super) struct PodCounts {
    /// By state.
    pub(super) states: HashMap<PodState, usize>,
    /// Pods that cannot start.
    pub(super) failing: HashMap<StartFailure, usize>,
    /// Starts that have not come to their end.
    pub(super) open_starts: usize,
    /// Age of the oldest start that has not come to its end.
    pub(super) oldest_start: Duration,
}

impl Stories {
    /// Counts the pods. Calls in flight are included.
    pub(super) fn pod_counts(&self, in_flight: &[Arc<Call>]) -> PodCounts {
        let now = self.now();
        let mut counts = PodCounts::default();
        let mut known = HashSet::new();
        self.judged_pods(
            in_flight,
            now,
            |_, _| true,
            |own, verdict, pod| {
                *counts.states.entry(pod.state).or_default() += 1;
                known.insert(pod.uid.clone());
                let is_failing = matches!(pod.state, PodState::Failing | PodState::Failed)
                    && pod.episode.kind != Kind::Stop.name();
                let failure = verdict.start_failure(own, now).filter(|_| is_failing);
                if let Some(failure) = failure {
                    *counts.failing.entry(failure).or_default() += 1;
                }
                let starts = own.iter().filter(|episode| episode.kind == Kind::Start);
                counts.open_starts += starts.clone().filter(|start| start.is_open()).count();
                let newest = starts.clone().map(|start| start.began).max();
                let unfinished = starts.filter(|start| {
                    let is_given_up = failure.is_some() && !start.is_resolved();
                    start.is_open() || is_given_up && Some(start.began) == newest
                });
                let ages = unfinished.map(|start| now.since(start.began));
                counts.oldest_start = ages.fold(counts.oldest_start, Duration::max);
            },
        );
        for waiting in self.waiting_pods(now) {
            if !known.contains(&*waiting.uid) {
                *counts.states.entry(PodState::Starting).or_default() += 1;
                let age = now.since(waiting.since);
                counts.oldest_start = counts.oldest_start.max(age);
            }
        }
        counts
    }
}

/// The counts of the last look at the pods.
struct CountedPods {
    stories: Arc<Stories>,
    in_flight: CallsInFlight,
    last: Mutex<Option<(Instant, Arc<PodCounts>)>>,
}

impl CountedPods {
    fn counts(&self) -> Arc<PodCounts> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, counts)) = &*last
            && at.elapsed() < COUNTS_ARE_SHARED_FOR
        {
            return Arc::clone(counts);
        }
        let counts = Arc::new(self.stories.pod_counts(&(self.in_flight)()));
        *last = Some((Instant::now(), Arc::clone(&counts)));
        counts
    }
}

/// Registers the gauges, which are computed at scrape time.
///
/// # Errors
/// If a metric is registered already.
pub(super) fn register(
    registry: &Registry,
    stories: &Arc<Stories>,
    in_flight: &CallsInFlight,
) -> Result<(), RegistryError> {
    let pods = Arc::new(CountedPods {
        stories: Arc::clone(stories),
        in_flight: Arc::clone(in_flight),
        last: Mutex::default(),
    });
    let source = Arc::clone(&pods);
    registry.computed(&PODS, move |out| {
        let counts = source.counts();
        for state in PodState::ALL {
            let pods = counts.states.get(&state).copied().unwrap_or_default();
            out.put(&[state.name()], pods as f64);
        }
    })?;
    let source = Arc::clone(&pods);
    let occurred = Mutex::new(BTreeSet::from_iter(COMMON_FAILURES.map(label_values)));
    registry.computed(&POD_STARTS_FAILING, move |out| {
        let counts = source.counts();
        let failing = counts.failing.iter();
        let failing = failing.map(|(failure, pods)| (label_values(*failure), *pods));
        let failing: HashMap<_, _> = failing.collect();
        let mut occurred = occurred.lock().unwrap_or_else(PoisonError::into_inner);
        occurred.extend(failing.keys());
        for labels in &*occurred {
            let pods = failing.get(labels).copied().unwrap_or_default();
            out.put(labels, pods as f64);
        }
    })?;
    let source = Arc::clone(&pods);
    registry.computed(&POD_STARTS_OPEN, move |out| {
        out.put(&[], source.counts().open_starts as f64);
    })?;
    registry.computed(&POD_START_OLDEST_OPEN, move |out| {
        out.put(&[], millis(pods.counts().oldest_start) / 1e3);
    })
}

fn label_values(failure: StartFailure) -> [&'static str; 3] {
    [failure.phase.name(), failure.origin.name(), failure.cause]
}

#[cfg(test)]
mod tests;
