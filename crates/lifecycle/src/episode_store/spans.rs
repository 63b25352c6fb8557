//! Attaches the runtime's own spans to their calls. They arrive in batches, before or after the end of their call.

use std::collections::VecDeque;

use opentelemetry::trace::SpanId;

use super::EpisodeStore;
use crate::RuntimeSpan;
use crate::episode_call::{EpisodeCall, ObservedWork};

/// Number of spans that may wait for the end of their call.
const MAX_PENDING_SPANS: usize = 1024;
/// Episodes that are searched, from the newest: a batch arrives a few seconds after its calls.
const MAX_SEARCHED_EPISODES: usize = 64;

/// Spans whose call has not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingSpans(VecDeque<RuntimeSpan>);

impl PendingSpans {
    /// Adds a span; evicts the oldest if there are too many.
    fn put(&mut self, span: RuntimeSpan) {
        if self.0.len() >= MAX_PENDING_SPANS {
            self.0.pop_front();
        }
        self.0.push_back(span);
    }

    /// Moves the spans that waited for this call to it.
    pub(super) fn attach_to(&mut self, call: &mut EpisodeCall) {
        let Some(client) = call.client_span() else {
            return;
        };
        if self.0.is_empty() {
            return;
        }
        let (own, others) = self.0.drain(..).partition(|span| span.client == client);
        self.0 = others;
        call.add_work(VecDeque::into_iter(own).map(|span| ObservedWork::from_span(&span)));
    }
}

impl EpisodeStore {
    /// Adds a span of the runtime.
    pub(crate) fn add_span(&mut self, span: RuntimeSpan) {
        // The runtime's own span of a call repeats the call.
        if span.depth == 0 {
            return;
        }
        let mut work = ObservedWork::from_span(&span);
        work.share_texts(&mut self.texts);
        match self.call_with(span.client) {
            Some(call) => call.add_work([work]),
            None => self.pending.put(span),
        }
    }

    fn call_with(&mut self, client: SpanId) -> Option<&mut EpisodeCall> {
        let newest = self.episodes.values_mut().rev().take(MAX_SEARCHED_EPISODES);
        newest
            .flat_map(|episode| episode.calls.iter_mut())
            .find(|call| call.client_span() == Some(client))
    }
}
