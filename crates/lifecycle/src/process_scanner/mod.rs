//! Finds the processes that work for slow calls.
//!
//! While a mutating call has been in flight for longer than `sampler.after`, `/proc` is scanned every `sampler.period`. The
//! environment of a CNI plugin names its pod, the arguments of an OCI runtime name its container, and their child processes
//! are below them. Other variables and arguments are never kept, and environments of containers are never opened.
//!
//! | module | content |
//! |---|---|
//! | [`observations`] | observed processes, by call |
//! | `scan` | one scan, and the state between scans |
//! | `processes` | the young processes of the node, and the kind of each |
//! | `target` | assigns processes to calls |
//! | `upstream` | the runtimes behind the proxy, and which of them a process works for |
//! | `blocked` | processes that cannot go on |
//! | `cni`, `oci` | recognise plugins and runtimes, parse their parameters |
//! | `proc`, `clock` | `/proc` and the clocks |

mod blocked;
mod clock;
mod cni;
pub mod metrics;
pub mod observations;
mod oci;
mod proc;
mod processes;
mod scan;
mod target;
mod upstream;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

pub(super) use self::blocked::describe_blocked_process;
use self::metrics::ScanMetrics;
pub use self::observations::{Observation, Observations, WorkKind};
use self::proc::ProcFs;
use self::scan::{ProcessScanner, ScanResult};
pub use self::upstream::{Upstream, Upstreams};
use crate::settings;
use criscope_cri::call::Call;
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

/// Returns the calls in flight, ordered by number.
pub type InFlightCalls = Arc<dyn Fn() -> Vec<Arc<Call>> + Send + Sync>;

/// CPU budget: 1/20 of a core.
const CPU_BUDGET_DIVISOR: u32 = 20;

/// Precision: 1/100 of a call's duration, or one period.
const PRECISION_DIVISOR: u32 = 100;

/// Minimum interval between two checks for slow calls.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The scanner's task.
pub struct ScannerTask {
    /// Settings: when, and how often.
    pub settings: settings::SamplerSettings,
    /// The calls in flight.
    pub calls: InFlightCalls,
    /// The runtimes behind the proxy.
    pub upstreams: Upstreams,
    /// Destination for observations.
    pub observations: Arc<Observations>,
    /// Metrics.
    pub metrics: ScanMetrics,
    /// Counter of dropped observations.
    pub drops: Arc<Drops>,
    /// `/proc`.
    pub root: PathBuf,
}

impl fmt::Debug for ScannerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The reason why scanning has stopped.
#[derive(Debug, thiserror::Error)]
enum ScannerError {
    #[error("processes of other users are hidden in {0} (hidepid)")]
    Hidden(PathBuf),
    #[error("{0}: {1}")]
    NoProc(PathBuf, #[source] io::Error),
    #[error("the scanning thread failed")]
    Thread,
}

impl ScannerTask {
    /// A scanner of this node.
    pub fn new(
        settings: settings::SamplerSettings,
        calls: InFlightCalls,
        upstreams: Upstreams,
        observations: Arc<Observations>,
        metrics: ScanMetrics,
        drops: Arc<Drops>,
    ) -> Self {
        Self {
            settings,
            calls,
            upstreams,
            observations,
            metrics,
            drops,
            root: Path::new("/proc").to_owned(),
        }
    }

    /// Scans until dropped, or until it has no permission.
    pub async fn run(self) {
        if !self.settings.enabled {
            return;
        }
        if let Err(off) = self.watch().await {
            self.metrics.enabled(false);
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "sampler.off",
                reason = %off,
                "processes are not scanned: slow calls are reported without the runtime's activity"
            );
        }
    }

    async fn watch(&self) -> Result<(), ScannerError> {
        let mut scanner = self.first_scan().await?;
        self.metrics.enabled(true);
        loop {
            let calls = (self.calls)();
            if !self.observations.is_empty() {
                self.observations
                    .retain(|seq| calls.binary_search_by_key(&seq, |c| c.seq).is_ok());
            }
            let scanned = calls.iter().filter(|c| target::is_scanned(c.method));
            let (working, pulling): (Vec<_>, Vec<_>) =
                scanned.partition(|c| target::has_workers(c.method));
            let ages: Vec<_> = working.iter().map(|call| call.age()).collect();
            let pulls = pulling.iter().map(|call| call.age());
            let oldest = ages.iter().copied().chain(pulls).max().unwrap_or_default();
            if oldest < self.settings.after {
                scanner.rest();
                tokio::time::sleep((self.settings.after - oldest).max(MIN_CHECK_INTERVAL)).await;
                continue;
            }
            let cost;
            (scanner, cost) = self.scan(scanner, calls).await?;
            tokio::time::sleep(self.pause(&ages, cost)).await;
        }
    }

    /// The pause after a scan that took `cost` of CPU time, while calls have these ages. The longer the youngest slow call has
    /// taken, the less precision is needed: a grace period is no reason to scan ten times a second.
    fn pause(&self, ages: &[Duration], cost: Duration) -> Duration {
        let after = self.settings.after;
        let youngest = ages.iter().filter(|age| **age >= after).min();
        let exact = youngest.copied().unwrap_or_default() / PRECISION_DIVISOR;
        // Another call may become slow in the meantime.
        let wanted = match youngest {
            // Only pulls are slow, and a finer look shows nothing more of them.
            None => self.settings.period.max(after),
            Some(_) => self.settings.period.max(exact.min(after)),
        };
        wanted.max(cost * (CPU_BUDGET_DIVISOR - 1))
    }

    /// Checks that other users' processes are visible.
    async fn first_scan(&self) -> Result<ProcessScanner, ScannerError> {
        let root = self.root.clone();
        let tried = spawn_blocking(move || {
            let scanner = ProcessScanner::new(ProcFs::new(&root));
            scanner.sees_others().then_some(scanner).ok_or(root)
        });
        tried
            .await
            .map_err(|_| ScannerError::Thread)?
            .map_err(ScannerError::Hidden)
    }

    /// Scans once, on a blocking thread; returns the CPU time it took.
    async fn scan(
        &self,
        mut scanner: ProcessScanner,
        calls: Vec<Arc<Call>>,
    ) -> Result<(ProcessScanner, Duration), ScannerError> {
        let was_limited = scanner.is_limited();
        scanner.set_upstreams((self.upstreams)());
        let scanned = spawn_blocking(move || {
            let begin = clock::cpu();
            let found = scanner.scan(&calls);
            (scanner, found, clock::cpu().saturating_sub(begin))
        });
        let (scanner, found, cost) = scanned.await.map_err(|_| ScannerError::Thread)?;
        let found = found.map_err(|error| ScannerError::NoProc(self.root.clone(), error))?;
        if scanner.is_limited() && !was_limited {
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "sampler.limited",
                reason = "environments of processes cannot be read (CAP_SYS_PTRACE is missing)",
                "CNI plugins are recognised by name only: they are not attributed when several calls are in flight"
            );
        }
        self.metrics.scanned(cost);
        self.report(found);
        Ok((scanner, cost))
    }

    fn report(&self, found: ScanResult) {
        for (seq, work, name) in found.new {
            tracing::debug!(
                target: "criscope::lifecycle",
                event = "sampler.seen",
                seq,
                work = work.name(),
                name = &*name,
                "a process works for a slow call"
            );
            self.metrics.seen(work);
        }
        for (seq, observations) in found.calls {
            if !self.observations.put(seq, observations) {
                self.drops.add(DropReason::ObservationsFull, 1);
            }
        }
        if let Some(at) = found.at {
            self.observations.scanned_at(at);
        }
    }
}

#[cfg(test)]
mod tests;
