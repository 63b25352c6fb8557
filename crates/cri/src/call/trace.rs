//! The trace of a call: that of its caller, that of its episode, or a new one.
//!
//! Span ids are chosen when a call is received. Its episode is known only when the request message has been read, so the
//! placement of its spans is computed from both on demand, with a few comparisons.
//!
//! | the caller's `traceparent` | part of an episode | no part of one |
//! |---|---|---|
//! | none | below the episode's root span | a new trace |
//! | sampled | below the caller's span, linked to the episode's root | below the caller's span |
//! | not sampled | below the episode's root span, linked to the caller's; or, with `respects`, as without an episode | below the caller's span |

use opentelemetry::trace::{SpanContext, SpanId, TraceId, TraceState};

use super::episode;

/// A ratio of all traces. Membership follows from the trace id by the rule of OpenTelemetry's `TraceIdRatioBased`, so all
/// spans of a trace, and other samplers of that kind, get the same decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// No trace.
    pub const NONE: Self = Self(0);

    /// A ratio between 0 and 1; negative numbers and NaN are 0.
    pub fn from_ratio(ratio: f64) -> Self {
        // NaN passes clamp and becomes 0 in the cast.
        Self((ratio.clamp(0.0, 1.0) * (1u64 << 63) as f64) as u64)
    }

    /// Returns whether a trace is sampled.
    pub fn has(self, trace_id: TraceId) -> bool {
        let low = u128::from_be_bytes(trace_id.to_bytes()) as u64;
        low >> 1 < self.0
    }
}

/// Sampling of calls that belong to an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Share of episodes that are sampled as a whole.
    pub episodes: Share,
    /// Share of calls of this method that are sampled in addition.
    pub method: Share,
    /// Whether a caller's decision not to sample is respected.
    pub respects: bool,
}

/// Trace context of a call as it is received. Span ids are chosen then; whether they are exported is decided when the call
/// ends.
#[derive(Clone, Debug)]
pub struct TraceIds {
    /// The caller's span, from `traceparent`.
    pub parent: Option<SpanContext>,
    /// The caller's trace, or a new one.
    pub trace_id: TraceId,
    /// SERVER span.
    pub server: SpanId,
    /// CLIENT span of the call to the backend.
    pub client: SpanId,
    /// The sampling decision if it belongs to no episode.
    pub sampled: bool,
    /// The sampling rules if it belongs to one.
    pub joining: Joining,
}

/// Trace and parent of the spans of a call.
#[derive(Clone, Copy, Debug)]
pub struct SpanPlacement<'a> {
    /// The trace.
    pub trace_id: TraceId,
    /// The parent of the SERVER span; invalid if it has none.
    pub parent: SpanId,
    /// Whether that parent is the caller's.
    pub parent_is_remote: bool,
    /// SERVER span.
    pub server: SpanId,
    /// CLIENT span of the call to the backend.
    pub client: SpanId,
    /// The `tracestate` of the trace, if it is the caller's.
    pub state: Option<&'a TraceState>,
    /// A span of another trace that the SERVER span is linked to.
    pub link: Option<Link<'a>>,
    /// The sampled flag sent to the backend.
    pub sampled: bool,
}

/// A span of another trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Link<'a> {
    /// The caller's.
    Caller(&'a SpanContext),
    /// The root of the episode.
    Episode(episode::Ids),
}

impl TraceIds {
    /// The placement of the call's spans, given its episode.
    pub fn place(&self, episode: Option<&episode::Ids>) -> SpanPlacement<'_> {
        let caller = self.parent.as_ref();
        match (episode, caller) {
            (None, _) => self.outside(),
            (Some(ids), Some(parent)) if parent.is_sampled() || self.joining.respects => {
                let both = parent.is_sampled() && self.joining.episodes.has(ids.trace_id);
                SpanPlacement {
                    link: both.then_some(Link::Episode(*ids)),
                    ..self.outside()
                }
            }
            (Some(ids), _) => SpanPlacement {
                trace_id: ids.trace_id,
                parent: ids.root,
                parent_is_remote: false,
                server: self.server,
                client: self.client,
                state: None,
                link: caller.map(Link::Caller),
                sampled: self.joining.episodes.has(ids.trace_id)
                    || self.joining.method.has(ids.trace_id),
            },
        }
    }

    fn outside(&self) -> SpanPlacement<'_> {
        let parent = self.parent.as_ref();
        SpanPlacement {
            trace_id: self.trace_id,
            parent: parent.map_or(SpanId::INVALID, SpanContext::span_id),
            parent_is_remote: parent.is_some(),
            server: self.server,
            client: self.client,
            state: parent.map(SpanContext::trace_state),
            link: None,
            sampled: self.sampled,
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceFlags;

    use super::*;

    const ALL: Joining = Joining {
        episodes: Share(1 << 63),
        method: Share::NONE,
        respects: false,
    };

    fn ids(flags: Option<TraceFlags>, joining: Joining) -> TraceIds {
        let parent = flags.map(|flags| {
            let (trace, span) = (TraceId::from(7u128), SpanId::from(8u64));
            SpanContext::new(trace, span, flags, true, TraceState::NONE)
        });
        TraceIds {
            trace_id: TraceId::from(7u128),
            parent,
            server: SpanId::from(1u64),
            client: SpanId::from(2u64),
            sampled: flags == Some(TraceFlags::SAMPLED),
            joining,
        }
    }

    #[test]
    fn shares_follow_the_low_half_of_the_id() {
        let id = TraceId::from_hex("0af7651916cd43dd8448eb211c80319c").expect("hex");
        // 0x8448... >> 1 is 0.5167 of the range.
        let table = [
            (0.0, false),
            (0.51, false),
            (0.52, true),
            (1.0, true),
            (7.0, true),
            (-1.0, false),
            (f64::NAN, false),
        ];
        for (ratio, chosen) in table {
            assert_eq!(Share::from_ratio(ratio).has(id), chosen, "{ratio}");
        }
        let last = TraceId::from(u128::MAX);
        assert!(Share::from_ratio(1.0).has(last) && !Share::from_ratio(0.999_999).has(last));
        assert!(!Share::NONE.has(TraceId::from(1u128 << 64)));
    }

    /// The expected ids were computed with another program: every process that sees the same pod must derive the same ids.
    #[test]
    fn the_trace_of_an_episode_follows_from_the_pod() {
        let ids = episode::Ids::start("uid-1", 0);
        assert_eq!(ids.trace_id.to_string(), "d9026a535cfd8a156658345a747127e2");
        assert_eq!(ids.root.to_string(), "0fd3efd10e782af0");
        let others = [
            episode::Ids::start("uid-1", 1),
            episode::Ids::start("uid-2", 0),
            episode::Ids::restart("uid-1", "app", 0),
            episode::Ids::stop("uid-1", "0"),
        ];
        for other in others {
            assert_ne!(other.trace_id, ids.trace_id);
            assert_ne!(other.root, ids.root);
        }
    }

    #[test]
    fn placements_follow_the_table() {
        let episode = episode::Ids::start("uid-1", 0);
        let respects = Joining {
            respects: true,
            ..ALL
        };
        let (sampled, not) = (Some(TraceFlags::SAMPLED), Some(TraceFlags::default()));
        // The caller, the settings, whether it is in the episode's trace, whether it has a link, whether it is sampled.
        let table = [
            (None, ALL, true, false, true),
            (None, respects, true, false, true),
            (sampled, ALL, false, true, true),
            (sampled, respects, false, true, true),
            (not, ALL, true, true, true),
            (not, respects, false, false, false),
        ];
        for (flags, joining, inside, linked, told) in table {
            let ids = ids(flags, joining);
            let place = ids.place(Some(&episode));
            let (trace, parent) = if inside {
                (episode.trace_id, episode.root)
            } else {
                (TraceId::from(7u128), SpanId::from(8u64))
            };
            assert_eq!((place.trace_id, place.parent), (trace, parent), "{flags:?}");
            assert_eq!(place.parent_is_remote, !inside, "{flags:?}");
            assert_eq!(place.state.is_some(), !inside, "{flags:?}");
            assert_eq!(place.sampled, told, "{flags:?}");
            match place.link {
                None => assert!(!linked, "{flags:?}"),
                Some(Link::Episode(to)) => assert_eq!((linked, inside, to), (true, false, episode)),
                Some(Link::Caller(to)) => {
                    assert!(linked && inside);
                    assert_eq!(Some(to), ids.parent.as_ref());
                }
            }
        }
    }

    #[test]
    fn episodes_that_are_not_sampled_are_not_linked() {
        let none = Joining {
            episodes: Share::NONE,
            ..ALL
        };
        let episode = episode::Ids::start("uid-1", 0);
        assert!(!ids(None, none).place(Some(&episode)).sampled);
        let kubelets = ids(Some(TraceFlags::SAMPLED), none);
        let place = kubelets.place(Some(&episode));
        assert!(place.sampled, "as the caller decided");
        assert_eq!(place.link, None, "to a span that is not exported");
        let method = Joining {
            method: Share::from_ratio(1.0),
            ..none
        };
        assert!(ids(None, method).place(Some(&episode)).sampled);
    }
}
