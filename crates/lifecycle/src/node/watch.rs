//! Checks the node once a second, and compares it with the facts that held before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};

use super::oom::OomKillCounter;
use super::pressure::PressureSample;
use super::{
    AliveFile, BackendState, ImageFilesystem, NodeBoot, NodeFact, NodeFactKind, NodeSource,
    UnansweredPoll,
};
use crate::process_scanner::describe_blocked_process;
use criscope_cri::units::times::UnixMicros;

/// The kernel's counters. Reading them takes some microseconds.
const VMSTAT_PATH: &str = "/proc/vmstat";

/// A kubelet that restarts connects again within this time.
const KUBELET_RECONNECT_TIME: Duration = Duration::from_secs(10);

/// A gap this long between checks means that criscope was stalled. Checks are a second apart.
const STALL_THRESHOLD: Duration = Duration::from_secs(5);

/// Number of checks between two writes of the alive file.
const CHECKS_PER_ALIVE_WRITE: u64 = 5;

/// Number of checks between two reads of the disks.
const CHECKS_PER_DISK_READ: u64 = 30;

/// Number of checks between two samples of pressure while an episode is open.
const CHECKS_PER_SAMPLE: u64 = 2;

/// Number of checks between two samples of pressure while no episode is open.
const CHECKS_PER_IDLE_SAMPLE: u64 = 10;

/// Shorter downtimes of criscope do not matter.
const MIN_DOWNTIME: Duration = Duration::from_secs(1);

/// Filesystems by backend.
type BackendDisks = Vec<(Arc<str>, ImageFilesystem)>;

/// The state of the node at the last check, for metrics and pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeStatus {
    /// Time of the first check of this process.
    pub(crate) began: UnixMicros,
    /// Set to whether a kubelet is connected; `None` if none was ever seen.
    pub(crate) kubelet: Option<bool>,
    pub(crate) backends: Vec<BackendState>,
    /// The filesystems of images, by backend.
    pub(crate) disks: BackendDisks,
}

/// Watches the state of the node.
#[derive(Debug)]
pub(crate) struct NodeWatch {
    source: Arc<dyn NodeSource>,
    alive: Option<AliveFile>,
    pressure: PathBuf,
    oom_kills: OomKillCounter,
    checks: u64,
    /// Time of the last check. The monotonic clock does not take a step of the wall clock for a stall.
    checked: Option<Instant>,
    pub(crate) status: NodeStatus,
    /// Time at which a kubelet was last connected.
    kubelet_at: UnixMicros,
    writing: Option<JoinHandle<()>>,
    reading: Option<JoinHandle<BackendDisks>>,
}

impl NodeWatch {
    /// A watch of `source`, which writes its time to `alive`.
    pub(crate) fn new(source: Arc<dyn NodeSource>, alive: Option<AliveFile>) -> Self {
        Self {
            source,
            alive,
            pressure: Path::new("/proc/pressure").to_owned(),
            oom_kills: OomKillCounter::default(),
            checks: 0,
            checked: None,
            status: NodeStatus::default(),
            kubelet_at: UnixMicros::EPOCH,
            writing: None,
            reading: None,
        }
    }

    /// Begins at `now`. `kubelet` is set if a kubelet called an earlier process.
    pub(crate) fn begin(&mut self, now: UnixMicros, kubelet: bool) {
        self.status.began = now;
        self.status.kubelet = kubelet.then_some(false);
        self.kubelet_at = now;
    }

    /// The downtime of criscope before this process began; `None` if it is unknown or too short to matter. `last` is the newest
    /// time in the journal. Blocks.
    pub(crate) fn downtime(
        alive: &AliveFile,
        boot: &NodeBoot,
        last: UnixMicros,
        now: UnixMicros,
    ) -> Option<NodeFact> {
        let before = alive.read()?;
        let last = before.at.max(last);
        let is_restarted = ![&*before.boot, ""].contains(&&*boot.id) && !before.boot.is_empty();
        let kind = if is_restarted {
            // The clock may have been set after the boot.
            NodeFactKind::NodeRestarted {
                booted: boot.at.min(now).max(last),
            }
        } else {
            NodeFactKind::CriscopeDown
        };
        (last + MIN_DOWNTIME <= now).then(|| NodeFact {
            to: Some(now),
            ..NodeFact::new(kind, last, "")
        })
    }

    /// Checks the node. Returns the facts that began or ended since the last check; `holding` are the facts that held then.
    pub(crate) async fn check(
        &mut self,
        now: UnixMicros,
        holding: &[NodeFact],
        polls: &[UnansweredPoll],
    ) -> Vec<NodeFact> {
        self.status.backends = self.source.backends();
        self.oom_kills.sample(Path::new(VMSTAT_PATH), now);
        self.kubelet(now);
        self.disks().await;
        self.write_time(now);
        self.checks += 1;
        let since_last = self.checked.replace(Instant::now()).map(|at| at.elapsed());
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

    /// The number of processes that the kernel killed for lack of memory just before `at`.
    pub(crate) fn oom_kills(&mut self, at: UnixMicros, now: UnixMicros) -> u32 {
        self.oom_kills.sample(Path::new(VMSTAT_PATH), now);
        self.oom_kills.before(at)
    }

    /// Reads the pressure, if a sample is due. `is_busy` is set while an episode is open.
    pub(crate) fn sample(&self, now: UnixMicros, is_busy: bool) -> Option<PressureSample> {
        let checks = if is_busy {
            CHECKS_PER_SAMPLE
        } else {
            CHECKS_PER_IDLE_SAMPLE
        };
        let due = self.checks.is_multiple_of(checks);
        due.then(|| PressureSample::read(&self.pressure, now))?
    }

    /// The facts that hold now.
    fn found(&self, now: UnixMicros, holding: &[NodeFact]) -> Vec<NodeFact> {
        let mut found = Vec::new();
        for backend in &self.status.backends {
            if backend.up == Some(false) {
                let since = backend.since.map_or(now, UnixMicros::from);
                let kind = NodeFactKind::BackendDown {
                    backend: backend.name.to_string(),
                };
                let reason = with_blocked_process(Some(backend), &kind, holding, &backend.reason);
                found.push(NodeFact::new(kind, since, &reason));
            }
            for condition in &backend.not_ready {
                let kind = NodeFactKind::NotReady {
                    backend: backend.name.to_string(),
                    condition: condition.condition.clone(),
                };
                let since = UnixMicros::from(condition.since);
                found.push(NodeFact::new(kind, since, &condition.reason));
            }
        }
        for (backend, fs) in &self.status.disks {
            if let Some(shortage) = fs.shortage() {
                let backend = backend.to_string();
                let kind = NodeFactKind::ImageFsFull { backend };
                found.push(NodeFact::new(kind, now, &shortage));
            }
        }
        let missing = self.status.kubelet == Some(false);
        if missing && now.since(self.kubelet_at) >= KUBELET_RECONNECT_TIME {
            found.push(NodeFact::new(NodeFactKind::NoKubelet, self.kubelet_at, ""));
        }
        found
    }

    /// The fact that a poll is not answered.
    fn hangs(&self, poll: &UnansweredPoll, holding: &[NodeFact]) -> NodeFact {
        let kind = NodeFactKind::BackendHangs {
            backend: poll.backend.to_string(),
        };
        let mut backends = self.status.backends.iter();
        let backend = backends.find(|backend| backend.name == poll.backend);
        let reason = format!("{} was not answered", poll.method.name());
        let reason = with_blocked_process(backend, &kind, holding, &reason);
        NodeFact::new(kind, poll.since, &reason)
    }

    /// Returns whether it is unknown if a fact still holds, because its backend was not probed yet.
    fn is_open_question(&self, kind: &NodeFactKind) -> bool {
        match kind {
            NodeFactKind::BackendDown { backend } | NodeFactKind::NotReady { backend, .. } => {
                let mut backends = self.status.backends.iter();
                backends.any(|known| *known.name == **backend && known.up.is_none())
            }
            NodeFactKind::ImageFsFull { backend } => {
                let mut disks = self.status.disks.iter();
                !disks.any(|(name, _)| **name == **backend)
            }
            NodeFactKind::NoKubelet
            | NodeFactKind::CriscopeDown
            | NodeFactKind::NodeRestarted { .. }
            | NodeFactKind::CriscopeStalled
            | NodeFactKind::BackendHangs { .. } => false,
        }
    }

    fn kubelet(&mut self, now: UnixMicros) {
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
        let is_due = self.checks.is_multiple_of(CHECKS_PER_DISK_READ) || paths.len() != known;
        if is_due && self.reading.is_none() && !paths.is_empty() {
            self.reading = Some(spawn_blocking(move || {
                let read = paths
                    .into_iter()
                    .filter_map(|(name, path)| Some((name, ImageFilesystem::read(&path)?)));
                read.collect()
            }));
        }
    }

    fn write_time(&mut self, now: UnixMicros) {
        let is_due = self.checks.is_multiple_of(CHECKS_PER_ALIVE_WRITE);
        let is_free = self.writing.as_ref().is_none_or(JoinHandle::is_finished);
        if let Some(alive) = self.alive.clone().filter(|_| is_due && is_free) {
            self.writing = Some(spawn_blocking(move || {
                // After a failure the next process does not know the downtime and reports none.
                let _ = alive.write(now);
            }));
        }
    }
}

/// The reason of a fact about a backend. A new fact's reason begins with the state of the backend's process, if the process is
/// blocked; a fact in `holding` has its reason already.
fn with_blocked_process(
    backend: Option<&BackendState>,
    kind: &NodeFactKind,
    holding: &[NodeFact],
    reason: &str,
) -> String {
    let is_new = !holding.iter().any(|fact| fact.kind == *kind);
    let pid = backend.and_then(|backend| backend.pid).filter(|_| is_new);
    match pid.and_then(describe_blocked_process) {
        Some(blocked) => format!("{blocked}; {reason}"),
        None => reason.to_owned(),
    }
}

/// The stall of criscope, if the time since the last check is much longer than the second between two checks.
fn stalled(since_last: Duration, now: UnixMicros) -> Option<NodeFact> {
    (since_last >= STALL_THRESHOLD).then(|| NodeFact {
        to: Some(now),
        ..NodeFact::new(NodeFactKind::CriscopeStalled, now - since_last, "")
    })
}

#[cfg(test)]
mod tests;
