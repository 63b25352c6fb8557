//! Commands that the kubelet runs in containers by ExecSync. Exec probes have the timeout of the probe; postStart and preStop
//! hooks have none. `kubectl exec` uses Exec, another method. HTTP, TCP and gRPC probes are no CRI calls.
//!
//! The commands themselves are not read. Two probes of a container are told apart by the size of their requests and their
//! timeouts: if these are equal too, their results are as one.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{CallFacts, CallRecord, Client, Ending};
use crate::cri::status::Code;
use crate::lifecycle::view;

/// Most containers whose probes are remembered; a node runs some hundred.
const CONTAINERS: usize = 1024;
/// Most probes per container: a liveness, a readiness and a startup probe, and one after a change.
const PROBES: usize = 4;
/// Most results per probe.
const RESULTS: usize = 8;
/// The kubelet kills a container this soon after the probe that failed once too often, in microseconds.
const REACTION: u64 = 2_000_000;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::lifecycle) enum ExecResult {
    /// With this exit code.
    Exit(i32),
    /// It was killed at its timeout.
    TimedOut,
    /// The kubelet broke it off.
    Cancelled,
    /// The runtime could not run it.
    Error,
}

impl ExecResult {
    /// The result of an ExecSync that has ended.
    pub(in crate::lifecycle) fn of(record: &CallRecord) -> Self {
        let code = record.outcome().map(|outcome| outcome.code);
        match record.facts {
            CallFacts::Exec {
                exit_code: Some(code),
                ..
            } if record.has_ended(Ending::Ok) => Self::Exit(code),
            _ if code == Some(Code::DeadlineExceeded) => Self::TimedOut,
            _ if record.has_ended(Ending::Cancelled) => Self::Cancelled,
            _ => Self::Error,
        }
    }

    /// Returns whether it succeeded.
    pub(in crate::lifecycle) fn is_good(self) -> bool {
        self == Self::Exit(0)
    }
}

impl fmt::Display for ExecResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Cancelled => f.write_str("the kubelet broke it off"),
            Self::Error => f.write_str("could not be run"),
        }
    }
}

/// An exec probe that had failed just before its container was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::lifecycle) struct FailedProbe {
    /// The last result.
    pub(in crate::lifecycle) result: ExecResult,
    /// Failures in a row.
    pub(in crate::lifecycle) in_a_row: u32,
}

/// The timeout of a command that the kubelet runs, in seconds.
fn timeout(record: &CallRecord) -> Option<u32> {
    match record.facts {
        CallFacts::Exec { timeout, .. } if record.peer.client != Client::Crictl => Some(timeout),
        _ => None,
    }
}

/// Returns whether the call runs a hook of a container.
pub(in crate::lifecycle) fn is_hook(record: &CallRecord) -> bool {
    timeout(record) == Some(0)
}

/// Returns whether the call runs a probe of a container.
pub(in crate::lifecycle) fn is_probe(record: &CallRecord) -> bool {
    timeout(record).is_some_and(|timeout| timeout > 0)
}

/// A run of a probe. Times in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Run {
    began: u64,
    ended: u64,
    result: ExecResult,
}

/// A probe of a container.
#[derive(Clone, Debug)]
struct Probe {
    /// The size of its request and its timeout in seconds.
    key: (u64, u32),
    runs: u64,
    failed: u64,
    failed_in_a_row: u32,
    /// The longest series of failures after which it was run once more.
    tolerated: u32,
    last: VecDeque<Run>,
}

/// The probes of containers, by container id.
#[derive(Clone, Debug, Default)]
pub(in crate::lifecycle) struct Probes {
    containers: HashMap<Arc<str>, Vec<Probe>>,
    order: VecDeque<Arc<str>>,
}

impl Probe {
    fn note(&mut self, run: Run) {
        self.runs += 1;
        self.tolerated = self.tolerated.max(self.failed_in_a_row);
        match run.result.is_good() {
            true => self.failed_in_a_row = 0,
            false => {
                self.failed += 1;
                self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
            }
        }
        if self.last.len() >= RESULTS {
            self.last.pop_front();
        }
        self.last.push_back(run);
    }

    fn view(&self, container: &str, attempt: u32) -> Option<view::Probe> {
        let last = self.last.back()?;
        Some(view::Probe {
            container: container.to_owned(),
            attempt,
            timeout_s: self.key.1,
            runs: self.runs,
            failed: self.failed,
            failed_in_a_row: self.failed_in_a_row,
            last_result: last.result.to_string(),
            last_unix_us: last.ended,
            last_ms: last.ended.saturating_sub(last.began) as f64 / 1000.0,
        })
    }
}

impl Probes {
    /// Adds the result of a probe.
    pub(in crate::lifecycle) fn note(&mut self, record: &CallRecord) {
        let Some(id) = record.container_id.clone() else {
            return;
        };
        let key = (record.request_bytes, timeout(record).unwrap_or_default());
        let run = Run {
            began: record.began_us(),
            ended: record.end_us(),
            result: ExecResult::of(record),
        };
        if !self.containers.contains_key(&id) {
            self.make_room();
            self.order.push_back(Arc::clone(&id));
        }
        let probes = self.containers.entry(id).or_default();
        if let Some(probe) = probes.iter_mut().find(|probe| probe.key == key) {
            return probe.note(run);
        }
        if probes.len() >= PROBES {
            let oldest = |probe: &Probe| probe.last.back().map_or(0, |run| run.ended);
            probes.sort_by_key(oldest);
            probes.remove(0);
        }
        let mut probe = Probe {
            key,
            runs: 0,
            failed: 0,
            failed_in_a_row: 0,
            tolerated: 0,
            last: VecDeque::new(),
        };
        probe.note(run);
        probes.push(probe);
    }

    fn make_room(&mut self) {
        while self.order.len() >= CONTAINERS {
            if let Some(oldest) = self.order.pop_front() {
                self.containers.remove(&oldest);
            }
        }
    }

    /// The container was removed.
    pub(in crate::lifecycle) fn forget(&mut self, container_id: &str) {
        if self.containers.remove(container_id).is_some() {
            self.order.retain(|id| **id != *container_id);
        }
    }

    /// The probe that failed just before the container was stopped at `at`, in microseconds since 1970. The kubelet makes no more of a
    /// probe that has led to a kill. So one that went on after the stop was not the reason, nor one that went on after as long a
    /// series of failures before: a readiness probe, which kills nothing.
    pub(in crate::lifecycle) fn failed_before(
        &self,
        container_id: &str,
        at: u64,
    ) -> Option<FailedProbe> {
        let probes = self.containers.get(container_id)?;
        let failed = probes.iter().filter_map(|probe| {
            let last = probe.last.back().filter(|run| !run.result.is_good())?;
            let is_just_before = last.ended <= at && at - last.ended <= REACTION;
            let kills = probe.failed_in_a_row > probe.tolerated;
            (is_just_before && kills).then_some((last.ended, probe.failed_in_a_row, last.result))
        });
        let (_, in_a_row, result) = failed.max_by_key(|(ended, ..)| *ended)?;
        Some(FailedProbe { result, in_a_row })
    }

    /// The probes of a container.
    pub(in crate::lifecycle) fn of(
        &self,
        container_id: &str,
        name: &str,
        attempt: u32,
    ) -> Vec<view::Probe> {
        let probes = self.containers.get(container_id).into_iter().flatten();
        probes.filter_map(|it| it.view(name, attempt)).collect()
    }

    /// The number of containers with probes.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.containers.len().max(self.order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::script::{at, pod};

    #[test]
    fn a_probe_that_fails_right_before_a_kill_is_its_reason() {
        let web = pod("web");
        let mut probes = Probes::default();
        for n in 0..3 {
            probes.note(&web.probe(("app", 0), 10_000 * n, 50).exits(0));
        }
        for n in 3..6 {
            probes.note(&web.probe(("app", 0), 10_000 * n, 50).exits(1));
        }
        let id = web.probe(("app", 0), 0, 0).container_id.clone();
        let id = id.expect("an id");
        let expected = FailedProbe {
            result: ExecResult::Exit(1),
            in_a_row: 3,
        };
        assert_eq!(probes.failed_before(&id, at(50_100)), Some(expected));
        assert_eq!(probes.failed_before(&id, at(58_000)), None, "too long ago");
        assert_eq!(probes.failed_before(&id, at(40_100)), None, "it went on");
        assert_eq!(probes.failed_before("another", at(50_100)), None);
        let shown = probes.of(&id, "app", 0);
        assert_eq!((shown[0].runs, shown[0].failed), (6, 3));
        assert_eq!(shown[0].last_result, "exit code 1");
        probes.forget(&id);
        assert_eq!(
            (probes.failed_before(&id, at(50_100)), probes.len()),
            (None, 0)
        );
    }

    /// A liveness probe would have led to a kill after the first series.
    #[test]
    fn a_probe_that_failed_as_often_before_without_a_kill_is_no_reason() {
        let web = pod("web");
        let mut probes = Probes::default();
        for (n, code) in [1, 1, 1, 0, 1, 1].into_iter().enumerate() {
            probes.note(&web.probe(("app", 0), 1000 * n as u64, 50).exits(code));
        }
        let id = web.probe(("app", 0), 0, 0).container_id.clone();
        let id = id.expect("an id");
        assert_eq!(probes.failed_before(&id, at(5100)), None);
        for n in 6..8 {
            probes.note(&web.probe(("app", 0), 1000 * n, 50).exits(1));
        }
        let found = probes.failed_before(&id, at(7100));
        assert_eq!(found.map(|probe| probe.in_a_row), Some(4));
    }

    #[test]
    fn probes_of_other_sizes_and_timeouts_are_others() {
        let web = pod("web");
        let mut probes = Probes::default();
        let mut ready = web.probe(("app", 0), 0, 50).exits(1);
        ready.request_bytes = 99;
        probes.note(&ready);
        probes.note(&web.probe(("app", 0), 1000, 50).exits(0));
        let id = ready.container_id.clone().expect("an id");
        let shown = probes.of(&id, "app", 0);
        assert_eq!(shown.len(), 2);
        assert_eq!((shown[0].failed, shown[1].failed), (1, 0));
    }

    #[test]
    fn a_timeout_is_no_exit_code() {
        let web = pod("web");
        let late = web
            .probe(("app", 0), 0, 1000)
            .fails(Code::DeadlineExceeded, "command timed out");
        assert_eq!(ExecResult::of(&late), ExecResult::TimedOut);
        let cancelled = web.hook(("app", 0), 0, 3000).cancelled();
        assert_eq!(ExecResult::of(&cancelled), ExecResult::Cancelled);
        let refused = web
            .probe(("app", 0), 0, 10)
            .fails(Code::NotFound, "no such container");
        assert_eq!(ExecResult::of(&refused), ExecResult::Error);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut probes = Probes::default();
        for n in 0..(CONTAINERS as u64 + 10) {
            for key in 0..10 {
                let mut probe = pod(&format!("p{n}")).probe(("app", 0), n, 1).exits(0);
                probe.request_bytes = key;
                (0..20).for_each(|_| probes.note(&probe));
            }
        }
        assert_eq!(probes.len(), CONTAINERS);
        let mut all = probes.containers.values();
        assert!(all.all(|of| of.len() <= PROBES && of.iter().all(|p| p.last.len() <= RESULTS)));
    }

    #[test]
    fn hooks_have_no_timeout_and_crictl_has_neither() {
        let web = pod("web");
        let (probe, hook) = (web.probe(("app", 0), 0, 1), web.hook(("app", 0), 0, 1));
        assert!(is_probe(&probe) && !is_hook(&probe));
        assert!(is_hook(&hook) && !is_probe(&hook));
        let mut by_hand = hook;
        by_hand.peer = Arc::new(crate::call::Peer {
            client: Client::Crictl,
            pid: None,
            comm: None,
        });
        assert!(!is_hook(&by_hand));
    }
}
