//! Assigns spans to calls: follows the parents of a span up to the CLIENT span of a call.
//!
//! Spans are exported when they end, so children arrive before their parents and wait for them here.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use opentelemetry::trace::{SpanId, TraceId};

use super::spans::ReportedSpan;
use crate::RuntimeSpan;

/// Lists the trace and span ids of calls that belong to episodes: calls in flight and calls that ended recently.
pub type CallSpanSource = Arc<dyn Fn() -> Vec<(TraceId, SpanId)> + Send + Sync>;

/// Upper bound of spans that wait for their parents.
const MAX_WAITING_SPANS: usize = 4096;

/// How long a span waits for its parent. A parent ends after its children, but no call of the kubelet takes longer.
const PARENT_TIMEOUT: Duration = Duration::from_secs(600);

/// Upper bound of spans that are kept as possible parents.
const MAX_PARENTS: usize = 8192;

/// Minimum interval between two reads of the spans of calls.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// Assignment of the spans of a request.
#[derive(Debug, Default)]
pub(super) struct SpanAssignment {
    /// Spans below calls; some may have waited since an earlier request.
    pub(super) attributed: Vec<RuntimeSpan>,
    /// Spans below no known call, or that waited too long.
    pub(super) unknown: usize,
    /// Spans dropped because too many waited.
    pub(super) dropped: usize,
}

/// The spans of calls, and the runtime's spans below them.
pub(super) struct SpanTree {
    call_spans: CallSpanSource,
    /// Time of the last read of `call_spans`.
    refreshed: Option<Instant>,
    /// The spans of calls.
    calls: HashSet<(TraceId, SpanId)>,
    /// The traces of calls.
    traces: HashSet<TraceId>,
    /// Spans of the runtime that are known to be parts of a call: the span of the call, and the depth below it.
    parents: LruCache<(TraceId, SpanId), (SpanId, u16)>,
    /// Waiting spans, by the parent that is missing.
    waiting: HashMap<(TraceId, SpanId), Vec<(Instant, ReportedSpan)>>,
    waiting_count: usize,
}

impl fmt::Debug for SpanTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanTree")
            .field("calls", &self.calls.len())
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl SpanTree {
    pub(super) fn new(call_spans: CallSpanSource) -> Self {
        Self {
            call_spans,
            refreshed: None,
            calls: HashSet::new(),
            traces: HashSet::new(),
            parents: LruCache::unbounded(),
            waiting: HashMap::new(),
            waiting_count: 0,
        }
    }

    /// Adds the spans of one request, and assigns spans whose call is known.
    pub(super) fn assign(&mut self, spans: Vec<ReportedSpan>, now: Instant) -> SpanAssignment {
        let mut sorted = SpanAssignment::default();
        self.refresh(now);
        sorted.unknown += self.give_up(now);
        let mut ready = Vec::new();
        for span in spans {
            let key = (span.trace_id, span.parent);
            if !self.traces.contains(&span.trace_id) || span.parent == SpanId::INVALID {
                sorted.unknown += 1;
            } else if self.waiting_count >= MAX_WAITING_SPANS {
                sorted.dropped += 1;
            } else {
                if self.calls.contains(&key) || self.parents.contains(&key) {
                    ready.push(key);
                }
                self.waiting.entry(key).or_default().push((now, span));
                self.waiting_count += 1;
            }
        }
        while let Some(key) = ready.pop() {
            self.settle(key, &mut ready, &mut sorted.attributed);
        }
        sorted
    }

    /// Attributes the spans that waited for this parent, and adds them to `ready`: others may wait for them.
    fn settle(
        &mut self,
        key: (TraceId, SpanId),
        ready: &mut Vec<(TraceId, SpanId)>,
        out: &mut Vec<RuntimeSpan>,
    ) {
        let position = match self.parents.get(&key) {
            Some((client, depth)) => Some((*client, depth.saturating_add(1))),
            None => self.calls.contains(&key).then_some((key.1, 0)),
        };
        let Some((client, depth)) = position else {
            return;
        };
        for (_, span) in self.waiting.remove(&key).unwrap_or_default() {
            self.waiting_count -= 1;
            let own = (span.trace_id, span.span_id);
            self.parents.put(own, (client, depth));
            if self.parents.len() > MAX_PARENTS {
                self.parents.pop_lru();
            }
            ready.push(own);
            out.push(RuntimeSpan {
                trace_id: span.trace_id,
                client,
                span_id: span.span_id,
                parent: span.parent,
                depth,
                name: span.name,
                began: span.began,
                ended: span.ended,
            });
        }
    }

    fn refresh(&mut self, now: Instant) {
        let age = self.refreshed.map(|at| now.saturating_duration_since(at));
        if age.is_some_and(|age| age < REFRESH_INTERVAL) {
            return;
        }
        self.refreshed = Some(now);
        self.calls = (self.call_spans)().into_iter().collect();
        self.traces = self.calls.iter().map(|(trace, _)| *trace).collect();
        // Spans may arrive before their call is known.
        for (trace, _) in self.waiting.keys() {
            self.traces.insert(*trace);
        }
    }

    /// Drops spans whose parents never arrived; returns their number.
    fn give_up(&mut self, now: Instant) -> usize {
        let before = self.waiting_count;
        self.waiting.retain(|_, spans| {
            spans.retain(|(since, _)| now.saturating_duration_since(*since) < PARENT_TIMEOUT);
            !spans.is_empty()
        });
        self.waiting_count = self.waiting.values().map(Vec::len).sum();
        before - self.waiting_count
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::SystemTime;

    use super::*;

    const TRACE: TraceId = TraceId::from_bytes([1; 16]);

    fn id(n: u16) -> SpanId {
        SpanId::from(u64::from(n))
    }

    fn span(n: u16, parent: u16) -> ReportedSpan {
        ReportedSpan {
            trace_id: TRACE,
            span_id: id(n),
            parent: id(parent),
            name: "x".into(),
            began: SystemTime::UNIX_EPOCH,
            ended: SystemTime::UNIX_EPOCH,
        }
    }

    fn span_tree() -> SpanTree {
        SpanTree::new(Arc::new(|| vec![(TRACE, id(100)), (TRACE, id(200))]))
    }

    fn attributed(sorted: &SpanAssignment) -> Vec<(u64, u64, u16)> {
        let number = |id: SpanId| u64::from_be_bytes(id.to_bytes());
        let spans = sorted.attributed.iter();
        let mut attributed: Vec<_> = spans
            .map(|s| (number(s.span_id), number(s.client), s.depth))
            .collect();
        attributed.sort_unstable();
        attributed
    }

    #[test]
    fn children_wait_for_their_parents() {
        let mut span_tree = span_tree();
        let now = Instant::now();
        let sorted = span_tree.assign(vec![span(3, 2), span(4, 2), span(12, 11)], now);
        assert_eq!(
            (attributed(&sorted).len(), sorted.unknown, sorted.dropped),
            (0, 0, 0)
        );
        let sorted = span_tree.assign(vec![span(2, 1), span(1, 100)], now);
        assert_eq!(
            attributed(&sorted),
            [(1, 100, 0), (2, 100, 1), (3, 100, 2), (4, 100, 2)]
        );
        let sorted = span_tree.assign(vec![span(5, 4), span(11, 200)], now);
        assert_eq!(
            attributed(&sorted),
            [(5, 100, 3), (11, 200, 0), (12, 200, 1)]
        );
        assert!(span_tree.waiting.is_empty());
    }

    #[test]
    fn strangers_are_not_kept() {
        let mut span_tree = span_tree();
        let now = Instant::now();
        let mut other = span(1, 100);
        other.trace_id = TraceId::from_bytes([2; 16]);
        let sorted = span_tree.assign(vec![other, span(1, 0), span(7, 6)], now);
        assert_eq!((attributed(&sorted).len(), sorted.unknown), (0, 2));
        let sorted = span_tree.assign(vec![], now + PARENT_TIMEOUT);
        assert_eq!(sorted.unknown, 1, "its parent never arrived");
        assert_eq!(span_tree.waiting_count, 0);
    }

    #[test]
    fn there_is_an_end_to_what_waits_and_to_rings() {
        let mut span_tree = span_tree();
        let now = Instant::now();
        let many = (0..5000).map(|n| span(10_000 + n, 9_999)).collect();
        let sorted = span_tree.assign(many, now);
        assert_eq!(
            (sorted.dropped, span_tree.waiting_count),
            (5000 - MAX_WAITING_SPANS, MAX_WAITING_SPANS)
        );
        let mut span_tree = self::span_tree();
        let ring = vec![span(1, 2), span(2, 1), span(3, 3), span(100, 100)];
        let sorted = span_tree.assign(ring, now);
        assert!(sorted.attributed.len() <= 1);
    }

    #[test]
    fn calls_that_come_later_are_heard_of() {
        let calls = Arc::new(Mutex::new(vec![(TRACE, id(100))]));
        let ours = Arc::clone(&calls);
        let mut span_tree = SpanTree::new(Arc::new(move || ours.lock().expect("lock").clone()));
        let now = Instant::now();
        assert_eq!(
            span_tree.assign(vec![span(1, 300)], now).attributed.len(),
            0
        );
        calls.lock().expect("lock").push((TRACE, id(300)));
        let sorted = span_tree.assign(vec![span(2, 300)], now + REFRESH_INTERVAL);
        assert_eq!(attributed(&sorted), [(1, 300, 0), (2, 300, 0)]);
    }
}
