//! The trace of an episode: the spans that belong to no call.
//!
//! ```text
//! pod.start (INTERNAL; id derived from the pod; links to the kubelet's spans, if it samples)
//! ├─ runtime.v1.RuntimeService/RunPodSandbox (SERVER)         exported when the call ended
//! │   └─ runtime.v1.RuntimeService/RunPodSandbox (CLIENT)     "
//! │       ├─ cni.plugin/calico                                seen while it ran; criscope.inferred
//! │       └─ oci.runc                                         "
//! ├─ outside_cri                                              50 ms or more in which no call was in flight
//! ├─ init_container                                           the same, while a container did its work that others wait for
//! ├─ cri.call/StartContainer                                  stands for a call in another trace; links to it
//! └─ pod.start.end                                            the end, if the root was exported before
//! ```
//!
//! The root of an episode that fails for a minute is exported then, with the outcome `failing`. The root of a start that
//! continues after it was closed was exported too. In both cases the end has a span of its own, since a span is exported once.
//!
//! The ids of trace and root span are derived from the pod (see [`episode`](criscope_cri::call::episode)), so calls can name the
//! root as their parent long before it is exported, when the episode is closed.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, Status, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData};
use opentelemetry_semantic_conventions::attribute as key;

use super::episode_subscriber::EpisodeSubscriber;
use super::view::{CallDetail, CallView, EpisodeState, EpisodeView};
use criscope_cri::call::SpanIds;
use criscope_cri::call::episode::{Ids, Kind};
use criscope_telemetry::otlp::{self, SpanSink};
use criscope_telemetry::sampling::LiveSamplingRules;

/// Shortest gap between two calls that has a span.
const MIN_GAP_MS: f64 = 50.0;

/// Most links of a root span.
const MAX_LINKS: usize = 32;

/// Longest text in an attribute, in bytes.
const MAX_TEXT_LEN: usize = 256;

/// Exports the spans of closed episodes.
#[derive(Debug)]
pub struct EpisodeTracer {
    sink: SpanSink,
    rules: LiveSamplingRules,
    scope: InstrumentationScope,
}

impl EpisodeTracer {
    /// Exports to `sink` the episodes that `rules` select, and those with an exported call.
    pub fn new(sink: SpanSink, rules: LiveSamplingRules) -> Self {
        Self {
            sink,
            rules,
            scope: otlp::scope(),
        }
    }
}

impl EpisodeSubscriber for EpisodeTracer {
    fn closed(&self, episode: &EpisodeView, ids: &Ids) {
        if !self.keeps(episode, ids) {
            return;
        }
        let spans = self.spans(episode, ids);
        self.sink.export(spans.root());
        self.export_rest(&spans, 0.0);
    }

    /// Exports the root alone, so that the trace has one while the episode lasts. Its end is not known yet.
    fn failing(&self, episode: &EpisodeView, ids: &Ids) {
        self.sink.export(self.spans(episode, ids).root());
    }

    /// A span cannot be exported twice: a child of the root tells how the episode ended.
    fn continued(&self, episode: &EpisodeView, ids: &Ids, from: f64) {
        if self.keeps(episode, ids) {
            let spans = self.spans(episode, ids);
            self.sink.export(spans.end());
            self.export_rest(&spans, from);
        }
    }

    /// Returns whether an episode is exported: one of its calls was exported in this trace, or the episode is sampled and one
    /// of its calls is in the trace of a caller that samples. Calls from before a restart count as exported if the episode is
    /// sampled.
    fn keeps(&self, episode: &EpisodeView, ids: &Ids) -> bool {
        let chosen = self.rules.load().chooses_episode(ids.trace_id);
        episode.calls.iter().any(|call| match &call.spans {
            None => chosen,
            Some(spans) if spans.trace_id == ids.trace_id => spans.kept,
            Some(spans) => chosen && sampling_caller(spans).is_some(),
        })
    }
}

impl EpisodeTracer {
    fn spans<'a>(&'a self, episode: &'a EpisodeView, ids: &'a Ids) -> EpisodeSpans<'a> {
        EpisodeSpans {
            episode,
            ids,
            scope: &self.scope,
            began: episode.began_unix_us.into(),
        }
    }

    /// Exports the spans below the root that began at `from_ms` or later. Times count from the begin of the episode.
    fn export_rest(&self, spans: &EpisodeSpans<'_>, from_ms: f64) {
        let (episode, ids) = (spans.episode, spans.ids);
        for span in spans
            .gaps(from_ms)
            .into_iter()
            .chain(spans.retries(from_ms))
        {
            self.sink.export(span);
        }
        for call in episode
            .calls
            .iter()
            .filter(|call| call.offset_ms >= from_ms)
        {
            let Some(of_call) = call.spans.as_ref().filter(|spans| spans.kept) else {
                continue;
            };
            if of_call.trace_id != ids.trace_id {
                self.sink.export(spans.stand_in(call, of_call));
            }
            for detail in call.details.iter().filter(|d| d.source == "process") {
                self.sink.export(spans.detail(detail, of_call));
            }
        }
    }
}

fn sampling_caller(spans: &SpanIds) -> Option<&SpanContext> {
    let caller = spans.caller.as_deref();
    caller.filter(|caller| caller.is_sampled())
}

/// Builds the spans of one episode.
struct EpisodeSpans<'a> {
    episode: &'a EpisodeView,
    ids: &'a Ids,
    scope: &'a InstrumentationScope,
    began: SystemTime,
}

impl EpisodeSpans<'_> {
    fn root(&self) -> SpanData {
        let episode = self.episode;
        let name = format!("pod.{}", episode.kind);
        let times = (0.0, episode.duration_ms);
        let mut root = self.span(self.ids.trace_id, SpanId::INVALID, name, times);
        root.span_context = context(self.ids.trace_id, self.ids.root);
        self.describe_episode(&mut root);
        let mut seen = HashSet::new();
        let callers = episode.calls.iter().filter_map(|call| {
            let caller = sampling_caller(call.spans.as_ref()?)?;
            seen.insert((caller.trace_id(), caller.span_id()))
                .then(|| Link::with_context(caller.clone()))
        });
        root.links.links.extend(callers.take(MAX_LINKS));
        root
    }

    /// The end of an episode whose root was exported before.
    fn end(&self) -> SpanData {
        let name = format!("pod.{}.end", self.episode.kind);
        let times = (0.0, self.episode.duration_ms);
        let mut end = self.span(self.ids.trace_id, self.ids.root, name, times);
        self.describe_episode(&mut end);
        end
    }

    /// Sets attributes and status of the episode.
    fn describe_episode(&self, span: &mut SpanData) {
        let episode = self.episode;
        span.attributes = attributes(episode);
        if matches!(episode.state, EpisodeState::Failed | EpisodeState::Failing) {
            let last = episode.calls.iter().rev().find(|call| call.is_failed());
            let code = last.map_or("given_up", |call| &call.code);
            span.attributes.push(text(key::ERROR_TYPE, code));
            let message = last.and_then(|call| call.error.as_deref());
            span.status = Status::error(cut(message.unwrap_or_default()).to_owned());
        }
    }

    /// The roots of the traces of containers that were tried again in this episode, or had run in an earlier sandbox. Their
    /// calls are in traces of their own, since the trace of a call follows from the call alone. Each root links to the root of
    /// the episode.
    fn retries(&self, from: f64) -> Vec<SpanData> {
        let mut roots = BTreeMap::<_, (Ids, f64, f64, &CallView)>::new();
        for call in self.episode.calls.iter().filter(|c| c.offset_ms >= from) {
            let Some((ids, end)) = self.own_trace(call) else {
                continue;
            };
            let root = roots.entry(ids.root.to_bytes());
            let root = root.or_insert((ids, call.offset_ms, end, call));
            root.2 = root.2.max(end);
        }
        let spans = roots
            .into_values()
            .take(MAX_LINKS)
            .map(|(ids, from, to, call)| {
                let mut root = self.span(
                    ids.trace_id,
                    SpanId::INVALID,
                    "pod.restart",
                    (from, to - from),
                );
                root.span_context = context(ids.trace_id, ids.root);
                root.attributes = attributes(self.episode);
                root.attributes.extend(
                    call.container
                        .as_deref()
                        .map(|name| text(key::K8S_CONTAINER_NAME, name)),
                );
                let episode = context(self.ids.trace_id, self.ids.root);
                root.links.links.push(Link::with_context(episode));
                root
            });
        spans.collect()
    }

    /// The trace of the container in which this call was exported, and the end of the call.
    fn own_trace(&self, call: &CallView) -> Option<(Ids, f64)> {
        let spans = call.spans.as_ref().filter(|spans| spans.kept)?;
        let (name, attempt) = (call.container.as_deref()?, call.container_attempt?);
        let ids = Ids::restart(&self.episode.uid, name, attempt);
        let is_own = ids.trace_id == spans.trace_id && ids.trace_id != self.ids.trace_id;
        is_own.then_some((ids, call.offset_ms + call.duration_ms))
    }

    /// Gaps between calls from `from` on; none if calls were forgotten.
    fn gaps(&self, from: f64) -> Vec<SpanData> {
        if self.episode.calls_forgotten > 0 {
            return Vec::new();
        }
        let mut covered = 0.0_f64;
        let mut gaps = Vec::new();
        for (n, call) in self.episode.calls.iter().enumerate() {
            if call.offset_ms - covered >= MIN_GAP_MS && covered >= from {
                let times = (covered, call.offset_ms - covered);
                let init = self.episode.waits.iter().find(|wait| wait.before == n);
                let name = init.map_or("outside_cri", |_| "init_container");
                let mut gap = self.span(self.ids.trace_id, self.ids.root, name, times);
                let container = init.map(|wait| text(key::K8S_CONTAINER_NAME, &wait.container));
                gap.attributes.extend(container);
                gaps.push(gap);
            }
            covered = covered.max(call.offset_ms + call.duration_ms);
        }
        gaps
    }

    /// A span for a call whose own spans are in its caller's trace.
    fn stand_in(&self, call: &CallView, spans: &SpanIds) -> SpanData {
        let name = format!("cri.call/{}", call.method);
        let times = (call.offset_ms, call.duration_ms);
        let mut span = self.span(self.ids.trace_id, self.ids.root, name, times);
        span.attributes
            .push(text(otlp::RPC_STATUS_CODE, &call.code));
        if call.is_failed() {
            span.attributes.push(text(key::ERROR_TYPE, &call.code));
            let message = call.error.as_deref().unwrap_or_default();
            span.status = Status::error(cut(message).to_owned());
        }
        let server = context(spans.trace_id, spans.server);
        span.links.links.push(Link::with_context(server));
        span
    }

    /// A process that worked for a call.
    fn detail(&self, detail: &CallDetail, spans: &SpanIds) -> SpanData {
        let name = match detail.what.as_str() {
            "cni" => format!("cni.plugin/{}", detail.name),
            what => format!("{what}.{}", detail.name),
        };
        let times = (detail.offset_ms, detail.duration_ms);
        let mut span = self.span(spans.trace_id, spans.client, name, times);
        span.attributes
            .push(KeyValue::new("criscope.inferred", true));
        if let Some(command) = &detail.command {
            span.attributes.push(text("criscope.cni.command", command));
        }
        if let Some(doing) = &detail.doing {
            span.attributes.push(text("criscope.doing", doing));
        }
        span
    }

    /// A span that begins `begin_ms` after the episode and lasts `took_ms`.
    fn span(
        &self,
        trace_id: TraceId,
        parent: SpanId,
        name: impl Into<std::borrow::Cow<'static, str>>,
        (begin_ms, took_ms): (f64, f64),
    ) -> SpanData {
        let start = self.began + time_from_ms(begin_ms);
        let own = RandomIdGenerator::default().new_span_id();
        let times = (start, start + time_from_ms(took_ms));
        otlp::span(self.scope, context(trace_id, own), parent, name, times)
    }
}

fn attributes(episode: &EpisodeView) -> Vec<KeyValue> {
    let attempt = i64::from(episode.attempt);
    let mut out = vec![
        text(key::K8S_NAMESPACE_NAME, &episode.namespace),
        text(key::K8S_POD_NAME, &episode.name),
        text(key::K8S_POD_UID, &episode.uid),
    ];
    match &episode.container {
        Some(container) => {
            out.push(text(key::K8S_CONTAINER_NAME, container));
            out.push(KeyValue::new(key::K8S_CONTAINER_RESTART_COUNT, attempt));
        }
        None => out.push(KeyValue::new("criscope.sandbox.attempt", attempt)),
    }
    if let Some(id) = &episode.sandbox_id {
        out.push(text("criscope.sandbox.id", id));
    }
    if !episode.handler.is_empty() {
        out.push(text("criscope.runtime_handler", &episode.handler));
    }
    out.push(KeyValue::new("criscope.outcome", episode.state.name()));
    out.push(KeyValue::new(
        "criscope.retries",
        i64::from(episode.retries),
    ));
    if episode.kind != Kind::Stop.name() {
        out.push(KeyValue::new("criscope.image.pulled", episode.pulled));
    }
    out
}

fn context(trace_id: TraceId, span: SpanId) -> SpanContext {
    otlp::context(trace_id, span, None)
}

fn time_from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()
}

fn text(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, cut(value).to_owned())
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_LEN)]
}

#[cfg(test)]
mod tests;
