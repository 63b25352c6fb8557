//! Decodes the kubelet's spans of its work on a pod: its pod, times and error, and no other attribute.

use super::spans::{FieldValue, MalformedRequest, field, messages, time};
use crate::kubelet::sync_error::SyncError;
use crate::kubelet::syncs::{KubeletSpan, SyncKind};
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// The instrumentation scope of the kubelet's pod workers.
const POD_WORKER_SCOPE: &[u8] = b"k8s.io/kubernetes/pkg/kubelet";

/// Longest name or uid of a pod (RFC 1123, subdomain).
const MAX_NAME_LEN: usize = 253;

/// Returns whether these `ScopeSpans` come from the kubelet's pod workers.
pub(super) fn is_pod_worker_scope(scope_spans: &[u8]) -> Result<bool, MalformedRequest> {
    let mut is = false;
    // ScopeSpans.scope, InstrumentationScope.name
    messages(scope_spans, 1, &mut |scope| {
        messages(scope, 1, &mut |name| {
            is = name == POD_WORKER_SCOPE;
            Ok(())
        })
    })?;
    Ok(is)
}

/// Reads a span; `None` if it names no pod.
pub(super) fn span(mut rest: &[u8]) -> Result<Option<KubeletSpan>, MalformedRequest> {
    let (mut kind, mut began, mut ended, mut error) = (None, 0, 0, None);
    let (mut uid, mut namespace, mut name) = (None, None, None);
    while let Some(next) = field(&mut rest)? {
        match next {
            (5, FieldValue::Bytes(name)) => kind = SyncKind::from_span_name(name),
            (7, FieldValue::Fixed(nanos)) => began = nanos,
            (8, FieldValue::Fixed(nanos)) => ended = nanos,
            (9, FieldValue::Bytes(attribute)) => match key_and_value(attribute)? {
                (b"k8s.pod.uid", value) => uid = identifier(value),
                (b"k8s.namespace.name", value) => namespace = identifier(value),
                (b"k8s.pod.name", value) => name = identifier(value),
                _ => {}
            },
            // Status.message: SDKs set it with an error only.
            (15, FieldValue::Bytes(status)) => messages(status, 2, &mut |message| {
                error = Some(message).filter(|message| !message.is_empty());
                Ok(())
            })?,
            _ => {}
        }
    }
    let (Some(kind), Some(uid), Some(namespace), Some(name)) = (kind, uid, namespace, name) else {
        return Ok(None);
    };
    let pod = PodIdentity {
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
        attempt: 0,
    };
    let error = error.map(|text| SyncError::read(&String::from_utf8_lossy(text), &pod));
    Ok(Some(KubeletSpan {
        pod,
        kind,
        began: UnixMicros::from(time(began)),
        ended: UnixMicros::from(time(ended.max(began))),
        error,
    }))
}

/// Key and string value of a `KeyValue`.
fn key_and_value(mut rest: &[u8]) -> Result<(&[u8], &[u8]), MalformedRequest> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    while let Some(next) = field(&mut rest)? {
        match next {
            (1, FieldValue::Bytes(bytes)) => key = bytes,
            // AnyValue.string_value
            (2, FieldValue::Bytes(any)) => messages(any, 1, &mut |text| {
                value = text;
                Ok(())
            })?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A name or uid that is safe to show.
fn identifier(bytes: &[u8]) -> Option<&str> {
    let has_name_bytes = bytes
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || b"-.".contains(b));
    let is_name = (1..=MAX_NAME_LEN).contains(&bytes.len()) && has_name_bytes;
    std::str::from_utf8(bytes).ok().filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
    use prost::Message;

    use super::super::spans::{ExportedSpan, read};
    use super::*;

    fn text(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(value.into())),
            }),
            ..KeyValue::default()
        }
    }

    /// As the kubelet 1.36 exports it.
    fn sync_pod(message: &str) -> Span {
        Span {
            trace_id: vec![7; 16],
            span_id: vec![8; 8],
            name: "syncPod".into(),
            kind: 1,
            start_time_unix_nano: 1_000_000_000,
            end_time_unix_nano: 3_500_000_000,
            attributes: vec![
                text("k8s.pod.uid", "0f3a"),
                text("k8s.pod", "shop/web"),
                text("k8s.pod.name", "web"),
                text("k8s.pod.update_type", "create"),
                text("k8s.namespace.name", "shop"),
                text("token", "hunter2"),
            ],
            status: Some(Status {
                message: message.into(),
                code: 2,
            }),
            ..Span::default()
        }
    }

    fn request(scope: &str, span: Span) -> Vec<u8> {
        let scope_spans = ScopeSpans {
            scope: Some(InstrumentationScope {
                name: scope.into(),
                ..InstrumentationScope::default()
            }),
            spans: vec![span],
            ..ScopeSpans::default()
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                scope_spans: vec![scope_spans],
                ..ResourceSpans::default()
            }],
        }
        .encode_to_vec()
    }

    fn syncs(request: &[u8]) -> (Vec<KubeletSpan>, usize) {
        let (mut syncs, mut others) = (Vec::new(), 0);
        let count = read(request, |span| match span {
            ExportedSpan::Kubelet(sync) => syncs.push(*sync),
            ExportedSpan::Span(_) => others += 1,
        });
        assert_eq!(count, Ok(syncs.len() + others));
        (syncs, others)
    }

    #[test]
    fn a_sync_is_read_with_its_pod_times_and_error() {
        let scope = "k8s.io/kubernetes/pkg/kubelet";
        let (syncs, _) = syncs(&request(scope, sync_pod("network is not ready: hunter2")));
        let [sync] = &syncs[..] else { panic!("one") };
        assert_eq!((&*sync.pod.namespace, &*sync.pod.name), ("shop", "web"));
        assert_eq!((&*sync.pod.uid, sync.kind), ("0f3a", SyncKind::Sync));
        assert_eq!(
            (sync.began, sync.ended),
            (UnixMicros::new(1_000_000), UnixMicros::new(3_500_000))
        );
        assert!(sync.error.is_some() && !format!("{sync:?}").contains("hunter2"));
    }

    #[test]
    fn other_spans_are_not_taken_for_the_kubelets_work() {
        let of = |scope: &str, span: Span| syncs(&request(scope, span)).0.len();
        let scope = "k8s.io/kubernetes/pkg/kubelet";
        assert_eq!(of("github.com/containerd", sync_pod("")), 0);
        assert_eq!(of(scope, sync_pod("")), 1);
        let other = |name: &str| Span {
            name: name.into(),
            ..sync_pod("")
        };
        assert_eq!(of(scope, other("Images/GarbageCollect")), 0);
        let mut nameless = sync_pod("");
        nameless.attributes.remove(0);
        assert_eq!(of(scope, nameless), 0);
        let mut strange = sync_pod("");
        strange.attributes[0] = text("k8s.pod.uid", "<script>");
        assert_eq!(of(scope, strange), 0);
    }

    #[test]
    fn whatever_the_bytes_are_there_is_an_end() {
        let good = request("k8s.io/kubernetes/pkg/kubelet", sync_pod("no"));
        for cut in 0..good.len() {
            let _ = read(&good[..cut], |_| ());
            let mut flipped = good.clone();
            flipped[cut] ^= 0xff;
            let _ = read(&flipped, |_| ());
        }
    }
}
