//! Decodes ids, names and times of the spans in an OTLP export request (`opentelemetry/proto/collector/trace/v1`) in place.
//! Attributes, events, links and resources are skipped and never copied, except for the attributes of the kubelet's spans that
//! `kubelet` reads.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanId, TraceId};
use prost::encoding::{WireType, decode_key, decode_varint};

use super::kubelet;
use crate::kubelet::syncs::KubeletSpan;

/// Longest name, in characters.
const MAX_NAME_LEN: usize = 64;

/// A span as it was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReportedSpan {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent: SpanId,
    pub(super) name: Arc<str>,
    pub(super) began: SystemTime,
    pub(super) ended: SystemTime,
}

/// The bytes are not an export request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an export request")]
pub(super) struct MalformedRequest;

/// A field of a message: its number, and its content if its wire type matters here.
pub(super) enum FieldValue<'a> {
    Bytes(&'a [u8]),
    Fixed(u64),
    Other,
}

/// Consumes the next field (Protobuf encoding, "message structure").
pub(super) fn field<'a>(
    rest: &mut &'a [u8],
) -> Result<Option<(u32, FieldValue<'a>)>, MalformedRequest> {
    if rest.is_empty() {
        return Ok(None);
    }
    let (tag, kind) = decode_key(rest).map_err(|_| MalformedRequest)?;
    let value = match kind {
        WireType::Varint => {
            decode_varint(rest).map_err(|_| MalformedRequest)?;
            FieldValue::Other
        }
        WireType::SixtyFourBit => {
            let (bytes, left) = rest.split_first_chunk().ok_or(MalformedRequest)?;
            *rest = left;
            FieldValue::Fixed(u64::from_le_bytes(*bytes))
        }
        WireType::ThirtyTwoBit => {
            *rest = rest.get(4..).ok_or(MalformedRequest)?;
            FieldValue::Other
        }
        WireType::LengthDelimited => {
            let len = decode_varint(rest).map_err(|_| MalformedRequest)?;
            let len = usize::try_from(len).map_err(|_| MalformedRequest)?;
            let (bytes, left) = rest.split_at_checked(len).ok_or(MalformedRequest)?;
            *rest = left;
            FieldValue::Bytes(bytes)
        }
        WireType::StartGroup | WireType::EndGroup => return Err(MalformedRequest),
    };
    Ok(Some((tag, value)))
}

/// Passes every message in the field `tag` to `each`.
pub(super) fn messages<'a>(
    mut rest: &'a [u8],
    tag: u32,
    each: &mut dyn FnMut(&'a [u8]) -> Result<(), MalformedRequest>,
) -> Result<(), MalformedRequest> {
    while let Some((number, value)) = field(&mut rest)? {
        if let (true, FieldValue::Bytes(message)) = (number == tag, value) {
            each(message)?;
        }
    }
    Ok(())
}

/// A span of an export request.
pub(super) enum ExportedSpan {
    /// A span of a runtime, most probably.
    Span(ReportedSpan),
    /// A span of the kubelet's work on a pod.
    Kubelet(Box<KubeletSpan>),
}

/// Passes every span of an export request to `give`, and returns their number. Spans without ids are only counted.
///
/// # Errors
/// [`MalformedRequest`]; spans before the error have been passed on.
pub(super) fn read(
    request: &[u8],
    mut give: impl FnMut(ExportedSpan),
) -> Result<usize, MalformedRequest> {
    let mut count = 0;
    // ExportTraceServiceRequest.resource_spans, ResourceSpans.scope_spans, ScopeSpans.spans
    messages(request, 1, &mut |resource| {
        messages(resource, 2, &mut |scope| {
            let of_kubelet = kubelet::is_pod_worker_scope(scope)?;
            messages(scope, 2, &mut |bytes| {
                count += 1;
                if of_kubelet && let Some(sync) = kubelet::span(bytes)? {
                    give(ExportedSpan::Kubelet(Box::new(sync)));
                } else if let Some(reported) = span(bytes)? {
                    give(ExportedSpan::Span(reported));
                }
                Ok(())
            })
        })
    })?;
    Ok(count)
}

fn span(mut rest: &[u8]) -> Result<Option<ReportedSpan>, MalformedRequest> {
    let (mut trace_id, mut span_id, mut parent) = (None, None, None);
    let (mut name, mut began, mut ended): (&[u8], _, _) = (&[], 0, 0);
    while let Some(next) = field(&mut rest)? {
        match next {
            (1, FieldValue::Bytes(id)) => trace_id = id.try_into().ok().map(TraceId::from_bytes),
            (2, FieldValue::Bytes(id)) => span_id = id.try_into().ok().map(SpanId::from_bytes),
            (4, FieldValue::Bytes(id)) => parent = id.try_into().ok().map(SpanId::from_bytes),
            (5, FieldValue::Bytes(text)) => name = text,
            (7, FieldValue::Fixed(nanos)) => began = nanos,
            (8, FieldValue::Fixed(nanos)) => ended = nanos,
            _ => {}
        }
    }
    let (Some(trace_id), Some(span_id)) = (trace_id, span_id) else {
        return Ok(None);
    };
    Ok(Some(ReportedSpan {
        trace_id,
        span_id,
        parent: parent.unwrap_or(SpanId::INVALID),
        name: shown(name).into(),
        began: time(began),
        ended: time(ended.max(began)),
    }))
}

pub(super) fn time(nanos: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

/// A name that is safe to show. Go's decoration of type names is removed; the name ends at the first character outside `._/
/// -`, letters and digits, since a URL with credentials may follow.
fn shown(name: &[u8]) -> String {
    let name = name
        .iter()
        .filter(|b| !b"()*[]".contains(b))
        .take_while(|b| b.is_ascii_alphanumeric() || b"._/ -".contains(b))
        .take(MAX_NAME_LEN);
    let name: String = name.map(|b| char::from(*b)).collect();
    match name.trim() {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message;

    use super::*;

    fn request() -> Vec<u8> {
        let secret = KeyValue {
            key: "hunter2".into(),
            value: Some(AnyValue {
                value: Some(Value::StringValue("hunter2".into())),
            }),
            ..KeyValue::default()
        };
        let span = Span {
            trace_id: vec![7; 16],
            span_id: vec![8; 8],
            parent_span_id: vec![9; 8],
            trace_state: "a=hunter2".into(),
            name: "cri.sandbox.run".into(),
            kind: 2,
            start_time_unix_nano: 1_000_000_007,
            end_time_unix_nano: 2_000_000_008,
            attributes: vec![secret],
            ..Span::default()
        };
        let nameless = Span {
            trace_id: vec![1; 3],
            ..Span::default()
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                scope_spans: vec![ScopeSpans {
                    spans: vec![nameless, span],
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        }
        .encode_to_vec()
    }

    #[test]
    fn ids_names_and_times_are_read_and_nothing_else() {
        let mut spans = Vec::new();
        let give = |it| match it {
            ExportedSpan::Span(span) => spans.push(span),
            ExportedSpan::Kubelet(_) => panic!("not of the kubelet"),
        };
        assert_eq!(read(&request(), give), Ok(2));
        let [span] = &spans[..] else { panic!("one") };
        assert_eq!(span.trace_id, TraceId::from_bytes([7; 16]));
        assert_eq!(span.span_id, SpanId::from_bytes([8; 8]));
        assert_eq!(span.parent, SpanId::from_bytes([9; 8]));
        assert_eq!(&*span.name, "cri.sandbox.run");
        let took = span.ended.duration_since(span.began).expect("after");
        assert_eq!(took, Duration::from_nanos(1_000_000_001));
        assert!(!format!("{spans:?}").contains("hunter2"));
    }

    #[test]
    fn whatever_the_bytes_are_there_is_an_end() {
        let good = request();
        for cut in 0..good.len() {
            let _ = read(&good[..cut], |_| ());
            let mut flipped = good.clone();
            flipped[cut] ^= 0xff;
            let _ = read(&flipped, |_| ());
        }
        assert_eq!(
            read(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], |_| ()),
            Err(MalformedRequest)
        );
        assert_eq!(read(&[0x0b], |_| ()), Err(MalformedRequest));
        assert_eq!(read(&[], |_| ()), Ok(0));
    }

    #[test]
    fn names_are_cut_where_an_address_may_begin() {
        let table = [
            (
                "runtime.v1.RuntimeService/RunPodSandbox",
                "runtime.v1.RuntimeService/RunPodSandbox",
            ),
            (
                "server.(*Server).runPodSandbox",
                "server.Server.runPodSandbox",
            ),
            ("pull https://user:hunter2@reg/x", "pull https"),
            ("HTTP GET", "HTTP GET"),
            ("", "unnamed"),
            ("<script>", "unnamed"),
        ];
        for (name, want) in table {
            assert_eq!(shown(name.as_bytes()), want);
        }
        assert_eq!(shown(&[b'x'; 100]).len(), 64);
    }
}
