//! What the running process knows besides its journal: calls in flight, what is usual, spans that arrived after their call.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Bundle;
use crate::call::times::{micros_of, unix_micros};
use crate::call::{Call, CallStage, CallState, Ending, Outcome, Source};
use crate::cri::status::Code;
use crate::lifecycle::Stories;
use crate::lifecycle::episode_call::EpisodeCall;
use crate::lifecycle::journal;
use crate::lifecycle::process_scanner::WorkKind;
use crate::lifecycle::settings;
use crate::lifecycle::usual::{self, UsualDurations};
use crate::version;

/// See the module documentation. Times of day and durations in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was made; for one from the journal alone, the time of its last line.
    pub now_unix_us: u64,
    /// The directory of the journal.
    pub state_dir: PathBuf,
    /// `story.episodes`
    episodes: usize,
    /// `story.quiet`
    quiet_us: u64,
    /// `story.slow`
    slow_us: u64,
    /// `story.give_up`
    give_up_us: u64,
    /// Calls in flight that belong to episodes.
    in_flight: Vec<InFlight>,
    /// Calls with spans of the runtime, which may have arrived after the journal's line.
    with_spans: Vec<EpisodeCall>,
    /// What calls usually take on this node.
    usual: UsualDurations,
    /// The headline of each pod. Some facts are in memory only; a criscope of the same version says what was said here.
    said: Vec<Said>,
    /// What it means that a pod is unknown, and what the node is like.
    notes: Vec<String>,
    /// The kubelet's relist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    relist: Option<String>,
}

/// A call in flight, written like one that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct InFlight {
    stage: String,
    call: EpisodeCall,
}

impl InFlight {
    fn new(mut call: EpisodeCall) -> Option<Self> {
        let CallState::InFlight { stage, age } = call.state else {
            return None;
        };
        call.state = CallState::Ended(Outcome {
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
        let stages = CallStage::ALL.into_iter();
        let stage = { stages }.find(|stage| stage.name() == self.stage);
        call.state = CallState::InFlight {
            stage: stage.unwrap_or(CallStage::Waiting),
            age: call.elapsed(),
        };
        call
    }
}

/// What was said of the pods of a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) headline: String,
    pub(crate) cause: String,
}

impl Said {
    fn all(stories: &Stories, calls: &[Arc<Call>]) -> Vec<Self> {
        let pods = stories.pods(calls).pods.into_iter();
        let names: BTreeSet<_> = pods.map(|pod| (pod.namespace, pod.name)).collect();
        let said = names.into_iter().filter_map(|(namespace, name)| {
            let story = stories.pod_story(&namespace, &name, None, calls)?;
            Some(Self {
                namespace,
                name,
                headline: story.headline,
                cause: story.cause,
            })
        });
        said.collect()
    }
}

/// The present of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) now: u64,
    pub(crate) in_flight: Vec<EpisodeCall>,
    pub(crate) notes: Vec<String>,
    said: Vec<Said>,
}

impl Captured {
    /// What was said of the pods of this name.
    pub(crate) fn said(&self, namespace: &str, name: &str) -> Option<&Said> {
        let mut said = self.said.iter();
        said.find(|it| it.namespace == namespace && it.name == name)
    }
}

impl Snapshot {
    /// What `stories` know now, with these calls in flight.
    pub fn of(stories: &Stories, calls: &[Arc<Call>], state_dir: &Path) -> Self {
        let in_flight = stories.in_flight(calls).into_iter();
        let said = Said::all(stories, calls);
        let store = stories.store();
        let (limits, slow) = store.settings();
        let calls = store.episodes().flat_map(|episode| &episode.calls);
        let is_span = |call: &&EpisodeCall| {
            let mut work = call.work.iter();
            work.any(|work| work.kind == WorkKind::Runtime && !work.own)
        };
        let with_spans = calls.filter(is_span).cloned().collect();
        let usual = store.usual.clone();
        drop(store);
        Self {
            now_unix_us: unix_micros(SystemTime::now()),
            state_dir: state_dir.to_owned(),
            episodes: limits.episodes,
            quiet_us: limits.quiet,
            slow_us: micros_of(slow),
            give_up_us: limits.give_up,
            in_flight: in_flight.filter_map(InFlight::new).collect(),
            with_spans,
            usual,
            said,
            notes: stories.about_unknown(),
            relist: stories.relist().map(|state| state.to_string()),
        }
    }

    /// What is left in `settings.state_dir` of a process that has ended, until the last line of its `journal`. Blocks.
    pub fn left(settings: &settings::StorySettings, journal: [&[u8]; 2]) -> Self {
        let stories = Stories::new(settings, Arc::default());
        let mut snapshot = Self::of(&stories, &[], &settings.state_dir);
        let replayed = journal::replay_lines(journal, &stories.store, |call| call);
        snapshot.now_unix_us = match replayed.last {
            0 => snapshot.now_unix_us,
            last => last,
        };
        // Without it nothing is usual.
        snapshot.usual = usual::load(&settings.state_dir).unwrap_or_default();
        snapshot.notes = vec!["criscope was not running when this capture was made".to_owned()];
        snapshot
    }

    /// Adds a call in flight.
    #[cfg(test)]
    pub(super) fn put_in_flight(&mut self, call: EpisodeCall) {
        self.in_flight.extend(InFlight::new(call));
    }

    /// Leaves out other pods' calls.
    pub(super) fn keep_pod(&mut self, namespace: &str, name: &str) {
        let is_it = |call: &EpisodeCall| {
            let pod = call.pod.as_deref();
            pod.is_some_and(|pod| *pod.namespace == *namespace && *pod.name == *name)
        };
        self.said
            .retain(|it| it.namespace == namespace && it.name == name);
        self.in_flight.retain(|it| is_it(&it.call));
        self.with_spans.retain(is_it);
    }

    fn settings(&self) -> settings::StorySettings {
        settings::StorySettings {
            state_dir: self.state_dir.clone(),
            episodes: self.episodes,
            quiet: Duration::from_micros(self.quiet_us),
            slow: Duration::from_micros(self.slow_us),
            give_up: Duration::from_micros(self.give_up_us),
            // Of another machine.
            kubelet_dir: PathBuf::new(),
        }
    }
}

impl Bundle {
    /// The stories as they were when it was made. Blocks.
    pub fn stories(&self) -> Stories {
        let snapshot = &self.snapshot;
        let mut stories = Stories::new(&snapshot.settings(), Arc::default());
        stories.store().usual.restore(snapshot.usual.clone());
        let key = |call: &EpisodeCall| (call.seq, call.began_us());
        let with_spans = snapshot.with_spans.iter().map(|call| (key(call), call));
        let with_spans: HashMap<_, _> = with_spans.collect();
        let [older, newer] = &self.journal;
        journal::replay_lines([older, newer], &stories.store, |call| {
            with_spans.get(&key(&call)).map_or(call, |it| (*it).clone())
        });
        let now = snapshot.now_unix_us;
        let in_flight: Vec<_> = snapshot.in_flight.iter().map(InFlight::call).collect();
        {
            let mut store = stories.store();
            let first = store.episodes().next().map(|episode| episode.began);
            store.watch_since(first.unwrap_or(now));
            store.tick(now, &in_flight);
        }
        stories.captured = Some(Captured {
            now,
            in_flight,
            notes: snapshot.notes.clone(),
            said: match self.manifest.criscope == version::with_commit() {
                true => snapshot.said.clone(),
                false => Vec::new(),
            },
        });
        stories
    }
}
