//! W3C Trace Context in the headers of a call (<https://www.w3.org/TR/trace-context/>, level 1).
//!
//! `traceparent` is replaced by our own client span. `baggage` and all other headers are forwarded unchanged, and so is
//! `tracestate` unless the call is moved to another trace than its caller's.

use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::sampling::SamplingRules;
use criscope_cri::Method;
use criscope_cri::call::trace::{SpanPlacement, TraceIds};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of a `traceparent` of version 00.
const TRACEPARENT_LEN: usize = 55;

/// Returns the caller's span, if the headers name one. An invalid `traceparent`, or several, count as none; an invalid
/// `tracestate` is ignored.
pub fn extract(headers: &HeaderMap) -> Option<SpanContext> {
    let mut parents = headers.get_all(&TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else {
        return None;
    };
    let (trace_id, span_id, flags) = parse(parent.to_str().ok()?.trim())?;
    Some(SpanContext::new(
        trace_id,
        span_id,
        flags,
        true,
        state(headers),
    ))
}

/// Parses `VERSION-TRACEID-SPANID-FLAGS`, all in lower-case hex. Versions after 00 may append fields.
fn parse(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    let bytes = text.as_bytes();
    let dashes =
        bytes.get(2) == Some(&b'-') && bytes.get(35) == Some(&b'-') && bytes.get(52) == Some(&b'-');
    if !dashes {
        return None;
    }
    let version = u8::try_from(hex(bytes.get(..2)?)?).ok()?;
    let whole = match version {
        0 => bytes.len() == TRACEPARENT_LEN,
        0xff => false,
        _ => bytes.len() == TRACEPARENT_LEN || bytes.get(TRACEPARENT_LEN) == Some(&b'-'),
    };
    if !whole {
        return None;
    }
    let trace_id = TraceId::from(hex(bytes.get(3..35)?)?);
    let span_id = SpanId::from(u64::try_from(hex(bytes.get(36..52)?)?).ok()?);
    let flags = TraceFlags::new(u8::try_from(hex(bytes.get(53..TRACEPARENT_LEN)?)?).ok()?)
        & TraceFlags::SAMPLED;
    (trace_id != TraceId::INVALID && span_id != SpanId::INVALID)
        .then_some((trace_id, span_id, flags))
}

fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

fn state(headers: &HeaderMap) -> TraceState {
    let mut values = headers
        .get_all(&TRACESTATE)
        .iter()
        .filter_map(|v| v.to_str().ok());
    let Some(first) = values.next() else {
        return TraceState::NONE;
    };
    let mut list = first.to_owned();
    for value in values {
        list.push(',');
        list.push_str(value);
    }
    TraceState::from_str(&list).unwrap_or(TraceState::NONE)
}

/// Returns the trace context of a received call: that of its caller, or a new one.
pub fn begin(headers: &HeaderMap, method: Method, rules: &SamplingRules) -> TraceIds {
    let ids = RandomIdGenerator::default();
    let parent = extract(headers);
    let trace_id = parent
        .as_ref()
        .map_or_else(|| ids.new_trace_id(), SpanContext::trace_id);
    let sampled = parent.as_ref().map(SpanContext::is_sampled);
    TraceIds {
        parent,
        trace_id,
        server: ids.new_span_id(),
        client: ids.new_span_id(),
        sampled: rules.chooses(method, trace_id, sampled),
        joining: rules.joining(method),
    }
}

/// Sets our client span as the parent of the backend's spans. A `tracestate` of another trace is removed, as the
/// specification asks.
pub fn inject(place: &SpanPlacement<'_>, headers: &mut HeaderMap) {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    write_hex(&mut text[3..35], &place.trace_id.to_bytes());
    write_hex(&mut text[36..52], &place.client.to_bytes());
    write_hex(&mut text[53..], &[u8::from(place.sampled)]);
    if let Ok(value) = HeaderValue::from_bytes(&text) {
        headers.insert(&TRACEPARENT, value);
    }
    if place.state.is_none() {
        headers.remove(&TRACESTATE);
    }
}

fn write_hex(out: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampling::testing;
    use super::*;
    use criscope_cri::call::episode;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).expect("value"));
        }
        headers
    }

    fn sampling(mutating: f64, polls: f64) -> SamplingRules {
        SamplingRules::new(&testing::sampling(mutating, polls))
    }

    #[test]
    fn traceparents_are_parsed_per_specification() {
        let accepted = [
            (format!("00-{TRACE}-{SPAN}-01"), true),
            (format!("00-{TRACE}-{SPAN}-00"), false),
            // Flags other than "sampled" are ignored.
            (format!("00-{TRACE}-{SPAN}-03"), true),
            (format!("00-{TRACE}-{SPAN}-fe"), false),
            // Later versions may append fields.
            (format!("01-{TRACE}-{SPAN}-01"), true),
            (
                format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"),
                true,
            ),
            (format!(" 00-{TRACE}-{SPAN}-01 "), true),
        ];
        for (text, sampled) in accepted {
            let context = extract(&headers(&[("traceparent", &text)])).expect(&text);
            assert_eq!(context.trace_id().to_string(), TRACE, "{text}");
            assert_eq!(context.span_id().to_string(), SPAN, "{text}");
            assert_eq!(context.is_sampled(), sampled, "{text}");
            assert!(context.is_remote());
        }
        let refused = [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("zz-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0X"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}--{SPAN}-01"),
            format!("00-{}-{SPAN}-01", &TRACE[1..]),
            format!("00_{TRACE}_{SPAN}_01"),
        ];
        for text in refused {
            assert!(
                extract(&headers(&[("traceparent", &text)])).is_none(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn two_traceparents_count_as_none() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        assert!(extract(&headers(&[("traceparent", &text), ("traceparent", &text)])).is_none());
    }

    #[test]
    fn tracestates_are_joined_and_invalid_ones_ignored() {
        let parent = format!("00-{TRACE}-{SPAN}-01");
        let state = |states: &[&str]| {
            let mut all = headers(&[("traceparent", &parent)]);
            for state in states {
                all.append("tracestate", HeaderValue::from_str(state).expect("value"));
            }
            extract(&all).expect("a parent").trace_state().header()
        };
        assert_eq!(state(&[]), "");
        assert_eq!(state(&["a=1,b=2"]), "a=1,b=2");
        assert_eq!(state(&["a=1", "b=2"]), "a=1,b=2");
        assert_eq!(state(&["what?"]), "");
    }

    #[test]
    fn sampling_follows_ratios_and_the_caller() {
        let parent =
            |flags: &str| headers(&[("traceparent", &format!("00-{TRACE}-{SPAN}-{flags}"))]);
        let none = HeaderMap::new();
        let table = [
            (&none, Method::StopContainer, sampling(1.0, 0.0), true),
            (&none, Method::StopContainer, sampling(0.0, 1.0), false),
            (&none, Method::Version, sampling(1.0, 0.0), false),
            (&none, Method::Version, sampling(0.0, 1.0), true),
            (&none, Method::GetContainerEvents, sampling(1.0, 0.0), false),
            (&none, Method::StopContainer, sampling(f64::NAN, 0.0), false),
            (&parent("01"), Method::Version, sampling(0.0, 0.0), true),
            (&parent("00"), Method::Version, sampling(0.0, 0.0), false),
            (
                &parent("00"),
                Method::StopContainer,
                sampling(1.0, 0.0),
                true,
            ),
            // 0x8448... >> 1 is 0.5167 of the range.
            (
                &parent("00"),
                Method::StopContainer,
                sampling(0.51, 0.0),
                false,
            ),
            (
                &parent("00"),
                Method::StopContainer,
                sampling(0.52, 0.0),
                true,
            ),
        ];
        for (i, (headers, method, rules, sampled)) in table.iter().enumerate() {
            assert_eq!(begin(headers, *method, rules).sampled, *sampled, "row {i}");
        }
        let kept = (0..4000)
            .filter(|_| begin(&none, Method::StopContainer, &sampling(0.25, 0.0)).sampled)
            .count();
        assert!((800..1200).contains(&kept), "{kept} of 4000");
    }

    #[test]
    fn a_new_call_has_new_ids() {
        let all = sampling(1.0, 1.0);
        let (a, b) = (
            begin(&HeaderMap::new(), Method::Version, &all),
            begin(&HeaderMap::new(), Method::Version, &all),
        );
        assert_ne!(a.trace_id, b.trace_id);
        assert_ne!(a.server, a.client);
        assert_ne!(a.server, b.server);
        assert!(a.parent.is_none());
    }

    #[test]
    fn the_backend_gets_our_client_span_and_other_headers_unchanged() {
        let mut all = headers(&[
            ("traceparent", &format!("00-{TRACE}-{SPAN}-00")),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("baggage", "k=v;p"),
        ]);
        let ids = begin(&all, Method::StopContainer, &sampling(1.0, 0.0));
        inject(&ids.place(None), &mut all);
        let sent = all.get("traceparent").expect("set").to_str().expect("text");
        assert_eq!(sent, format!("00-{TRACE}-{}-01", ids.client));
        let states: Vec<_> = all.get_all("tracestate").iter().collect();
        assert_eq!(states, ["a=1", "b=2"]);
        assert_eq!(all.get("baggage").expect("kept"), "k=v;p");
        let next = extract(&all).expect("what we send is valid");
        assert_eq!(next.span_id(), ids.client);
    }

    #[test]
    fn a_tracestate_without_a_trace_is_removed() {
        let mut all = headers(&[("traceparent", "rubbish"), ("tracestate", "a=1")]);
        let ids = begin(&all, Method::Version, &sampling(1.0, 0.0));
        inject(&ids.place(None), &mut all);
        assert!(all.get("tracestate").is_none());
        let sent = all.get("traceparent").expect("set").to_str().expect("text");
        assert_eq!(sent, format!("00-{}-{}-00", ids.trace_id, ids.client));
    }

    #[test]
    fn calls_of_episodes_leave_unsampled_traces() {
        let episode = episode::Ids::start("uid-1", 0);
        for (flags, trace, states) in [
            ("00", episode.trace_id.to_string(), 0),
            ("01", TRACE.to_owned(), 1),
        ] {
            let mut all = headers(&[
                ("traceparent", &format!("00-{TRACE}-{SPAN}-{flags}")),
                ("tracestate", "a=1"),
                ("baggage", "k=v"),
            ]);
            let ids = begin(&all, Method::RunPodSandbox, &sampling(0.0, 0.0));
            inject(&ids.place(Some(&episode)), &mut all);
            let sent = all.get("traceparent").expect("set").to_str().expect("text");
            assert_eq!(sent, format!("00-{trace}-{}-01", ids.client));
            assert_eq!(all.get_all("tracestate").iter().count(), states);
            assert!(all.contains_key("baggage"));
        }
    }
}
