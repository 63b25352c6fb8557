//! The view of a call in dumps, on pages and in episodes, read back by commands. Holds identity, times and outcome only.
//!
//! Times of day are microseconds since 1970-01-01 UTC; durations and offsets are milliseconds, with fractions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CallDetail, is_zero_ms};
use criscope_cri::call::{CallRecord, CallState, Ending, SpanIds};
use criscope_cri::status::code_name;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// One call. Unknown fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallView {
    /// Number of the call since the start of the process.
    pub seq: u64,
    /// Short name of the method.
    pub method: String,
    /// The time at which the request headers were read.
    pub began_unix_us: UnixMicros,
    /// The duration, so far if it is in flight.
    pub duration_ms: f64,
    /// `ok`, `error`, `cancelled`, `deadline`, or `in_flight`.
    pub outcome: String,
    /// The status code, as `DEADLINE_EXCEEDED`; empty while in flight.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Who set the status, if it is not OK: `backend`, `proxy` or `caller`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The error message, scrubbed of secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Stage of a call in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The runtime's observed activity for a call in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// The caller's deadline from the begin of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<f64>,
    /// The largest share of its deadline that was reported while it ran, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck: Option<u32>,
    /// Kubernetes namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Pod name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Pod uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Sandbox attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Sandbox id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Container name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Restart count of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_attempt: Option<u32>,
    /// Container id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Image reference, without user, password and query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Requested runtime handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// Exit code of the command (ExecSync).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The reason for that backend: `default`, `handler`, `owner`, `images` or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Time from the begin of the call until it was sent to the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_offset_ms: Option<f64>,
    /// Duration of the call in the backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ms: Option<f64>,
    /// Kind of caller: `kubelet`, `crictl` or `other`.
    pub client: String,
    /// The caller's process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_pid: Option<i32>,
    /// The name of the caller's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_comm: Option<String>,
    /// Bytes of request messages.
    pub request_bytes: u64,
    /// Bytes of response messages.
    pub response_bytes: u64,
    /// Trace id, in hex, if traces are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Trace id of its episode, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episode_trace_id: Option<String>,
    /// From the begin of its episode.
    #[serde(skip_serializing_if = "is_zero_ms")]
    pub offset_ms: f64,
    /// True if the same call had failed before in its episode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
    /// The runtime's work for a call of an episode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<CallDetail>,
    /// Warnings of the built-in runtime about a call of an episode, such as that an image is for another platform; scrubbed of
    /// secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The ids of its spans, if traces are on; `None` for calls from before a restart of criscope.
    #[serde(skip)]
    pub spans: Option<Box<SpanIds>>,
}

/// Milliseconds with a resolution of a nanosecond.
pub fn exact_millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn text(value: &Option<impl AsRef<str>>) -> Option<String> {
    value.as_ref().map(|v| v.as_ref().to_owned())
}

impl CallView {
    /// A call, in flight or ended.
    pub fn from_record(record: &CallRecord) -> Self {
        let (container, route) = (record.container.as_deref(), record.route.as_ref());
        let mut shown = Self {
            seq: record.seq,
            method: record.method.name().to_owned(),
            began_unix_us: record.began_at(),
            duration_ms: exact_millis(record.elapsed()),
            deadline_ms: record.deadline.map(exact_millis),
            stuck: (record.share_used > 0).then_some(record.share_used),
            sandbox_id: text(&record.sandbox_id),
            container: container.map(|c| c.name.to_string()),
            container_attempt: container.map(|c| c.attempt),
            container_id: text(&record.container_id),
            image: text(&record.image),
            handler: text(&record.handler).filter(|h| !h.is_empty()),
            exit_code: record.facts.exit_code(),
            backend: route.map(|r| r.backend.to_string()),
            route: route.map(|r| r.reason.name().to_owned()),
            backend_offset_ms: record.backend_time.map(|(offset, _)| exact_millis(offset)),
            backend_ms: record.backend_time.map(|(_, took)| exact_millis(took)),
            client: record.peer.client.name().to_owned(),
            client_pid: record.peer.pid,
            client_comm: text(&record.peer.comm),
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            trace_id: record.spans.as_ref().map(|s| s.trace_id.to_string()),
            episode_trace_id: record.episode().map(|e| e.trace_id.to_string()),
            spans: record.spans.clone(),
            ..Self::default()
        }
        .with_pod(record.pod.as_deref());
        match &record.state {
            CallState::InFlight { stage, .. } => {
                Self::IN_FLIGHT.clone_into(&mut shown.outcome);
                shown.phase = Some(stage.name().to_owned());
            }
            CallState::Ended(outcome) => {
                outcome.ending.name().clone_into(&mut shown.outcome);
                code_name(outcome.code).clone_into(&mut shown.code);
                shown.error = text(&outcome.message);
                if outcome.ending != Ending::Ok {
                    shown.source = Some(outcome.source.name().to_owned());
                }
            }
        }
        shown
    }

    fn with_pod(mut self, pod: Option<&PodIdentity>) -> Self {
        if let Some(pod) = pod {
            self.namespace = Some(pod.namespace.to_string());
            self.pod = Some(pod.name.to_string());
            self.pod_uid = Some(pod.uid.to_string());
            self.attempt = Some(pod.attempt);
        }
        self
    }

    /// The outcome of a call in flight.
    pub const IN_FLIGHT: &str = "in_flight";

    /// Returns whether it is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.outcome == Self::IN_FLIGHT
    }

    /// Returns whether it ended unsuccessfully.
    pub fn is_failed(&self) -> bool {
        !matches!(&*self.outcome, "ok" | Self::IN_FLIGHT)
    }

    /// The share of its deadline that it has used, in percent; `None` without a deadline.
    pub fn share(&self) -> Option<u64> {
        Some((self.duration_ms * 100.0 / self.deadline_ms?.max(1.0)) as u64)
    }

    /// `NAMESPACE/NAME` of its pod.
    pub fn pod_path(&self) -> Option<String> {
        Some(format!(
            "{}/{}",
            self.namespace.as_deref()?,
            self.pod.as_deref()?
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{pod, record};
    use criscope_cri::Method;
    use criscope_cri::call::Call as Live;
    use criscope_cri::status::Code;
    use criscope_cri::subject::Subject;

    #[test]
    fn a_row_reads_back_what_it_wrote_and_leaves_out_what_is_not_known() {
        let mut record = record(7);
        let outcome = record.outcome_mut();
        outcome.ending = Ending::Deadline;
        outcome.code = Code::DeadlineExceeded;
        outcome.message = Some("too late".into());
        record.share_used = 90;
        let row = CallView::from_record(&record);
        assert_eq!(row.pod_path().as_deref(), Some("shop/web-7"));
        assert_eq!(row.code, "DEADLINE_EXCEEDED");
        assert_eq!((row.stuck, row.duration_ms), (Some(90), 10.0));
        let text = serde_json::to_string(&row).expect("json");
        assert!(!text.contains("null") && !text.contains("image"), "{text}");
        assert_eq!(serde_json::from_str::<CallView>(&text).expect("row"), row);
    }

    #[test]
    fn a_call_in_flight_says_how_far_it_has_come() {
        let call = Live::example(Method::RunPodSandbox);
        let subject = Subject {
            pod: Some(pod("web-0")),
            handler: Some("".into()),
            ..Subject::default()
        };
        call.subject.set(subject).expect("once");
        let row = CallView::from_record(&CallRecord::in_flight(&call));
        assert!(row.is_in_flight() && row.handler.is_none() && row.code.is_empty());
        assert_eq!(row.phase.as_deref(), Some("reading"));
        assert_eq!(row.pod_path().as_deref(), Some("shop/web-0"));
    }
}
