//! Exec probes of containers, and which of them led to a kill.
//!
//! The commands themselves are not read. Two probes of a container are told apart by the size of their requests and their timeouts;
//! if these are equal, by when they run (`rhythm`). If they run at the same time, their results are as one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::failed::{FailedProbe, KillEvidence};
use self::rhythm::TwoProbeSeries;
use super::execs::{ExecResult, error_words, timeout};
use super::hanging_probe;
use crate::view;
use criscope_cri::call::CallRecord;
use criscope_cri::units::times::{self, UnixMicros, micros_of, millis};

/// Most containers whose probes are remembered; a node runs some hundred.
const MAX_PROBED_CONTAINERS: usize = 1024;
/// Most probes per container: a liveness, a readiness and a startup probe, and one after a change.
const MAX_PROBES_PER_CONTAINER: usize = 4;
/// Most results per probe.
const MAX_RESULTS_PER_PROBE: usize = 8;
/// The kubelet stops a container, or begins its preStop hook, this soon after the probe that failed once too often.
const STOP_FOLLOWS_PROBE_WITHIN: Duration = Duration::from_secs(2);
/// A preStop hook other than exec takes up to this time: the grace period by default.
const MAX_PRE_STOP_HOOK: Duration = Duration::from_secs(30);
/// How late the kubelet may run a probe.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(1);

/// A run of a probe.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ProbeRun {
    began: UnixMicros,
    ended: UnixMicros,
    result: ExecResult,
}

impl ProbeRun {
    /// Returns whether it counts as a failure. The kubelet ignores a probe that could not be run or was broken off.
    fn is_failure(&self) -> bool {
        match self.result {
            ExecResult::Exit(code) => code != 0,
            ExecResult::TimedOut | ExecResult::Frozen => true,
            ExecResult::Cancelled | ExecResult::Error => false,
        }
    }

    /// Returns whether the runtime hung in this run of a probe with a timeout of so many seconds.
    fn has_hung(&self, timeout: u32) -> bool {
        let timeout = Duration::from_secs(timeout.into());
        hanging_probe::has_hung(self.ended.since(self.began), timeout)
    }

    /// A probe has one run at a time.
    fn overlaps(&self, other: &Self) -> bool {
        self.began < other.ended && other.began < self.ended
    }
}

/// A probe of a container. The serde form is part of a line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExecProbe {
    /// The size of its request and its timeout in seconds.
    key: (u64, u32),
    /// Period; set only when it is needed to tell two probes with the same key apart.
    #[serde(
        default,
        with = "times::optional",
        skip_serializing_if = "Option::is_none"
    )]
    period: Option<Duration>,
    runs: u64,
    failed: u64,
    failed_in_a_row: u32,
    /// The longest series of failures after which it was run once more, since it first succeeded.
    tolerated: u32,
    /// The longest series of failures before it first succeeded. Until then it may have been the startup probe.
    at_first: u32,
    /// End of the first successful run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_success: Option<UnixMicros>,
    /// The last run in which the runtime hung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_hung: Option<ProbeRun>,
    /// True if these are the runs of two probes that cannot be told apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_shared: bool,
    /// Why the last run could not be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    last: VecDeque<ProbeRun>,
}

/// The probes of containers, by container id.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerProbes {
    containers: HashMap<Arc<str>, Vec<ExecProbe>>,
    order: VecDeque<Arc<str>>,
}

impl ExecProbe {
    fn new(key: (u64, u32)) -> Self {
        Self {
            key,
            period: None,
            runs: 0,
            failed: 0,
            failed_in_a_row: 0,
            tolerated: 0,
            at_first: 0,
            first_success: None,
            last_hung: None,
            is_shared: false,
            last_error: None,
            last: VecDeque::new(),
        }
    }

    fn note(&mut self, run: ProbeRun) {
        let is_first = self.runs == u64::from(self.failed_in_a_row);
        if is_first {
            self.at_first = self.at_first.max(self.failed_in_a_row);
        } else {
            self.tolerated = self.tolerated.max(self.failed_in_a_row);
        }
        self.runs += 1;
        self.is_shared |= self.last.iter().any(|other| other.overlaps(&run));
        if run.has_hung(self.key.1) {
            self.last_hung = Some(run);
        }
        if run.result.is_good() {
            self.failed_in_a_row = 0;
            self.first_success.get_or_insert(run.ended);
        } else {
            self.failed += 1;
            self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        }
        if self.last.len() >= MAX_RESULTS_PER_PROBE {
            self.last.pop_front();
        }
        self.last.push_back(run);
    }

    /// Divides the runs of two probes: keeps those of one, and returns the other. `None` if it is one probe. Runs that are no longer
    /// remembered are not counted any more, since they may be those of either.
    fn divide(&mut self) -> Option<Self> {
        if self.is_shared || self.period.is_some() {
            return None;
        }
        let two = TwoProbeSeries::from_runs(self.last.make_contiguous())?;
        if two.are_close() {
            self.is_shared = true;
            return None;
        }
        let [one, other] = [0, 1].map(|n| {
            let mut probe = Self::new(self.key);
            two.runs[n].iter().for_each(|run| probe.note(*run));
            // The first runs may be forgotten, and those of either.
            probe.first_success = None;
            probe.period = Some(two.periods[n]);
            probe
        });
        *self = one;
        Some(other)
    }

    /// Adds the runs that were taken for those of another probe.
    fn join(&mut self, other: Self) {
        self.period = None;
        self.is_shared = true;
        self.runs += other.runs;
        self.failed += other.failed;
        self.last.extend(other.last);
        self.last.make_contiguous().sort_by_key(|run| run.ended);
        self.last
            .drain(..self.last.len().saturating_sub(MAX_RESULTS_PER_PROBE));
    }

    /// How far a run that began at this time is from the rhythm of the probe.
    fn distance(&self, began: UnixMicros) -> Duration {
        let (Some(period), Some(last)) = (self.period, self.last.back()) else {
            return Duration::ZERO;
        };
        let late = micros_of(began.abs_diff(last.began)) % micros_of(period).max(1);
        let late = Duration::from_micros(late);
        late.min(period.saturating_sub(late))
    }

    /// Returns whether it can have run again at this time.
    fn is_due(&self, began: UnixMicros) -> bool {
        let (Some(period), Some(last)) = (self.period, self.last.back()) else {
            return true;
        };
        began.since(last.began) > period / 2
    }

    /// Its failure before a stop that began at `at`; `None` if it was not the reason for the stop. `until`: the container is known to have
    /// been up until then.
    fn failed_before(&self, at: UnixMicros, until: UnixMicros) -> Option<FailedProbe> {
        let before = self.last.iter().rev().filter(|run| run.ended <= at);
        let last = before.clone().next().filter(|run| run.is_failure())?;
        let gap = at.since(last.ended);
        if self.is_shared {
            let in_a_row = before.take_while(|run| run.is_failure()).count();
            let in_a_row = u32::try_from(in_a_row.div_ceil(2)).unwrap_or(u32::MAX);
            let failed = FailedProbe {
                result: last.result,
                in_a_row,
                never_succeeded: self.runs == self.failed,
                evidence: KillEvidence::Weak,
                before: gap,
            };
            return (gap <= STOP_FOLLOWS_PROBE_WITHIN).then_some(failed);
        }
        // A readiness probe kills nothing: it goes on after this stop, or went on after as many failures.
        let goes_on = self.last.back().is_some_and(|run| run.ended > at);
        if goes_on || self.failed_in_a_row <= self.tolerated {
            return None;
        }
        let is_at_once =
            gap <= STOP_FOLLOWS_PROBE_WITHIN && self.failed_in_a_row > self.at_first_over();
        let evidence = if is_at_once {
            KillEvidence::AtOnce
        } else if self.is_overdue(last, until) {
            KillEvidence::GivenUp
        } else if gap <= MAX_PRE_STOP_HOOK {
            KillEvidence::Weak
        } else {
            return None;
        };
        Some(FailedProbe {
            result: last.result,
            in_a_row: self.failed_in_a_row,
            never_succeeded: self.runs == self.failed,
            evidence,
            before: gap,
        })
    }

    /// The failures before it first succeeded; 0 if it never did.
    fn at_first_over(&self) -> u32 {
        if self.runs > u64::from(self.failed_in_a_row) {
            self.at_first
        } else {
            0
        }
    }

    /// Returns whether it should have been run again by this time.
    fn is_overdue(&self, last: &ProbeRun, until: UnixMicros) -> bool {
        let periods = self.last.iter().zip(self.last.iter().skip(1));
        let period = periods.map(|(one, next)| next.began.since(one.began)).max();
        period.is_some_and(|period| {
            let due = (last.began + period).max(last.ended);
            until >= due + period / 2 + MAX_PROBE_DELAY
        })
    }

    fn view(&self, container: &str, attempt: u32) -> Option<view::ProbeView> {
        let last = self.last.back()?;
        Some(view::ProbeView {
            container: container.to_owned(),
            attempt,
            timeout_s: self.key.1,
            runs: self.runs,
            failed: self.failed,
            failed_in_a_row: self.failed_in_a_row,
            failed_at_first: self.first_success.map_or(0, |_| self.at_first),
            first_success_unix_us: self.first_success,
            last_result: match &self.last_error {
                Some(words) => format!("{}: {words}", last.result),
                None => last.result.to_string(),
            },
            last_hung: self.last_hung.map(|run| view::HungProbeView {
                began_unix_us: run.began,
                ended_unix_us: run.ended,
            }),
            last_unix_us: last.ended,
            last_ms: millis(last.ended.since(last.began)),
        })
    }
}

impl ContainerProbes {
    /// Adds the result of a probe. Returns whether it is news for the journal: a failure, less and less often while it repeats, the
    /// success that ends a series, or a run that hung.
    pub(crate) fn note(&mut self, record: &CallRecord) -> bool {
        let Some(id) = record.container_id.clone() else {
            return false;
        };
        let key = (record.request_bytes, timeout(record).unwrap_or_default());
        let run = ProbeRun {
            began: record.began_at(),
            ended: record.ended_at(),
            result: ExecResult::from_record(record),
        };
        let error = match run.result {
            ExecResult::Error => error_words(record),
            _ => None,
        };
        if !self.containers.contains_key(&id) {
            self.make_room();
            self.order.push_back(Arc::clone(&id));
        }
        let probes = self.containers.entry(id).or_default();
        let nearest = (0..probes.len())
            .filter(|n| probes[*n].key == key)
            .min_by_key(|n| probes[*n].distance(run.began));
        let Some(nearest) = nearest else {
            let mut probe = ExecProbe::new(key);
            probe.last_error = error;
            probe.note(run);
            let is_news = probe.failed_in_a_row > 0 || run.has_hung(key.1);
            add(probes, probe);
            return is_news;
        };
        let mut probe = probes.remove(nearest);
        if !probe.is_due(run.began) {
            // The rhythms have changed, for example because the kubelet was restarted.
            let others = probes.extract_if(.., |other| other.key == key);
            others.for_each(|other| probe.join(other));
        }
        probe.last_error = error;
        let failed_before = probe.failed_in_a_row;
        probe.note(run);
        let is_news = match probe.failed_in_a_row {
            _ if run.has_hung(key.1) => true,
            0 => failed_before > 0,
            times => times.is_power_of_two(),
        };
        let other = probe.divide();
        probes.insert(nearest.min(probes.len()), probe);
        if let Some(other) = other {
            add(probes, other);
        }
        is_news
    }

    /// The probes of a container.
    pub(crate) fn of_container(&self, container_id: &str) -> &[ExecProbe] {
        self.containers
            .get(container_id)
            .map_or(&[], |probes| probes)
    }

    /// The probes of all containers, by container id.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &[ExecProbe])> {
        let containers = self.containers.iter();
        containers.map(|(id, probes)| (&**id, &**probes))
    }

    /// Replaces the probes of a container by the ones of an earlier process.
    pub(crate) fn put(&mut self, container_id: &str, probes: Vec<ExecProbe>) {
        self.forget(container_id);
        self.make_room();
        let id = Arc::<str>::from(container_id);
        self.order.push_back(Arc::clone(&id));
        self.containers.insert(id, probes);
    }

    fn make_room(&mut self) {
        while self.order.len() >= MAX_PROBED_CONTAINERS {
            if let Some(oldest) = self.order.pop_front() {
                self.containers.remove(&oldest);
            }
        }
    }

    /// Forgets the probes of a container that was removed.
    pub(crate) fn forget(&mut self, container_id: &str) {
        if self.containers.remove(container_id).is_some() {
            self.order.retain(|id| **id != *container_id);
        }
    }

    /// The probe that failed before the container was stopped, with the best evidence. `at`: the begin of the stop, or of the
    /// preStop hook before it. `until`: the container is known to have been up until then.
    pub(crate) fn failed_before(
        &self,
        container_id: &str,
        at: UnixMicros,
        until: UnixMicros,
    ) -> Option<FailedProbe> {
        let probes = self.containers.get(container_id)?;
        let failed = probes
            .iter()
            .filter_map(|probe| probe.failed_before(at, until));
        failed.min_by_key(|failed| (failed.evidence, failed.before))
    }

    /// The views of the probes of a container.
    pub(crate) fn views_of(
        &self,
        container_id: &str,
        name: &str,
        attempt: u32,
    ) -> Vec<view::ProbeView> {
        let probes = self.containers.get(container_id).into_iter().flatten();
        probes
            .filter_map(|probe| probe.view(name, attempt))
            .collect()
    }
}

/// Adds a probe. If there are too many, it replaces the one that has not run for longest.
fn add(probes: &mut Vec<ExecProbe>, probe: ExecProbe) {
    if probes.len() >= MAX_PROBES_PER_CONTAINER {
        probes.sort_by_key(|probe| probe.last.back().map_or(UnixMicros::EPOCH, |run| run.ended));
        probes.remove(0);
    }
    probes.push(probe);
}

mod failed;
mod rhythm;

#[cfg(test)]
mod tests;
