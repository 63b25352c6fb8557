//! Compares the node with what is known of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};

use super::oom::OomKills;
use super::pressure::Sample;
use super::{Alive, BackendState, Boot, FactKind, ImageFs, NodeFact, NodeSource, Unanswered};
use crate::call::times::{micros_of, unix_micros};
use crate::lifecycle::process_scanner::describe_blocked_process;

/// The kernel's counters, read in some microseconds.
const VMSTAT: &str = "/proc/vmstat";

/// A kubelet that restarts is back sooner, in microseconds.
const KUBELET_PATIENCE: u64 = 10_000_000;

/// A look that comes so long after the one before was held up. They are a second apart.
const STALL: Duration = Duration::from_secs(5);

/// Looks between two writes of the time, two reads of the disks, and two samples of pressure while no episode is open.
const ALIVE_EVERY: u64 = 5;
const DISKS_EVERY: u64 = 30;
const IDLE_SAMPLE_EVERY: u64 = 10;

/// Filesystems by backend.
type Disks = Vec<(Arc<str>, ImageFs)>;

/// The state of the node at the last look, for metrics and pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeStatus {
    /// When this process began to look, in microseconds since 1970.
    pub(crate) began: u64,
    /// Whether a kubelet is connected; `None` if none was ever seen.
    pub(crate) kubelet: Option<bool>,
    pub(crate) backends: Vec<BackendState>,
    /// The filesystems of images, by backend.
    pub(crate) disks: Disks,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Watch {
    source: Arc<dyn NodeSource>,
    alive: Option<Alive>,
    pressure: PathBuf,
    oom_kills: OomKills,
    looks: u64,
    /// The last look, by the monotonic clock: a step of the wall clock is no stall.
    looked: Option<Instant>,
    pub(crate) status: NodeStatus,
    /// When the last connection of a kubelet was seen.
    kubelet_at: u64,
    writing: Option<JoinHandle<()>>,
    reading: Option<JoinHandle<Disks>>,
}

impl Watch {
    /// A watch of `source`, which writes its time to `alive`.
    pub(crate) fn new(source: Arc<dyn NodeSource>, alive: Option<Alive>) -> Self {
        Self {
            source,
            alive,
            pressure: Path::new("/proc/pressure").to_owned(),
            oom_kills: OomKills::default(),
            looks: 0,
            looked: None,
            status: NodeStatus::default(),
            kubelet_at: 0,
            writing: None,
            reading: None,
        }
    }

    /// Begins at `now`; `kubelet`: an earlier process was called by one.
    pub(crate) fn begin(&mut self, now: u64, kubelet: bool) {
        self.status.began = now;
        self.status.kubelet = kubelet.then_some(false);
        self.kubelet_at = now;
    }

    /// The time in which criscope was down before it began in this boot; `None` if that is not known or too short to matter. `last` is the
    /// newest time in the journal. Blocks.
    pub(crate) fn downtime(alive: &Alive, boot: &Boot, last: u64, now: u64) -> Option<NodeFact> {
        const LEAST: u64 = 1_000_000;
        let before = alive.read()?;
        let last = before.at.max(last);
        let is_restarted = ![&*before.boot, ""].contains(&&*boot.id) && !before.boot.is_empty();
        let kind = match is_restarted {
            // A clock that is set later may tell another time.
            true => FactKind::NodeRestarted {
                booted: boot.at.min(now).max(last),
            },
            false => FactKind::CriscopeDown,
        };
        (last.saturating_add(LEAST) <= now).then(|| NodeFact {
            to: Some(now),
            ..NodeFact::new(kind, last, "")
        })
    }

    /// Returns the facts that began or ended since the last look; `holding` are those that held then, `polls` are not
    /// answered.
    pub(crate) async fn look(
        &mut self,
        now: u64,
        holding: &[NodeFact],
        polls: &[Unanswered],
    ) -> Vec<NodeFact> {
        self.status.backends = self.source.backends();
        self.oom_kills.sample(Path::new(VMSTAT), now);
        self.kubelet(now);
        self.disks().await;
        self.write_time(now);
        self.looks += 1;
        let since_last = self.looked.replace(Instant::now()).map(|at| at.elapsed());
        let stalled = since_last.and_then(|since| stalled(since, now));
        let mut found = self.found(now, holding);
        found.extend(polls.iter().map(|poll| self.hangs(poll, holding)));
        let begun = found.iter().filter(|fact| {
            let mut known = holding.iter();
            !known.any(|known| known.kind == fact.kind)
        });
        let ended = holding.iter().filter(|known| {
            !found.iter().any(|fact| fact.kind == known.kind) && !self.is_open_question(&known.kind)
        });
        let ended = ended.map(|fact| NodeFact {
            to: Some(now),
            ..fact.clone()
        });
        ended.chain(begun.cloned()).chain(stalled).collect()
    }

    /// How many processes the kernel had just killed for lack of memory at `at`; both in microseconds since 1970.
    pub(crate) fn oom_kills(&mut self, at: u64, now: u64) -> u32 {
        self.oom_kills.sample(Path::new(VMSTAT), now);
        self.oom_kills.before(at)
    }

    /// Pressure, if it is time for a sample: each second look while an episode is open.
    pub(crate) fn sample(&self, now: u64, is_busy: bool) -> Option<Sample> {
        let every = if is_busy { 2 } else { IDLE_SAMPLE_EVERY };
        let due = self.looks.is_multiple_of(every);
        due.then(|| Sample::read(&self.pressure, now))?
    }

    /// The facts of now.
    fn found(&self, now: u64, holding: &[NodeFact]) -> Vec<NodeFact> {
        let mut found = Vec::new();
        for backend in &self.status.backends {
            let name = || backend.name.to_string();
            if backend.up == Some(false) {
                let since = backend.since.map_or(now, unix_micros);
                let kind = FactKind::BackendDown { backend: name() };
                let reason = with_holder(Some(backend), &kind, holding, &backend.reason);
                found.push(NodeFact::new(kind, since, &reason));
            }
            for it in &backend.not_ready {
                let kind = FactKind::NotReady {
                    backend: name(),
                    condition: it.condition.clone(),
                };
                found.push(NodeFact::new(kind, unix_micros(it.since), &it.reason));
            }
        }
        for (backend, fs) in &self.status.disks {
            if let Some(shortage) = fs.shortage() {
                let backend = backend.to_string();
                let kind = FactKind::ImageFsFull { backend };
                found.push(NodeFact::new(kind, now, &shortage));
            }
        }
        let missing = self.status.kubelet == Some(false);
        if missing && now.saturating_sub(self.kubelet_at) >= KUBELET_PATIENCE {
            found.push(NodeFact::new(FactKind::NoKubelet, self.kubelet_at, ""));
        }
        found
    }

    /// The fact that a poll is not answered.
    fn hangs(&self, poll: &Unanswered, holding: &[NodeFact]) -> NodeFact {
        let kind = FactKind::BackendHangs {
            backend: poll.backend.to_string(),
        };
        let mut backends = self.status.backends.iter();
        let backend = backends.find(|it| it.name == poll.backend);
        let reason = format!("{} was not answered", poll.method.name());
        let reason = with_holder(backend, &kind, holding, &reason);
        NodeFact::new(kind, poll.since, &reason)
    }

    /// Returns whether the look could not tell whether a fact still holds: its backend was not probed yet.
    fn is_open_question(&self, kind: &FactKind) -> bool {
        let of = |name: &str| {
            let mut backends = self.status.backends.iter();
            backends.any(|backend| *backend.name == *name && backend.up.is_none())
        };
        match kind {
            FactKind::BackendDown { backend } | FactKind::NotReady { backend, .. } => of(backend),
            FactKind::ImageFsFull { backend } => {
                let mut disks = self.status.disks.iter();
                !disks.any(|(name, _)| **name == **backend)
            }
            FactKind::NoKubelet
            | FactKind::CriscopeDown
            | FactKind::NodeRestarted { .. }
            | FactKind::CriscopeStalled
            | FactKind::BackendHangs { .. } => false,
        }
    }

    fn kubelet(&mut self, now: u64) {
        let before = self.status.kubelet;
        if self.source.kubelets() > 0 {
            self.status.kubelet = Some(true);
            self.kubelet_at = now;
        } else if before.is_some() {
            self.status.kubelet = Some(false);
        }
    }

    /// Takes the result of the last read, and begins the next one when it is time.
    async fn disks(&mut self) {
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            self.status.disks = reading.await.unwrap_or_default();
        }
        let paths = self.status.backends.iter().filter_map(|backend| {
            let path = backend.image_fs.clone()?;
            Some((Arc::clone(&backend.name), path))
        });
        let paths: Vec<_> = paths.collect();
        let known = self.status.disks.len();
        let is_due = self.looks.is_multiple_of(DISKS_EVERY) || paths.len() != known;
        if is_due && self.reading.is_none() && !paths.is_empty() {
            self.reading = Some(spawn_blocking(move || {
                let read = |(name, path): (_, PathBuf)| Some((name, ImageFs::read(&path)?));
                paths.into_iter().filter_map(read).collect()
            }));
        }
    }

    fn write_time(&mut self, now: u64) {
        let is_due = self.looks.is_multiple_of(ALIVE_EVERY);
        let is_free = self.writing.as_ref().is_none_or(JoinHandle::is_finished);
        if let Some(alive) = self.alive.clone().filter(|_| is_due && is_free) {
            self.writing = Some(spawn_blocking(move || {
                // The next process then does not know since when criscope was down, and reports nothing.
                let _ = alive.write(now);
            }));
        }
    }
}

/// The reason of a fact about a backend, after what holds its process up, which is read when the fact begins: of those in `holding`
/// the reason is known.
fn with_holder(
    backend: Option<&BackendState>,
    kind: &FactKind,
    holding: &[NodeFact],
    reason: &str,
) -> String {
    let is_new = !holding.iter().any(|fact| fact.kind == *kind);
    let pid = backend.and_then(|it| it.pid).filter(|_| is_new);
    match pid.and_then(describe_blocked_process) {
        Some(blocked) => format!("{blocked}; {reason}"),
        None => reason.to_owned(),
    }
}

/// The time since the last look, in which criscope got nothing done, if it is much longer than the second between two looks.
fn stalled(since_last: Duration, now: u64) -> Option<NodeFact> {
    (since_last >= STALL).then(|| NodeFact {
        to: Some(now),
        ..NodeFact::new(
            FactKind::CriscopeStalled,
            now.saturating_sub(micros_of(since_last)),
            "",
        )
    })
}

#[cfg(test)]
mod tests;
