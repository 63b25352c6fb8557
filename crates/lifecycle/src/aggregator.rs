//! Applies ended calls to the episode store, closes episodes and reports them. A task of the side thread.

mod container_events;
mod handover;
mod journaling;
mod kubelet_dir;
mod kubelet_work;
mod node;
mod running_calls;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use tokio::sync::mpsc::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::container_events::ContainerEventState;
use self::handover::HandoverState;
use self::kubelet_dir::KubeletReads;
use self::running_calls::RunningCalls;
use super::episode_call::EpisodeCall;
use super::episode_store::{CallEffect, DueReport, Episode};
use super::journal::{JournalLine, JournalWriter};
use super::kubelet::execs;
use super::metrics::StoryMetrics;
use super::node::{AliveFile, BypassFiles, NodeBoot, NodeSource, NodeWatch};
use super::pod_dirs::KnownPodDirs;
use super::usual::UsualFile;
use super::{AggregatorEvent, EpisodeSubscriber, Stories, summary};
use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_cri::call::CallRecord;
use criscope_cri::call::episode::is_episodic;
use criscope_cri::call::steps::RuntimeSteps;
use criscope_cri::units::times::{UnixMicros, millis};
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;
use criscope_telemetry::registry::{Registry, RegistryError};

/// Interval between two checks for episodes that are over.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the calls in flight.
pub type CallsInFlight = Arc<dyn Fn() -> Vec<Arc<Call>> + Send + Sync>;

/// Reads the wall clock.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Inputs and outputs of an aggregator.
pub struct AggregatorParts {
    /// The store that it writes.
    pub stories: Arc<Stories>,
    /// Events from the call sink, the OTLP receiver and the streaming server.
    pub events: Receiver<AggregatorEvent>,
    /// The calls in flight.
    pub in_flight: CallsInFlight,
    /// The directory of the journal; `None` for none.
    pub state_dir: Option<PathBuf>,
    /// The kubelet's directory; `None` if it is not read.
    pub kubelet_dir: Option<PathBuf>,
    /// Counters of dropped data.
    pub drops: Arc<Drops>,
    /// Receives closed episodes, in addition to metrics and log.
    pub subscriber: Option<Arc<dyn EpisodeSubscriber>>,
    /// The state of the node.
    pub node: Arc<dyn NodeSource>,
    /// The files that tell of a bypass.
    pub bypass: BypassFiles,
    /// The wall clock.
    pub clock: WallClock,
}

impl fmt::Debug for AggregatorParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("state_dir", &self.state_dir)
            .finish_non_exhaustive()
    }
}

/// Applies ended calls to the episode store, closes episodes and reports them.
#[derive(Debug)]
pub struct Aggregator {
    parts: AggregatorParts,
    metrics: StoryMetrics,
    journal: Option<JournalWriter>,
    usual: Option<UsualFile>,
    watch: NodeWatch,
    alive: Option<AliveFile>,
    boot: NodeBoot,
    /// The newest time in the journal at the start; the epoch without one.
    journal_until: UnixMicros,
    /// Exits before this are not counted: an earlier process counted them, or they are too old.
    counts_from: UnixMicros,
    container_events: ContainerEventState,
    pod_dirs: KnownPodDirs,
    running: RunningCalls,
    handover: HandoverState,
    looks_for_waiting: u64,
    kubelet_reads: KubeletReads,
    /// The end of the last call of a kubelet that changes something.
    kubelet_called: UnixMicros,
}

impl Aggregator {
    /// Creates an aggregator; [`Aggregator::run`] starts it.
    ///
    /// # Errors
    /// If its metrics are registered already.
    pub fn new(parts: AggregatorParts, registry: &Registry) -> Result<Self, RegistryError> {
        let boot = NodeBoot::read();
        let alive = parts.state_dir.as_deref();
        let alive = alive.map(|dir| AliveFile::new(dir, &boot.id));
        Ok(Self {
            metrics: StoryMetrics::new(registry, &parts.stories, &parts.in_flight)?,
            watch: NodeWatch::new(Arc::clone(&parts.node), alive.clone())
                .with_bypass(parts.bypass.clone()),
            alive,
            boot,
            handover: HandoverState::begin(parts.state_dir.clone()),
            parts,
            journal_until: UnixMicros::EPOCH,
            journal: None,
            usual: None,
            counts_from: UnixMicros::EPOCH,
            container_events: ContainerEventState::default(),
            pod_dirs: KnownPodDirs::default(),
            running: RunningCalls::default(),
            looks_for_waiting: 0,
            kubelet_reads: KubeletReads::default(),
            kubelet_called: UnixMicros::EPOCH,
        })
    }

    /// Runs until `stop`, then applies the queued events and flushes the journal.
    pub async fn run(mut self, stop: CancellationToken) {
        self.guarded(Self::begin).await;
        self.guarded(Self::begin_node).await;
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.parts.events.recv() => match event {
                    Some(event) => self.handle_guarded(event).await,
                    None => break,
                },
                () = self.handover.steps.begun.cancelled(), if !self.handover.is_left => {
                    self.hand_over().await;
                }
                _ = ticks.tick() => {
                    if self.handover.is_left {
                        self.guarded(Self::tick_after_handover).await;
                        continue;
                    }
                    self.guarded(Self::look_at_node).await;
                    self.guarded(Self::tick).await;
                }
            }
        }
        while let Ok(event) = self.parts.events.try_recv() {
            self.handle_guarded(event).await;
        }
        if !self.handover.is_left {
            self.guarded(Self::end_node).await;
            self.count_settled(UnixMicros::MAX);
            self.write_last_lines();
        }
        if let Some(journal) = self.journal.take() {
            // Joining fails only if the journal's thread panicked.
            let _ = spawn_blocking(move || journal.close()).await;
        }
        self.end_handover();
        if let Some(usual) = self.usual.take() {
            usual.close(&self.parts.stories).await;
        }
    }

    async fn handle_guarded(&mut self, event: AggregatorEvent) {
        self.guarded(async |aggregator: &mut Self| aggregator.handle_event(event))
            .await;
    }

    /// Does a piece of work. A defect in it costs one event or one check, not all stories from then on: a panic is counted
    /// and logged, without its message, which may quote secrets.
    async fn guarded(&mut self, work: impl AsyncFnOnce(&mut Self)) {
        // The store recovers from a poisoned lock. A half applied event spoils one episode, which is evicted like any other.
        let done = AssertUnwindSafe(work(self)).catch_unwind().await;
        if done.is_err() {
            self.panicked("a panic in the aggregator: a story may be incomplete");
        }
    }

    fn panicked(&self, message: &str) {
        self.parts.drops.add(DropReason::StoryPanic, 1);
        tracing::error!(target: "criscope::lifecycle", event = "story.panic", "{message}");
    }

    fn now(&self) -> UnixMicros {
        UnixMicros::from((self.parts.clock)())
    }

    fn handle_event(&mut self, event: AggregatorEvent) {
        if self.handover.is_left && !matches!(event, AggregatorEvent::Ended(..)) {
            return;
        }
        let (record, steps) = match event {
            AggregatorEvent::Ended(record, steps) => (record, steps),
            AggregatorEvent::Spans(spans) => {
                let mut store = self.parts.stories.store();
                return spans.into_iter().for_each(|span| store.add_span(span));
            }
            AggregatorEvent::Syncs(spans) => {
                return spans.into_iter().for_each(|span| self.sync(span));
            }
            AggregatorEvent::Polled(poll) => {
                let took = self.parts.stories.relists().note(poll);
                return took.into_iter().for_each(|took| self.metrics.relist(took));
            }
            AggregatorEvent::ImageLookup(found) => return self.image_lookup(&found),
            AggregatorEvent::Container(event) => return self.container_event(&event),
            AggregatorEvent::SessionBegan(open) => {
                return self.parts.stories.sessions().begin(*open);
            }
            AggregatorEvent::SessionEnded(number, session) => {
                let session = session.map(|session| *session);
                return self.parts.stories.sessions().end(number, session);
            }
        };
        if record.peer.is_kubelet() {
            self.kubelet_called = self.kubelet_called.max(record.ended_at());
            self.parts
                .stories
                .store()
                .programs
                .set_kubelet(&record.peer);
        }
        let is_news = record.facts.new_limits().is_some();
        let is_told = is_episodic(record.method) || record.method.checkpoints();
        if is_news || is_told || execs::is_hook(&record) {
            self.call(record, steps.as_deref());
        } else if execs::is_probe(&record) {
            // The next process counts on from the numbers that were handed over.
            if !self.handover.is_left {
                self.probe(&record);
            }
        } else if matches!(record.method, Method::ExecSync | Method::Exec) {
            self.intervention(record);
        } else {
            self.container_status(&record);
        }
    }

    fn call(&mut self, record: Arc<CallRecord>, steps: Option<&RuntimeSteps>) {
        let observations = self.parts.stories.observations();
        let scanned = observations.is_scanned_since(record.began);
        let seen = observations.take(record.seq);
        let mut call = EpisodeCall::new(record, seen, steps).scanned(scanned);
        // A journal line names its pod, also if only the store knew it.
        self.parts.stories.store().observe(&mut call);
        let applied = self.parts.stories.store().apply(call.clone());
        if applied != CallEffect::Nothing {
            self.write(JournalLine::call(&call));
        }
        self.report_call(&call, applied);
    }

    /// Reports what an ended call has changed; after a handover the next process does.
    fn report_call(&mut self, call: &EpisodeCall, applied: CallEffect) {
        if self.handover.is_left {
            return;
        }
        if let CallEffect::PartOf(number) = applied {
            let store = self.parts.stories.store();
            if let Some(episode) = store.get(number) {
                self.metrics.call(episode, call);
            }
        }
        if call.is_bad() {
            self.report_failing(call.ended_at());
        }
        self.report_closed();
    }

    async fn tick(&mut self) {
        self.read_predecessors().await;
        self.read_containers().await;
        let now = self.now();
        self.look_for_deleted(now).await;
        self.look_for_kept(now).await;
        let calls = (self.parts.in_flight)();
        self.watch_relist(&calls, now);
        self.journal_running(&calls, now);
        self.look_for_waiting(&calls, now).await;
        self.count_settled(now);
        self.note_stops_in_flight();
        let some_open = self.parts.stories.store().open_episodes().next().is_some();
        if let Some(usual) = &mut self.usual {
            usual.tick(&self.parts.stories);
        }
        if some_open {
            let in_flight = self.parts.stories.in_flight(&calls);
            self.parts.stories.store().tick(now, &in_flight);
            self.report_failing(now);
            self.report_closed();
        }
    }

    /// Reports the episodes that keep failing, if a report is due.
    fn report_failing(&self, now: UnixMicros) {
        let due = self.parts.stories.store().take_due(now);
        for DueReport { number, root } in due {
            let mut store = self.parts.stories.store();
            let Some(episode) = store.get(number) else {
                continue;
            };
            let (shown, ids) = (store.view(episode, now), episode.ids());
            summary::write_failing(episode, &shown);
            if let Some(subscriber) = &self.parts.subscriber
                && root
                && subscriber.keeps(&shown, &ids)
            {
                subscriber.failing(&shown, &ids);
                store.note_exported(number, ids.root, shown.began_unix_us);
            }
        }
    }

    fn report_closed(&mut self) {
        let (closed, unreported) = {
            let mut store = self.parts.stories.store();
            (store.take_closed(), store.take_unreported())
        };
        self.parts.drops.add(DropReason::EpisodesFull, unreported);
        for number in closed {
            self.report(number);
        }
    }

    /// Reports a closed episode: metrics, log line, subscriber, journal.
    fn report(&mut self, number: u64) {
        let now = self.now();
        let (shown, ids, before, deleted) = {
            let mut store = self.parts.stories.store();
            let Some(episode) = store.get(number) else {
                return self.parts.drops.add(DropReason::EpisodesFull, 1);
            };
            let (shown, ids) = (store.view(episode, now), episode.ids());
            let subscriber = self.parts.subscriber.as_ref();
            let exported = subscriber.is_some_and(|subscriber| subscriber.keeps(&shown, &ids));
            self.metrics
                .closed(episode, exported.then_some(ids.trace_id));
            summary::write(episode, &shown);
            let (before, ended) = (episode.exported(ids.root), episode.ended);
            let deleted = episode.deleted;
            if exported {
                store.note_exported(number, ids.root, ended);
            }
            (shown, ids, before, deleted)
        };
        self.parts.stories.store().learn(number);
        match (&self.parts.subscriber, before) {
            (Some(subscriber), Some(until)) => {
                let from = millis(until.since(shown.began_unix_us));
                subscriber.continued(&shown, &ids, from);
            }
            (Some(subscriber), None) => subscriber.closed(&shown, &ids),
            (None, _) => {}
        }
        let pressure = self
            .parts
            .stories
            .store()
            .get(number)
            .and_then(Episode::scarcity);
        self.write(pressure.map(|pressure| JournalLine::pressure(ids.root, pressure)));
        let line = JournalLine::closed(ids.root, shown.state, now, deleted);
        self.write(Some(line));
    }
}

#[cfg(test)]
mod tests;
