//! One call as it is shown in a dump and on pages, and read back by `criscope calls`. Holds identity, times and outcome
//! only.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::call::CallRecord;
use crate::cri::status::code_name;
use crate::cri::subject::PodIdentity;
use crate::units::unix_us;

/// One call. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Number of the call since the start of the process.
    pub seq: u64,
    /// Short name of the method.
    pub method: String,
    /// When the request headers were read, in microseconds since 1970.
    pub began_unix_us: u64,
    /// How long it took, or has taken so far, in milliseconds.
    pub duration_ms: f64,
    /// `ok`, `error`, `cancelled`, `deadline`, or `in_flight`.
    pub outcome: String,
    /// The status code, as `DEADLINE_EXCEEDED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Who made the status, if it is not OK: `backend`, `proxy` or `caller`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The error message, scrubbed of secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How far a call in flight has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What the runtime was seen doing for a call in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// The caller's deadline from the begin of the call, in milliseconds.
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
    /// Runtime handler asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// Exit code of the command (ExecSync).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Where it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Why there: `default`, `handler`, `owner`, `images` or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// When the backend was asked, from the begin of the call, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_offset_ms: Option<f64>,
    /// How long the backend took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ms: Option<f64>,
    /// Kind of caller: `kubelet`, `crictl` or `other`.
    pub client: String,
    /// The caller's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_pid: Option<i32>,
    /// The caller's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_comm: Option<String>,
    /// Bytes of request messages.
    pub request_bytes: u64,
    /// Bytes of response messages.
    pub response_bytes: u64,
    /// Trace id, in hex, when traces are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Trace id of its episode, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episode_trace_id: Option<String>,
}

/// Milliseconds, to the nanosecond.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn text(value: &Option<impl AsRef<str>>) -> Option<String> {
    value.as_ref().map(|v| v.as_ref().to_owned())
}

impl Row {
    /// A call that has ended.
    pub fn of(record: &CallRecord) -> Self {
        let failed = !record.is_ok();
        let container = record.container.as_deref();
        Self {
            seq: record.seq,
            method: record.method.name().to_owned(),
            began_unix_us: unix_us(record.began),
            duration_ms: millis(record.elapsed),
            outcome: record.ending.name().to_owned(),
            code: Some(code_name(record.code).to_owned()),
            source: failed.then(|| record.source.name().to_owned()),
            error: text(&record.message),
            deadline_ms: record.deadline.map(millis),
            stuck: (record.share_used > 0).then_some(record.share_used),
            sandbox_id: text(&record.sandbox_id),
            container: container.map(|c| c.name.to_string()),
            container_attempt: container.map(|c| c.attempt),
            container_id: text(&record.container_id),
            image: text(&record.image),
            handler: text(&record.handler).filter(|h| !h.is_empty()),
            exit_code: record.exit_code,
            backend: record.route.as_ref().map(|r| r.backend.to_string()),
            route: record.route.as_ref().map(|r| r.reason.name().to_owned()),
            backend_offset_ms: record.backend.map(|(offset, _)| millis(offset)),
            backend_ms: record.backend.map(|(_, took)| millis(took)),
            client: record.peer.client.name().to_owned(),
            client_pid: record.peer.pid,
            client_comm: text(&record.peer.comm),
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            trace_id: record.spans.as_ref().map(|s| s.trace_id.to_string()),
            episode_trace_id: record.episode.map(|e| e.trace_id.to_string()),
            ..Self::default()
        }
        .with_pod(record.pod.as_deref())
    }

    /// A call in flight, as it is now.
    pub fn in_flight(call: &Call) -> Self {
        let age = call.age();
        let subject = call.subject.get();
        let container = subject.and_then(|s| s.container.as_deref());
        let backend = call.backend_span(age);
        let stuck = call.share_used();
        Self {
            seq: call.seq,
            method: call.method.name().to_owned(),
            began_unix_us: unix_us(call.started_at),
            duration_ms: millis(age),
            outcome: "in_flight".to_owned(),
            phase: Some(call.stage().name().to_owned()),
            deadline_ms: call.deadline.map(millis),
            stuck: (stuck > 0).then_some(stuck),
            sandbox_id: call.sandbox_id().map(|id| id.to_string()),
            container: container.map(|c| c.name.to_string()),
            container_attempt: container.map(|c| c.attempt),
            container_id: call.container_id().map(|id| id.to_string()),
            image: subject.and_then(|s| text(&s.image)),
            handler: subject
                .and_then(|s| text(&s.handler))
                .filter(|h| !h.is_empty()),
            backend: call.route.get().map(|r| r.backend.to_string()),
            route: call.route.get().map(|r| r.reason.name().to_owned()),
            backend_offset_ms: backend.map(|(offset, _)| millis(offset)),
            backend_ms: backend.map(|(_, took)| millis(took)),
            client: call.peer.client.name().to_owned(),
            client_pid: call.peer.pid,
            client_comm: text(&call.peer.comm),
            request_bytes: call.request_bytes(),
            response_bytes: call.response_bytes(),
            trace_id: call.trace.as_ref().map(|t| t.trace_id.to_string()),
            episode_trace_id: call.episode.get().map(|e| e.trace_id.to_string()),
            ..Self::default()
        }
        .with_pod(subject.and_then(|s| s.pod.as_deref()))
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

    /// Whether it has not ended yet.
    pub fn is_in_flight(&self) -> bool {
        self.outcome == "in_flight"
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
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::call::{Ending, Outcome, Route, RouteReason, Source};
    use crate::cri::Method;
    use crate::cri::status::Code;
    use crate::cri::subject::{ContainerIdentity, Subject};

    /// A StartContainer of `shop/web-N` with this number, one second after the other, that took 10 ms, 9 of them in the
    /// backend.
    pub(crate) fn record(seq: u64) -> CallRecord {
        let mut record = plain(seq, Method::StartContainer);
        record.pod = Some(pod(&format!("web-{seq}")));
        record.container = Some(Arc::new(ContainerIdentity {
            name: "app".into(),
            attempt: 0,
        }));
        record.backend = Some((Duration::from_micros(500), Duration::from_millis(9)));
        record.route = Some(Route {
            backend: "main".into(),
            reason: RouteReason::Default,
        });
        record
    }

    pub(crate) fn pod(name: &str) -> Arc<PodIdentity> {
        Arc::new(PodIdentity {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            attempt: 0,
        })
    }

    /// A call of this method about nobody.
    pub(crate) fn plain(seq: u64, method: Method) -> CallRecord {
        let outcome = Outcome {
            ending: Ending::Ok,
            code: Code::Ok,
            source: Source::Backend,
            message: None,
            elapsed: Duration::from_millis(10),
        };
        let mut record = CallRecord::of(&Call::example(method), &outcome);
        record.seq = seq;
        record.began = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seq);
        record
    }

    #[test]
    fn a_row_reads_back_what_it_wrote_and_leaves_out_what_is_not_known() {
        let mut record = record(7);
        record.ending = Ending::Deadline;
        record.code = Code::DeadlineExceeded;
        record.message = Some("too late".into());
        record.share_used = 90;
        let row = Row::of(&record);
        assert_eq!(row.pod_path().as_deref(), Some("shop/web-7"));
        assert_eq!(row.code.as_deref(), Some("DEADLINE_EXCEEDED"));
        assert_eq!((row.stuck, row.duration_ms), (Some(90), 10.0));
        let text = serde_json::to_string(&row).expect("json");
        assert!(!text.contains("null") && !text.contains("image"), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).expect("row"), row);
    }

    #[test]
    fn a_call_in_flight_says_how_far_it_has_come() {
        let call = Call::example(Method::RunPodSandbox);
        let subject = Subject {
            pod: Some(pod("web-0")),
            handler: Some("".into()),
            ..Subject::default()
        };
        call.subject.set(subject).expect("once");
        let row = Row::in_flight(&call);
        assert!(row.is_in_flight() && row.handler.is_none() && row.code.is_none());
        assert_eq!(row.phase.as_deref(), Some("reading"));
        assert_eq!(row.pod_path().as_deref(), Some("shop/web-0"));
    }
}
