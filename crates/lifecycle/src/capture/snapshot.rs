//! State of the running process that its journal lacks: calls in flight, usual durations, spans that arrived after their call.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::CaptureBundle;
use crate::Stories;
use crate::episode_call::EpisodeCall;
use crate::journal;
use crate::listed_pods::{ListedPod, ListedPods};
use crate::node::NodePrograms;
use crate::process_scanner::WorkKind;
use crate::settings;
use crate::usual::{self, UsualDurations};
use crate::view::{PodState, RawMessage};
use criscope_cri::call::{Call, CallStage, CallState, Ending, Outcome, Source};
use criscope_cri::status::Code;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::{self, UnixMicros};
use criscope_telemetry::version;

/// State of the process that its journal lacks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessSnapshot {
    /// Time of the snapshot. Without a running process it is the time of the journal's last line.
    pub now_unix_us: UnixMicros,
    /// The directory of the journal.
    pub state_dir: PathBuf,
    /// `story.episodes`
    episodes: usize,
    /// `story.quiet`
    #[serde(rename = "quiet_us", with = "times::micros")]
    quiet: Duration,
    /// `story.slow`
    #[serde(rename = "slow_us", with = "times::micros")]
    slow: Duration,
    /// `story.give_up`
    #[serde(rename = "give_up_us", with = "times::micros")]
    give_up: Duration,
    /// Calls in flight that belong to episodes.
    in_flight: Vec<InFlightCall>,
    /// Calls with spans of the runtime, which may have arrived after the journal's line.
    with_spans: Vec<EpisodeCall>,
    /// Usual durations of calls on this node.
    usual: UsualDurations,
    /// The programs of this node.
    #[serde(default)]
    programs: NodePrograms,
    /// The headline of each pod. A criscope of the same version shows these, since some facts are in memory only.
    #[serde(rename = "said")]
    headlines: Vec<PodHeadline>,
    /// Pods that the runtime lists and no call has named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    listed: Vec<ListedPod>,
    /// Sentences about the state of the node, and on why a pod may be unknown.
    notes: Vec<String>,
    /// The kubelet's relist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    relist: Option<String>,
}

/// A call in flight, written like an ended call.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct InFlightCall {
    stage: String,
    call: EpisodeCall,
}

impl InFlightCall {
    fn new(mut call: EpisodeCall) -> Option<Self> {
        let CallState::InFlight { stage, age } = call.state else {
            return None;
        };
        call.record_mut().state = CallState::Ended(Outcome {
            ending: Ending::Ok,
            code: Code::Ok,
            source: Source::Backend,
            message: None,
            elapsed: age,
        });
        let stage = stage.name().to_owned();
        Some(Self { stage, call })
    }

    fn call(&self) -> EpisodeCall {
        let mut call = self.call.clone();
        let mut stages = CallStage::ALL.into_iter();
        let stage = stages.find(|stage| stage.name() == self.stage);
        let (stage, age) = (stage.unwrap_or(CallStage::Waiting), call.elapsed());
        call.record_mut().state = CallState::InFlight { stage, age };
        call
    }
}

/// The headline for the pods of a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PodHeadline {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) headline: String,
    pub(crate) cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raw_message: Option<RawMessage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// The uid of the newest pod of this name, and its state.
    #[serde(default)]
    uid: String,
    #[serde(default)]
    state: PodState,
}

impl PodHeadline {
    fn is_about(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }

    /// The state that belongs to the headline, if it is about this pod.
    pub(crate) fn state_of(&self, uid: &str) -> Option<PodState> {
        (self.uid == uid).then_some(self.state)
    }

    fn all(stories: &Stories, calls: &[Arc<Call>]) -> Vec<Self> {
        let mut pods = stories.pods(calls).pods;
        pods.sort_by_key(|pod| pod.began_unix_us);
        // Of several pods of one name the newest counts.
        let pods = pods.into_iter();
        let states: BTreeMap<_, _> = pods
            .map(|pod| ((pod.namespace, pod.name), (pod.uid, pod.state)))
            .collect();
        let states = states.into_iter();
        let headlines = states.filter_map(|((namespace, name), (uid, state))| {
            let story = stories.pod_story(&namespace, &name, None, calls)?;
            Some(Self {
                namespace,
                name,
                headline: story.headline,
                cause: story.cause,
                raw_message: story.raw_message,
                next: story.next,
                uid,
                state,
            })
        });
        headlines.collect()
    }
}

/// The state at the time of a capture.
#[derive(Clone, Debug)]
pub(crate) struct CapturedState {
    pub(crate) now: UnixMicros,
    pub(crate) in_flight: Vec<EpisodeCall>,
    pub(crate) notes: Vec<String>,
    headlines: Vec<PodHeadline>,
}

impl CapturedState {
    /// The stored headline for the pods of this name.
    pub(crate) fn headline(&self, namespace: &str, name: &str) -> Option<&PodHeadline> {
        let mut headlines = self.headlines.iter();
        headlines.find(|headline| headline.is_about(namespace, name))
    }
}

impl ProcessSnapshot {
    /// The snapshot of `stories` now, with these calls in flight.
    pub fn new(stories: &Stories, calls: &[Arc<Call>], state_dir: &Path) -> Self {
        let in_flight = stories.in_flight(calls).into_iter();
        let headlines = PodHeadline::all(stories, calls);
        let store = stories.store();
        let (limits, slow) = store.settings();
        let calls = store.episodes().flat_map(|episode| &episode.calls);
        let with_spans = calls.filter(|call| {
            let mut work = call.work.iter();
            work.any(|work| work.kind == WorkKind::Runtime && !work.own)
        });
        let with_spans = with_spans.cloned().collect();
        let (usual, programs) = (store.usual.clone(), store.programs.clone());
        let listed = store.listed_pods().cloned().collect();
        drop(store);
        Self {
            now_unix_us: UnixMicros::now(),
            state_dir: state_dir.to_owned(),
            episodes: limits.episodes,
            quiet: limits.quiet,
            slow,
            give_up: limits.give_up,
            in_flight: in_flight.filter_map(InFlightCall::new).collect(),
            with_spans,
            usual,
            programs,
            headlines,
            listed,
            notes: stories.about_unknown(),
            relist: stories.relist().map(|state| state.to_string()),
        }
    }

    /// The snapshot of a process that has ended, from `settings.state_dir` and its `journal`. Blocks.
    pub fn from_ended_process(settings: &settings::StorySettings, journal: [&[u8]; 2]) -> Self {
        let stories = Stories::new(settings, Arc::default());
        let mut snapshot = Self::new(&stories, &[], &settings.state_dir);
        let replayed = journal::replay_lines(journal, &stories.store, |call| call);
        snapshot.now_unix_us = match replayed.last {
            UnixMicros::EPOCH => snapshot.now_unix_us,
            last => last,
        };
        // Without this file no duration is usual.
        snapshot.usual = usual::load(&settings.state_dir).unwrap_or_default();
        snapshot.notes = vec!["criscope was not running when this capture was made".to_owned()];
        snapshot
    }

    /// Adds a call in flight.
    #[cfg(test)]
    pub(super) fn put_in_flight(&mut self, call: EpisodeCall) {
        self.in_flight.extend(InFlightCall::new(call));
    }

    /// Leaves out other pods' calls.
    pub(super) fn keep_pod(&mut self, namespace: &str, name: &str) {
        self.headlines
            .retain(|headline| headline.is_about(namespace, name));
        self.listed
            .retain(|listed| is_pod(&listed.pod, namespace, name));
        self.in_flight
            .retain(|in_flight| is_of_pod(&in_flight.call, namespace, name));
        self.with_spans
            .retain(|call| is_of_pod(call, namespace, name));
    }

    fn settings(&self) -> settings::StorySettings {
        settings::StorySettings {
            state_dir: self.state_dir.clone(),
            episodes: self.episodes,
            quiet: self.quiet,
            slow: self.slow,
            give_up: self.give_up,
            // The kubelet's directory belongs to another machine.
            kubelet_dir: PathBuf::new(),
        }
    }
}

impl CaptureBundle {
    /// The stories at the time of the capture. Blocks.
    pub fn stories(&self) -> Stories {
        let snapshot = &self.snapshot;
        let mut stories = Stories::new(&snapshot.settings(), Arc::default());
        stories.store().usual.restore(snapshot.usual.clone());
        stories.store().programs = snapshot.programs.clone();
        let with_spans = snapshot.with_spans.iter();
        let with_spans = with_spans.map(|call| ((call.seq, call.began_at()), call));
        let with_spans: HashMap<_, _> = with_spans.collect();
        let [older, newer] = &self.journal;
        journal::replay_lines([older, newer], &stories.store, |call| {
            let known = with_spans.get(&(call.seq, call.began_at()));
            known.map_or(call, |known| (*known).clone())
        });
        let now = snapshot.now_unix_us;
        let in_flight: Vec<_> = snapshot.in_flight.iter().map(InFlightCall::call).collect();
        {
            let mut store = stories.store();
            let first = store.episodes().next().map(|episode| episode.began);
            store.watch_since(first.unwrap_or(now));
            store.listed = ListedPods::restore(snapshot.listed.clone());
            store.tick(now, &in_flight);
        }
        stories.captured = Some(CapturedState {
            now,
            in_flight,
            notes: snapshot.notes.clone(),
            headlines: if self.manifest.criscope == version::with_commit() {
                snapshot.headlines.clone()
            } else {
                Vec::new()
            },
        });
        stories
    }
}

fn is_of_pod(call: &EpisodeCall, namespace: &str, name: &str) -> bool {
    let pod = call.pod.as_deref();
    pod.is_some_and(|pod| is_pod(pod, namespace, name))
}

fn is_pod(pod: &PodIdentity, namespace: &str, name: &str) -> bool {
    *pod.namespace == *namespace && *pod.name == *name
}
