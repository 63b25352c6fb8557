//! Checks the node once a second, and compares it with the facts that held before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};

use super::oom::OomKillCounter;
use super::pressure::PressureSample;
use super::{
    AliveFile, BackendState, BypassFiles, ImageFilesystem, NodeBoot, NodeFact, NodeFactKind,
    NodeSource, UnansweredPoll,
};
use crate::process_scanner::describe_blocked_process;
use criscope_cri::units::times::UnixMicros;

/// The kernel's counters. Reading them takes some microseconds.
const VMSTAT_PATH: &str = "/proc/vmstat";

/// A kubelet that restarts connects again within this time.
const KUBELET_RECONNECT_TIME: Duration = Duration::from_secs(10);

/// A kubelet without a call for this long is silent: it lists sandboxes every second.
const KUBELET_SILENT_AFTER: Duration = Duration::from_secs(10);

/// Number of checks in a row that must find a kubelet silent.
const MIN_SILENT_CHECKS: u32 = 3;

/// A gap this long between checks means that criscope was stalled. Checks are a second apart.
const STALL_THRESHOLD: Duration = Duration::from_secs(5);

/// Number of checks between two writes of the alive file, while no call runs for long.
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
    /// Time since which criscope is bypassed.
    pub(crate) bypassed_since: Option<UnixMicros>,
    pub(crate) backends: Vec<BackendState>,
    /// The filesystems of images, by backend.
    pub(crate) disks: BackendDisks,
}

/// Watches the state of the node.
#[derive(Debug)]
pub(crate) struct NodeWatch {
    source: Arc<dyn NodeSource>,
    alive: Option<AliveFile>,
    pub(crate) bypass: BypassFiles,
    pressure: PathBuf,
    oom_kills: OomKillCounter,
    checks: u64,
    /// Time of the last check. The monotonic clock does not take a step of the wall clock for a stall.
    checked: Option<Instant>,
    pub(crate) status: NodeStatus,
    /// Time at which a kubelet was last connected.
    kubelet_at: UnixMicros,
    /// Set while calls run that would be lost with this process: then its end shall be known to a second.
    pub(crate) has_running_calls: bool,
    /// Time at which a kubelet last made a call; `None` while it need not make any.
    kubelet_called_at: Option<UnixMicros>,
    /// Number of checks in a row that found the kubelet silent.
    silent_checks: u32,
    /// Set if a kubelet was connected to this process.
    has_seen_kubelet: bool,
    writing: Option<JoinHandle<()>>,
    reading: Option<JoinHandle<BackendDisks>>,
}

impl NodeWatch {
    /// A watch of `source`, which writes its time to `alive`.
    pub(crate) fn new(source: Arc<dyn NodeSource>, alive: Option<AliveFile>) -> Self {
        Self {
            source,
            alive,
            bypass: BypassFiles::default(),
            pressure: Path::new("/proc/pressure").to_owned(),
            oom_kills: OomKillCounter::default(),
            checks: 0,
            checked: None,
            status: NodeStatus::default(),
            kubelet_at: UnixMicros::EPOCH,
            has_running_calls: false,
            kubelet_called_at: None,
            silent_checks: 0,
            has_seen_kubelet: false,
            writing: None,
            reading: None,
        }
    }

    /// Reads of bypasses in these files.
    pub(crate) fn with_bypass(self, bypass: BypassFiles) -> Self {
        Self { bypass, ..self }
    }

    /// Begins at `now`. `kubelet` is set if a kubelet called an earlier process.
    pub(crate) fn begin(&mut self, now: UnixMicros, kubelet: bool) {
        self.status.began = now;
        self.status.kubelet = kubelet.then_some(false);
        self.kubelet_at = now;
    }

    /// The downtime of criscope before this process began; `None` if it is unknown, or too short to matter: a short one matters if calls
    /// were lost in it. `last` is the newest time in the journal. Blocks.
    pub(crate) fn downtime(
        alive: &AliveFile,
        boot: &NodeBoot,
        last: UnixMicros,
        now: UnixMicros,
        are_calls_lost: bool,
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
        let matters = are_calls_lost || last + MIN_DOWNTIME <= now;
        (matters && last <= now).then(|| NodeFact {
            to: Some(now),
            ..NodeFact::new(kind, last, "")
        })
    }

    /// Notes when the kubelet last called, before a check; `None` if a call of it is in flight, or if it does not poll.
    pub(crate) fn set_kubelet_call(&mut self, at: Option<UnixMicros>) {
        self.kubelet_called_at = at;
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
        self.status.bypassed_since = self.bypass.since();
        let absence = self.kubelet(now);
        self.disks().await;
        self.write_time(now);
        self.checks += 1;
        let since_last = self.checked.replace(Instant::now()).map(|at| at.elapsed());
        let stalled = since_last.and_then(|since| stalled(since, now));
        self.count_silence(now, stalled.is_some());
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
        // An absence that was reported as a fact ends as that fact, and a kubelet was not away while criscope was bypassed.
        let absence = absence.filter(|absence| {
            let mut known = holding.iter();
            !known.any(|known| {
                [&absence.kind, &NodeFactKind::CriscopeBypassed].contains(&&known.kind)
            })
        });
        let past = stalled.into_iter().chain(absence);
        ended.chain(begun.cloned()).chain(past).collect()
    }

    /// The number of processes that the kernel killed for lack of memory just before `at`; `None` if they were not counted.
    pub(crate) fn oom_kills(&mut self, at: UnixMicros, now: UnixMicros) -> Option<u32> {
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
        if let Some(since) = self.status.bypassed_since {
            found.push(NodeFact::new(NodeFactKind::CriscopeBypassed, since, ""));
            // The kubelet calls the runtime without criscope.
            return found;
        }
        let missing = self.status.kubelet == Some(false);
        if let Some(at) = self.kubelet_called_at.filter(|_| self.is_silent()) {
            found.push(NodeFact::new(NodeFactKind::KubeletSilent, at, ""));
        }
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
            | NodeFactKind::KubeletSilent
            | NodeFactKind::CriscopeDown
            | NodeFactKind::CriscopeBypassed
            | NodeFactKind::NodeRestarted { .. }
            | NodeFactKind::CriscopeStalled
            | NodeFactKind::BackendHangs { .. } => false,
        }
    }

    /// Counts the checks that find a connected kubelet silent. Its calls wait while criscope is stalled, and are read after it.
    fn count_silence(&mut self, now: UnixMicros, is_stalled: bool) {
        let is_connected = self.status.kubelet == Some(true);
        let called = self
            .kubelet_called_at
            .filter(|_| is_connected && !is_stalled);
        let is_late = called.is_some_and(|at| now.since(at) >= KUBELET_SILENT_AFTER);
        self.silent_checks = if is_late { self.silent_checks + 1 } else { 0 };
    }

    fn is_silent(&self) -> bool {
        self.silent_checks >= MIN_SILENT_CHECKS
    }

    /// Notes whether a kubelet is connected. Returns the absence of a kubelet that has come back.
    fn kubelet(&mut self, now: UnixMicros) -> Option<NodeFact> {
        let before = self.status.kubelet;
        if self.source.kubelets() == 0 {
            if self.status.bypassed_since.is_some() {
                self.kubelet_at = now;
            }
            self.status.kubelet = before.map(|_| false);
            return None;
        }
        let was_away = before == Some(false) && self.has_seen_kubelet;
        let absence = was_away.then(|| NodeFact {
            to: Some(now),
            ..NodeFact::new(NodeFactKind::NoKubelet, self.kubelet_at, "")
        });
        self.status.kubelet = Some(true);
        self.has_seen_kubelet = true;
        self.kubelet_at = now;
        absence
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
        let is_due = self.has_running_calls || self.checks.is_multiple_of(CHECKS_PER_ALIVE_WRITE);
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
