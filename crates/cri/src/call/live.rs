//! A call on the request path. Each layer adds its part.
//!
//! `instrument` creates it; it travels in the request's extensions as an `Arc`, and is read when the call ends and by
//! `/debug/calls` before that. Every field is written at most once or is an atomic, so a reader never blocks a writer.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::episode;
use super::fault::{FaultKind, InjectedFault};
use super::joined::JoinedCall;
use super::peer::Peer;
use super::route::Route;
use super::steps::RuntimeSteps;
use super::trace::{SpanPlacement, TraceIds};
use crate::method::{ApiVersion, Method};
use crate::subject::{ResponseDetails, Subject};

crate::named! {
    /// The stage of a call in flight.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum CallStage {
        /// Reading the request message.
        Reading = "reading",
        /// Choosing the backend.
        Routing = "routing",
        /// Connecting to the backend.
        Connecting = "connecting",
        /// Waiting for the first byte of the response.
        Waiting = "waiting",
        /// Forwarding the response.
        Answering = "answering",
    }
}

/// Bytes that `Debug` does not print.
#[derive(Clone)]
pub struct Sealed(Bytes);

impl Sealed {
    /// Wraps bytes.
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Everything known about one call.
#[derive(Debug)]
pub struct Call {
    /// Counts calls since the start of the process.
    pub seq: u64,
    /// The method.
    pub method: Method,
    /// The API version in the request path.
    pub api: ApiVersion,
    /// The path of a [`Method::Other`], cut to 128 printable ASCII characters.
    pub other_path: Option<Box<str>>,
    /// When the request headers were read.
    pub started: Instant,
    /// The same on the wall clock.
    pub started_at: SystemTime,
    /// The caller's deadline (`grpc-timeout`), counted from `started`.
    pub deadline: Option<Duration>,
    /// The caller.
    pub peer: Arc<Peer>,
    /// Trace context of the request headers; `None` when traces are off. See [`Call::placement`].
    pub trace: Option<TraceIds>,
    /// The trace of its episode, set when the request message has been read.
    pub episode: OnceLock<episode::Ids>,
    /// The request message, if it was read completely and is not compressed. Used to redact error messages: it
    /// distinguishes ids in them from secrets.
    pub message: OnceLock<Sealed>,
    /// Pod, container and image, from the request and the pod index.
    pub subject: OnceLock<Subject>,
    /// Ids and exit codes from the response.
    pub response: OnceLock<ResponseDetails>,
    /// The backend.
    pub route: OnceLock<Route>,
    /// Steps of the built-in runtime, if that serves the call.
    pub steps: OnceLock<Arc<RuntimeSteps>>,
    joined: OnceLock<JoinedCall>,
    fault: OnceLock<FaultKind>,
    held_from: AtomicU64,
    held_until: AtomicU64,
    stage: AtomicU8,
    share_used: AtomicU32,
    kept: AtomicBool,
    backend_began: AtomicU64,
    backend_ended: AtomicU64,
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
}

const UNSET: u64 = u64::MAX;

impl Call {
    /// Creates a call that has just been received.
    pub fn new(
        seq: u64,
        method: Method,
        api: ApiVersion,
        deadline: Option<Duration>,
        peer: Arc<Peer>,
        trace: Option<TraceIds>,
    ) -> Self {
        Self {
            seq,
            method,
            api,
            other_path: None,
            started: Instant::now(),
            started_at: SystemTime::now(),
            deadline,
            peer,
            trace,
            episode: OnceLock::new(),
            message: OnceLock::new(),
            subject: OnceLock::new(),
            response: OnceLock::new(),
            route: OnceLock::new(),
            steps: OnceLock::new(),
            joined: OnceLock::new(),
            fault: OnceLock::new(),
            held_from: AtomicU64::new(UNSET),
            held_until: AtomicU64::new(UNSET),
            stage: AtomicU8::new(CallStage::Reading as u8),
            share_used: AtomicU32::new(0),
            kept: AtomicBool::new(false),
            backend_began: AtomicU64::new(UNSET),
            backend_ended: AtomicU64::new(UNSET),
            request_bytes: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
        }
    }

    /// The current stage.
    pub fn stage(&self) -> CallStage {
        CallStage::ALL
            [usize::from(self.stage.load(Ordering::Relaxed)).min(CallStage::ALL.len() - 1)]
    }

    /// Sets the stage.
    pub fn set_stage(&self, stage: CallStage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Records that the call has used this share of its deadline, in percent. Returns false if that is already recorded.
    pub fn reaches(&self, percent: u32) -> bool {
        self.share_used.fetch_max(percent, Ordering::Relaxed) < percent
    }

    /// The largest recorded share of its deadline, or of the limit for calls without one, in percent; 0 if none.
    pub fn share_used(&self) -> u32 {
        self.share_used.load(Ordering::Relaxed)
    }

    /// Trace and parent of its spans, final once the request message has been read; `None` when traces are off.
    pub fn placement(&self) -> Option<SpanPlacement<'_>> {
        Some(self.trace.as_ref()?.place(self.episode.get()))
    }

    /// Records that its spans are exported.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Returns whether its spans are exported; decided when the call ends.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Time since the request headers were read.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.age().as_nanos()).unwrap_or(UNSET - 1)
    }

    /// Records when the request is sent to the backend; the first of several calls counts.
    pub fn backend_begins(&self) {
        let _ = self.backend_began.compare_exchange(
            UNSET,
            self.now(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Records when the backend's response is complete; the last of several calls counts.
    pub fn backend_ends(&self) {
        self.backend_ended.store(self.now(), Ordering::Relaxed);
    }

    /// When the request was sent to the backend, from `started`, and how long the backend took. If the call ends before the
    /// backend's response does, the backend's time ends with `elapsed`.
    pub fn backend_span(&self, elapsed: Duration) -> Option<(Duration, Duration)> {
        let began = self.backend_began.load(Ordering::Relaxed);
        if began == UNSET {
            return None;
        }
        let began = Duration::from_nanos(began);
        let ended = match self.backend_ended.load(Ordering::Relaxed) {
            UNSET => elapsed,
            ended => Duration::from_nanos(ended),
        };
        Some((began, ended.saturating_sub(began)))
    }

    /// Records that it waits for an earlier call, whose caller gave up, instead of repeating it.
    pub fn joins(&self, earlier: JoinedCall) {
        let _ = self.joined.set(earlier);
    }

    /// The earlier call that it waits or waited for.
    pub fn joined(&self) -> Option<JoinedCall> {
        self.joined.get().copied()
    }

    /// Records that a fault is injected into it, from now on.
    pub fn fault_begins(&self, kind: FaultKind) {
        self.held_from.store(self.now(), Ordering::Relaxed);
        let _ = self.fault.set(kind);
    }

    /// Records that the injected fault no longer holds it.
    pub fn fault_ends(&self) {
        self.held_until.store(self.now(), Ordering::Relaxed);
    }

    /// How long an injected fault held it, exactly.
    pub fn held(&self, elapsed: Duration) -> Duration {
        let from = match self.held_from.load(Ordering::Relaxed) {
            UNSET => return Duration::ZERO,
            from => Duration::from_nanos(from),
        };
        let until = match self.held_until.load(Ordering::Relaxed) {
            UNSET => elapsed,
            until => Duration::from_nanos(until),
        };
        until.saturating_sub(from)
    }

    /// The fault that was injected into it. If that still holds the call, its time ends with `elapsed`.
    pub fn injected(&self, elapsed: Duration) -> Option<InjectedFault> {
        let kind = *self.fault.get()?;
        Some(InjectedFault::new(kind, self.held(elapsed)))
    }

    /// Adds to the bytes of request messages, gRPC frame headers included.
    pub fn add_request_bytes(&self, n: usize) {
        self.request_bytes.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Adds to the bytes of response messages, gRPC frame headers included.
    pub fn add_response_bytes(&self, n: usize) {
        self.response_bytes.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Bytes of request messages so far.
    pub fn request_bytes(&self) -> u64 {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of response messages so far.
    pub fn response_bytes(&self) -> u64 {
        self.response_bytes.load(Ordering::Relaxed)
    }

    /// The sandbox id, from the request or the response.
    pub fn sandbox_id(&self) -> Option<&Arc<str>> {
        let answered = self.response.get().and_then(|a| a.sandbox_id.as_ref());
        answered.or_else(|| self.subject.get()?.sandbox_id.as_ref())
    }

    /// The container id, from the request or the response.
    pub fn container_id(&self) -> Option<&Arc<str>> {
        let answered = self.response.get().and_then(|a| a.container_id.as_ref());
        answered.or_else(|| self.subject.get()?.container_id.as_ref())
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Call {
    /// A call for tests of the layers above.
    pub fn example(method: Method) -> Self {
        use super::peer::Client;
        let peer = Peer {
            client: Client::Other,
            pid: None,
            comm: None,
        };
        Self::new(0, method, ApiVersion::V1, None, Arc::new(peer), None)
    }
}
