//! Applies ended calls to the episode store, closes episodes and reports them. A task of the side thread.

mod container_events;
mod kubelet_dir;
mod node;

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
use super::episode_call::EpisodeCall;
use super::episode_store::{CallEffect, DueReport, ExitChange, ExitRecord};
use super::journal::{self, JournalFiles, JournalLine, JournalWriter, ReplayResult};
use super::kubelet::execs;
use super::kubelet::relist::{self, KubeletPoll};
use super::metrics::StoryMetrics;
use super::node::{AliveFile, NodeBoot, NodeSource, NodeWatch};
use super::pod_dirs::KnownPodDirs;
use super::usual::UsualFile;
use super::{AggregatorEvent, EpisodeSubscriber, Stories, summary};
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
            metrics: StoryMetrics::new(registry, &parts.stories)?,
            watch: NodeWatch::new(Arc::clone(&parts.node), alive.clone()),
            alive,
            boot,
            parts,
            journal_until: UnixMicros::EPOCH,
            journal: None,
            usual: None,
            counts_from: UnixMicros::EPOCH,
            container_events: ContainerEventState::default(),
            pod_dirs: KnownPodDirs::default(),
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
                _ = ticks.tick() => {
                    self.guarded(Self::look_at_node).await;
                    self.guarded(Self::tick).await;
                }
            }
        }
        while let Ok(event) = self.parts.events.try_recv() {
            self.handle_guarded(event).await;
        }
        self.guarded(Self::end_node).await;
        self.count_settled(UnixMicros::MAX);
        if let Some(journal) = self.journal.take() {
            // Joining fails only if the journal's thread panicked.
            let _ = spawn_blocking(move || journal.close()).await;
        }
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

    /// Replays the journal and opens it for writing.
    async fn begin(&mut self) {
        self.counts_from = self.now();
        self.parts.stories.store().set_boot(self.boot.at);
        let Some(dir) = self.parts.state_dir.clone() else {
            return self.parts.stories.store().watch_since(self.counts_from);
        };
        self.usual = Some(UsualFile::load(&dir, &self.parts.stories).await);
        let files = JournalFiles::new(&dir);
        let stories = Arc::clone(&self.parts.stories);
        let replayed = spawn_blocking({
            let files = files.clone();
            move || replay(&files, &stories)
        });
        // Lines that were read before a panic stay; new lines are appended to the journal.
        let replayed = replayed.await.unwrap_or_else(|error| {
            if error.is_panic() {
                self.panicked("a panic while the journal was read: earlier stories are incomplete");
            }
            ReplayResult::default()
        });
        self.journal_until = replayed.last;
        let began = self.counts_from;
        if replayed.last > UnixMicros::EPOCH {
            self.counts_from = self.counts_from.min(replayed.last);
        }
        {
            let mut store = self.parts.stories.store();
            let first = store.episodes().next().map(|episode| episode.began);
            store.watch_since(first.unwrap_or(began).min(began));
        }
        let damaged = replayed.damaged;
        self.parts.drops.add(DropReason::JournalDamaged, damaged);
        self.journal = start_journal(files, &self.parts.drops);
        for number in replayed.unreported {
            self.report(number);
        }
    }

    fn handle_event(&mut self, event: AggregatorEvent) {
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
            AggregatorEvent::NoImage(found) => {
                return self.parts.stories.store().note_no_image(found);
            }
            AggregatorEvent::Container(event) => return self.container_event(&event),
            AggregatorEvent::SessionBegan(open) => {
                return self.parts.stories.sessions().begin(*open);
            }
            AggregatorEvent::SessionEnded(number, session) => {
                let session = session.map(|session| *session);
                return self.parts.stories.sessions().end(number, session);
            }
        };
        if is_episodic(record.method) || execs::is_hook(&record) {
            self.call(record, steps.as_deref());
        } else if execs::is_probe(&record) {
            self.parts.stories.store().note_probe(&record);
        } else {
            self.container_status(&record);
        }
    }

    fn call(&mut self, record: Arc<CallRecord>, steps: Option<&RuntimeSteps>) {
        let observations = self.parts.stories.observations();
        let scanned = observations.is_scanned_since(record.began);
        let seen = observations.take(record.seq);
        let mut call = EpisodeCall::new(record, seen, steps).scanned(scanned);
        let applied = {
            let mut store = self.parts.stories.store();
            // A journal line names its pod, also if only the store knew it.
            store.observe(&mut call);
            store.apply(call.clone())
        };
        if applied != CallEffect::Nothing {
            self.write(JournalLine::call(&call));
        }
        if let CallEffect::PartOf(number) = applied {
            let kind = self.parts.stories.store().get(number).map(|t| t.kind);
            if let Some(kind) = kind {
                self.metrics.call(kind, &call);
            }
        }
        if call.is_bad() {
            self.report_failing(call.ended_at());
        }
        self.report_closed();
    }

    /// Records the exit of the container in a ContainerStatus, if it is new.
    fn container_status(&mut self, record: &CallRecord) {
        let (Some(state), Some(pod), Some(container)) =
            (&record.container_state, &record.pod, &record.container)
        else {
            return;
        };
        let Some(exit) = &state.exit else { return };
        let id = record.container_id.as_deref();
        let mut ended = ExitRecord::new(container, state.started_at, exit);
        if ended.code != 0 {
            let now = self.now();
            let kills = self.watch.oom_kills(ended.at, now);
            let store = self.parts.stories.store();
            ended.oom_kills = store.unattributed_oom_kills(kills, ended.at);
        }
        let noted = self.parts.stories.store().note_exit(pod, id, ended.clone());
        if noted != ExitChange::Nothing {
            self.write(Some(JournalLine::exit(pod, id, &ended)));
        }
        if noted == ExitChange::New && ended.at >= self.counts_from {
            self.metrics.exit(&ended);
        }
    }

    /// Reports the kubelet's relist when it takes unusually long.
    fn watch_relist(&self, calls: &[Arc<Call>], now: UnixMicros) {
        let polls = calls.iter().filter(|call| relist::is_poll(call.method));
        let polls = polls.filter_map(|call| KubeletPoll::from_record(&CallRecord::in_flight(call)));
        let slow = self.parts.stories.relists().tick(now, polls.collect());
        if let Some(state) = slow {
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "kubelet.relist.slow",
                since_ms = millis(state.since),
                "{state}"
            );
        }
    }

    async fn tick(&mut self) {
        self.read_containers().await;
        let now = self.now();
        self.look_for_deleted(now).await;
        let calls = (self.parts.in_flight)();
        self.watch_relist(&calls, now);
        self.count_settled(now);
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
        let line = JournalLine::closed(ids.root, shown.state, now, deleted);
        self.write(Some(line));
    }

    fn write(&self, line: Option<JournalLine<'_>>) {
        if let (Some(journal), Some(line)) = (&self.journal, line) {
            journal.write(&line);
        }
    }
}

/// Replays the journal. Blocks.
fn replay(files: &JournalFiles, stories: &Stories) -> ReplayResult {
    let (replayed, result) = journal::replay(files, &stories.store);
    if let Err(error) = result {
        tracing::warn!(
            target: "criscope::lifecycle",
            event = "story.journal",
            file.directory = %files.dir.display(),
            error.message = %error,
            "the journal cannot be read: stories start empty"
        );
    }
    if replayed.damaged > 0 {
        tracing::warn!(
            target: "criscope::lifecycle",
            event = "story.journal",
            file.directory = %files.dir.display(),
            lines = replayed.lines,
            damaged = replayed.damaged,
            "damaged lines of the journal were skipped"
        );
    }
    replayed
}

fn start_journal(files: JournalFiles, drops: &Arc<Drops>) -> Option<JournalWriter> {
    match JournalWriter::start(files, drops) {
        Ok(journal) => Some(journal),
        Err(error) => {
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "story.journal",
                error.message = %error,
                "no thread for the journal: stories will not survive a restart"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests;
