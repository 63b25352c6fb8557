//! Asks the shims of containerd for the usage of containers, which may be in no cgroup of the node (gVisor, Kata Containers).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope_linux::cgroup::usage::Usage;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::timeout_at;

use crate::Runtime;
use crate::error::shown;
use crate::metrics::StatsFailure;
use crate::shim_client::{self, Shim};
use crate::stats::{now, task_metrics};
use crate::store::{Container, ContainerState, Sandbox};

/// How long a shim of containerd may take. gVisor's starts a program for each query, which takes long on a busy node.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many shims are asked at the same time. Each may start a program.
const CONCURRENT_REPORTS: usize = 8;

/// How long all queries of a call may take, if many shims hang. A shim that does not answer is then not asked for a while.
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(15);

/// The reports of shims of containerd, by container. A container that is not in it has the usage of its cgroup.
#[derive(Debug, Default)]
pub(crate) struct Reports(HashMap<String, Report>);

/// The report of a container's shim of containerd.
#[derive(Debug)]
pub(super) enum Report {
    /// The usage.
    Usage(Box<Usage>),
    /// Nothing: it did not answer. The usage of the cgroup would be that of something else, and a jump of the counters.
    Missing,
}

impl Reports {
    pub(super) fn get(&self, id: &str) -> Option<&Report> {
        self.0.get(id)
    }
}

impl Runtime {
    /// Asks the shims of containerd of these containers. Containers that an OCI runtime runs cost a look at their sandbox.
    pub(crate) async fn reports_of(self: &Arc<Self>, containers: &[Arc<Container>]) -> Reports {
        let asked = containers.iter().filter_map(|container| {
            let shim = self.reporting_shim(container)?;
            Some((container.id.clone(), shim))
        });
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return Reports::default();
        }
        let ids = asked.iter().map(|(id, _)| (id.clone(), Report::Missing));
        let mut reports = Reports(ids.collect());
        let queries = asked.into_iter().filter_map(|(id, shim)| {
            let (runtime, shim) = (Arc::clone(self), shim?);
            Some(async move {
                let report = runtime.report(&id, &shim).await;
                (id, report)
            })
        });
        let queries: Vec<_> = queries.collect();
        let mut open = queries.len();
        let deadline = tokio::time::Instant::now() + PATIENCE_FOR_ALL;
        let mut answers = stream::iter(queries).buffer_unordered(CONCURRENT_REPORTS);
        while let Ok(Some((id, report))) = timeout_at(deadline, answers.next()).await {
            open -= 1;
            match report {
                Some(report) => reports.0.insert(id, report),
                None => reports.0.remove(&id),
            };
        }
        // The shims are not paused: they may only have waited for others.
        for _ in 0..open {
            self.steps.shim_statistics_failed(StatsFailure::Timeout);
        }
        reports
    }

    /// Asks for the reports of all containers of these pods.
    pub(super) async fn reports_of_pods(self: &Arc<Self>, sandboxes: &[Arc<Sandbox>]) -> Reports {
        let with_shim = sandboxes
            .iter()
            .filter(|sandbox| sandbox.record().has_containerd_shim());
        let ids: HashSet<_> = with_shim.map(|sandbox| sandbox.id.as_str()).collect();
        if ids.is_empty() {
            return Reports::default();
        }
        let mut containers = self.store.containers.all();
        containers.retain(|container| ids.contains(container.record().sandbox.as_str()));
        self.reports_of(&containers).await
    }

    /// The shim to ask about a container, which is `None` if there is no connection to it. Outer `None` for containers that run in
    /// no shim of containerd, or in one that reports nothing.
    fn reporting_shim(&self, container: &Container) -> Option<Option<Shim>> {
        let record = container.record();
        if record.state != ContainerState::Running {
            return None;
        }
        let sandbox = self.store.sandboxes.get(&record.sandbox).ok()?;
        if !sandbox.record().has_containerd_shim() {
            return None;
        }
        match sandbox.shim() {
            Some(shim) if shim.has_no_stats() => None,
            shim => Some(shim.filter(|shim| !shim.is_gone())),
        }
    }

    /// Asks about one container. `None` if its shim reports nothing that is understood.
    async fn report(&self, id: &str, shim: &Shim) -> Option<Report> {
        use shim_client::Error;
        if self.stats_troubles.is_paused(id, Instant::now()) {
            return Some(Report::Missing);
        }
        let metrics = match shim.stats(id, REPORT_TIMEOUT).await {
            Ok(metrics) => metrics?,
            // The container ends, or has just ended, which is reported elsewhere.
            Err(Error::NotFound(_) | Error::Gone { .. } | Error::Precondition(_)) => {
                return Some(Report::Missing);
            }
            Err(error) => {
                let why = match error {
                    Error::Timeout(_) | Error::Silent { .. } => StatsFailure::Timeout,
                    _ => StatsFailure::Error,
                };
                match &error {
                    // Without a prefix about the OCI runtime.
                    Error::Timeout(text) | Error::Runtime(text) => {
                        self.report_failed(id, why, text);
                    }
                    _ => self.report_failed(id, why, &error),
                }
                return Some(Report::Missing);
            }
        };
        match task_metrics::usage(&metrics.type_url, &metrics.value) {
            Ok(usage) => {
                if self.stats_troubles.ended(id) {
                    tracing::info!(target: "criscope::runtime::usage::reports", event = "runtime.statistics", container.id = %id, "the containerd shim of a container reports its usage again");
                }
                // The time of the reading is not reported.
                usage.map(|usage| Report::Usage(Box::new(Usage { at: now(), ..usage })))
            }
            // The answer will not change.
            Err(error @ task_metrics::Error::Unknown(_)) => {
                self.steps.shim_statistics_failed(StatsFailure::Malformed);
                if shim.set_no_stats() {
                    tracing::warn!(target: "criscope::runtime::usage::reports", event = "runtime.statistics", container.id = %id, error.message = %shown(&error), "the containers of a pod have the statistics of their cgroups");
                }
                None
            }
            Err(error) => {
                self.report_failed(id, StatsFailure::Malformed, &error);
                Some(Report::Missing)
            }
        }
    }

    fn report_failed(&self, id: &str, why: StatsFailure, error: &impl std::fmt::Display) {
        self.steps.shim_statistics_failed(why);
        if self.stats_troubles.failed(id, Instant::now()) {
            tracing::warn!(target: "criscope::runtime::usage::reports", event = "runtime.statistics", container.id = %id, error.message = %shown(error), "a container has no statistics until its containerd shim reports them");
        }
    }
}
