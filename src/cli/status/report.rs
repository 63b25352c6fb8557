//! `criscope status` for programs: numbers and closed words in place of sentences.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{BackendStatus, DaemonState};
use crate::cli::output::FindingLevel;
use crate::lifecycle::view::{PodState, PodSummary};
use crate::pages::source::PageError;
use crate::units::times::UnixMicros;

/// The state of criscope, the runtimes behind it and the pods.
#[derive(Debug, Serialize)]
pub(super) struct StatusReport<'a> {
    /// The worst of everything below.
    level: FindingLevel,
    criscope: DaemonReport<'a>,
    backends: Vec<BackendReport<'a>>,
    calls: CallsReport,
    kubelet: KubeletReport,
    /// Number of pods in each state; absent if the pages below `/debug` are turned off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<BTreeMap<String, usize>>,
    injected_faults: usize,
    /// Whether calls reach the runtime without criscope.
    bypassed: bool,
}

/// The state of a node whose criscope does not answer while calls reach the runtime without it.
#[derive(Debug, Serialize)]
pub(super) struct BypassReport {
    level: FindingLevel,
    bypassed: bool,
    bypassed_since_unix_us: UnixMicros,
    error: String,
}

impl BypassReport {
    pub(super) fn new(since: UnixMicros, error: &PageError) -> Self {
        Self {
            level: FindingLevel::Fail,
            bypassed: true,
            bypassed_since_unix_us: since,
            error: error.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct DaemonReport<'a> {
    version: &'a str,
    host: &'a str,
    uptime_ms: f64,
}

#[derive(Debug, Serialize)]
struct BackendReport<'a> {
    name: &'a str,
    endpoint: &'a str,
    up: bool,
    /// Time in this state; absent before the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<f64>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<RuntimeReport<'a>>,
    /// The cgroup driver that criscope answers RuntimeConfig with, and its source; absent if the runtime answers by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_cgroup_driver: Option<&'a str>,
    conditions: Vec<ConditionReport<'a>>,
}

#[derive(Debug, Serialize)]
struct RuntimeReport<'a> {
    name: &'a str,
    version: &'a str,
}

/// A condition, as Kubernetes writes it.
#[derive(Debug, Serialize)]
struct ConditionReport<'a> {
    r#type: &'a str,
    status: bool,
    reason: &'a str,
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct CallsReport {
    last_minute: u64,
    errors_last_minute: u64,
    in_flight: u64,
    /// Calls in flight that have used half of their deadline.
    stuck: u64,
    open_sessions: usize,
    /// Number of calls and sessions that a restart would break off, by kind.
    in_progress: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct KubeletReport {
    /// Time since the begin of the kubelet's last relist (PLEG); absent if none was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    relist_ms: Option<f64>,
    relist_is_slow: bool,
}

impl<'a> StatusReport<'a> {
    pub(super) fn new(
        live: &'a DaemonState,
        pods: Option<&[PodSummary]>,
        level: FindingLevel,
    ) -> Self {
        let methods = &live.methods.methods;
        Self {
            level,
            criscope: DaemonReport {
                version: &live.version,
                host: &live.host,
                uptime_ms: live.uptime_ms,
            },
            backends: live.backends.iter().map(BackendReport::new).collect(),
            calls: CallsReport {
                last_minute: methods.iter().map(|row| row.minute.calls).sum(),
                errors_last_minute: methods.iter().map(|row| row.minute.errors).sum(),
                in_flight: methods.iter().map(|row| row.in_flight).sum(),
                stuck: methods.iter().map(|row| row.stuck).sum(),
                open_sessions: live.sessions.len(),
                in_progress: live.work().by_kind(),
            },
            kubelet: KubeletReport {
                relist_ms: live.relist_ms,
                relist_is_slow: live.relist.is_some(),
            },
            pods: pods.map(count_by_state),
            injected_faults: live.faults.len(),
            bypassed: live.bypass.is_some(),
        }
    }
}

impl<'a> BackendReport<'a> {
    fn new(backend: &'a BackendStatus) -> Self {
        let runtime = backend.runtime.as_ref();
        let conditions = backend.conditions.iter();
        Self {
            name: &backend.name,
            endpoint: &backend.endpoint,
            up: backend.up,
            since_ms: backend.since_ms,
            reason: &backend.reason,
            runtime: runtime.map(|(name, version)| RuntimeReport { name, version }),
            answered_cgroup_driver: backend.answered_cgroup_driver.as_deref(),
            conditions: conditions
                .map(|condition| ConditionReport {
                    r#type: &condition.kind,
                    status: condition.status,
                    reason: &condition.reason,
                    message: &condition.message,
                })
                .collect(),
        }
    }
}

/// The number of pods in each state, and of all.
fn count_by_state(pods: &[PodSummary]) -> BTreeMap<String, usize> {
    let states = PodState::ALL.into_iter().map(|state| {
        let in_state = pods.iter().filter(|pod| pod.state == state);
        (state.word().replace(' ', "_"), in_state.count())
    });
    states.chain([("total".to_owned(), pods.len())]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_has_numbers_and_no_sentences() {
        let live: DaemonState = serde_json::from_value(json!({
            "version": "0.2.0", "host": "node-1", "uptime_ms": 65000.0, "relist_ms": 800.0,
            "backends": [{
                "name": "containerd", "endpoint": "/run/c.sock", "up": true, "since_ms": 1000.0,
                "runtime": ["containerd", "1.6.20"],
                "conditions": [{"kind": "NetworkReady", "status": false, "reason": "NoCni", "message": "cni"}],
            }],
        }))
        .expect("the front page");
        let pods = [PodState::Ok, PodState::CrashLoop].map(|state| PodSummary {
            state,
            ..PodSummary::default()
        });
        let report = StatusReport::new(&live, Some(&pods), FindingLevel::Fail);
        let report = serde_json::to_value(report).expect("json");
        assert_eq!(report["level"], "fail");
        assert_eq!(report["criscope"]["uptime_ms"], 65000.0);
        assert_eq!(
            report["backends"],
            json!([{
                "name": "containerd", "endpoint": "/run/c.sock", "up": true, "since_ms": 1000.0,
                "runtime": {"name": "containerd", "version": "1.6.20"},
                "conditions": [{"type": "NetworkReady", "status": false, "reason": "NoCni", "message": "cni"}],
            }])
        );
        assert_eq!(
            report["kubelet"],
            json!({"relist_ms": 800.0, "relist_is_slow": false})
        );
        let pods = &report["pods"];
        assert_eq!(
            (&pods["ok"], &pods["crash_loop"], &pods["total"]),
            (&json!(1), &json!(1), &json!(2))
        );
        assert_eq!(
            (&pods["failing"], &report["calls"]["in_flight"]),
            (&json!(0), &json!(0))
        );
    }
}
