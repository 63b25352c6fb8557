//! Requests, recorded while `criscope capture --requests` runs (`docs/adr/0048`). They hold secrets: environments, arguments,
//! credentials of registries. They stay in memory until the command fetches them, and are never written by the daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::call::times::{micros_of, unix_micros};
use crate::call::{Call, Ending, Outcome, Sealed};
use crate::cri::Method;
use crate::cri::status::Code;
use crate::cri::subject::PodIdentity;

/// How long a recording may last.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Most bytes of one recording.
pub const MOST_BYTES: u64 = 64 << 20;

/// Most bytes that wait to be fetched.
const WAITING: u64 = 16 << 20;

/// What a recorded call costs besides its message, in bytes.
const OVERHEAD: u64 = 512;

/// A recording that is not fetched from ends after this time.
const ABANDONED: Duration = Duration::from_secs(30);

/// A call with its request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedCall {
    /// Counts calls since the start of the process.
    pub seq: u64,
    /// The method.
    pub method: Method,
    /// When it began, in microseconds since 1970.
    pub began: u64,
    /// How long it took, in microseconds.
    pub elapsed: u64,
    /// The caller's deadline, in microseconds from `began`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// How it ended.
    pub ending: Ending,
    /// The code that the caller got, as a number.
    pub code: i32,
    /// Whether a fault was injected.
    #[serde(default)]
    pub injected: bool,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodIdentity>>,
    /// The id in the response to RunPodSandbox or CreateContainer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Arc<str>>,
    /// The request message.
    #[serde(serialize_with = "write_bytes", deserialize_with = "read_bytes")]
    pub request: Sealed,
}

impl RecordedCall {
    /// A call that has ended; `None` if its request was not read (see `server.max_message_bytes`).
    fn new(call: &Call, outcome: &Outcome) -> Option<Self> {
        // A copy: a slice would keep the connection's whole buffer.
        let request = Bytes::copy_from_slice(call.message.get()?.bytes());
        let made = match call.method {
            Method::RunPodSandbox => call.response.get().and_then(|it| it.sandbox_id.clone()),
            Method::CreateContainer => call.response.get().and_then(|it| it.container_id.clone()),
            _ => None,
        };
        Some(Self {
            seq: call.seq,
            method: call.method,
            began: unix_micros(call.started_at),
            elapsed: micros_of(outcome.elapsed),
            deadline: call.deadline.map(micros_of),
            ending: outcome.ending,
            code: outcome.code as i32,
            injected: call.injected(outcome.elapsed).is_some(),
            pod: call.subject.get().and_then(|it| it.pod.clone()),
            made,
            request: Sealed::new(request),
        })
    }

    /// The code that the caller got.
    pub fn code(&self) -> Code {
        Code::from(self.code)
    }

    /// When it ended, in microseconds since 1970.
    pub fn end(&self) -> u64 {
        self.began.saturating_add(self.elapsed)
    }

    fn cost(&self) -> u64 {
        self.request.bytes().len() as u64 + OVERHEAD
    }
}

fn write_bytes<S: Serializer>(bytes: &Sealed, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes.bytes()))
}

fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sealed, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The error of the decoder names a byte of the message.
    let bytes = STANDARD.decode(text);
    let bytes = bytes.map_err(|_| serde::de::Error::custom("a request is not in base64"))?;
    Ok(Sealed::new(bytes.into()))
}

/// A recording that is wanted: the JSON of `/debug/requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingWish {
    /// How long it lasts, in milliseconds.
    pub for_ms: u64,
    /// Most bytes of it.
    pub max_bytes: u64,
}

/// Why a recording is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// No end, or too late a one.
    #[error("a recording lasts between 1 ms and {} s", LONGEST.as_secs())]
    Lasts,
    /// Too large, or empty.
    #[error("a recording has between 1 byte and {} MiB", MOST_BYTES >> 20)]
    Bytes,
    /// One at a time.
    #[error("requests are being recorded already")]
    Busy,
}

/// What was recorded since the last time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedPart {
    /// Whether the recording has ended.
    pub over: bool,
    /// Calls left out so far, because the recording was full or not fetched in time.
    pub dropped: u64,
    /// Calls left out so far, because their request was not read.
    pub unread: u64,
    /// The calls, in the order in which they ended.
    pub calls: Vec<RecordedCall>,
}

/// The recording in progress, if any.
#[derive(Debug, Default)]
pub struct RequestRecording {
    /// So that calls of a process that records nothing pay for one load.
    active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    fetched: Option<Instant>,
    /// Bytes that may still be recorded.
    left: u64,
    /// Bytes that wait.
    waiting: u64,
    part: RecordedPart,
}

impl RequestRecording {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one, which ends by itself.
    ///
    /// # Errors
    /// If a bound is exceeded, or one is in progress.
    pub fn begin(&self, wish: RecordingWish, now: Instant) -> Result<(), RecordingError> {
        let lasts = Duration::from_millis(wish.for_ms);
        if lasts.is_zero() || lasts > LONGEST {
            return Err(RecordingError::Lasts);
        }
        if wish.max_bytes == 0 || wish.max_bytes > MOST_BYTES {
            return Err(RecordingError::Bytes);
        }
        self.expire(now);
        let mut state = self.state();
        if state.until.is_some() {
            return Err(RecordingError::Busy);
        }
        *state = State {
            until: Some(now + lasts),
            fetched: Some(now),
            left: wish.max_bytes,
            ..State::default()
        };
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A call has ended. Called on the request path.
    pub fn ended(&self, call: &Call, outcome: &Outcome) {
        if self.active.load(Ordering::Relaxed) && call.method != Method::Other {
            self.add(RecordedCall::new(call, outcome), Instant::now());
        }
    }

    fn add(&self, call: Option<RecordedCall>, now: Instant) {
        let mut state = self.state();
        if state.until.is_none_or(|until| until <= now) {
            return;
        }
        let Some(call) = call else {
            state.part.unread += 1;
            return;
        };
        let cost = call.cost();
        if cost > state.left || state.waiting + cost > WAITING {
            state.part.dropped += 1;
            return;
        }
        state.left -= cost;
        state.waiting += cost;
        state.part.calls.push(call);
    }

    /// Takes what waits.
    pub fn take(&self, now: Instant) -> RecordedPart {
        self.expire(now);
        let mut state = self.state();
        state.waiting = 0;
        state.fetched = Some(now);
        let calls = std::mem::take(&mut state.part.calls);
        RecordedPart {
            over: state.until.is_none(),
            calls,
            ..state.part
        }
    }

    /// Ends the recording, and takes what waits.
    pub fn end(&self, now: Instant) -> RecordedPart {
        self.active.store(false, Ordering::Relaxed);
        self.state().until = None;
        self.take(now)
    }

    /// Ends a recording whose time is over, and forgets one that is not fetched from. Returns whether one is in progress or
    /// waits to be fetched.
    pub fn expire(&self, now: Instant) -> bool {
        let mut state = self.state();
        if state.until.is_some_and(|until| until <= now) {
            self.active.store(false, Ordering::Relaxed);
            state.until = None;
        }
        if state.fetched.is_some_and(|at| now >= at + ABANDONED) {
            self.active.store(false, Ordering::Relaxed);
            *state = State::default();
        }
        state.until.is_some() || !state.part.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(bytes: usize) -> Option<RecordedCall> {
        Some(RecordedCall {
            seq: 1,
            method: Method::RunPodSandbox,
            began: 5,
            elapsed: 2,
            deadline: Some(9),
            ending: Ending::Ok,
            code: 0,
            injected: false,
            pod: None,
            made: Some("abc".into()),
            request: Sealed::new(vec![7; bytes].into()),
        })
    }

    const WISH: RecordingWish = RecordingWish {
        for_ms: 60_000,
        max_bytes: MOST_BYTES,
    };

    #[test]
    fn it_is_bounded_and_says_what_is_missing() {
        let (recording, now) = (RequestRecording::default(), Instant::now());
        recording.add(recorded(1), now);
        assert!(
            recording.take(now).calls.is_empty(),
            "nothing without a wish"
        );
        let wish = RecordingWish {
            max_bytes: 3 * (OVERHEAD + 100),
            ..WISH
        };
        recording.begin(wish, now).expect("begun");
        assert_eq!(recording.begin(wish, now), Err(RecordingError::Busy));
        for _ in 0..5 {
            recording.add(recorded(100), now);
        }
        recording.add(None, now);
        let part = recording.take(now);
        assert_eq!((part.calls.len(), part.dropped, part.unread), (3, 2, 1));
        assert!(!part.over);
        // What waits is bounded as well.
        recording.end(now);
        recording.begin(WISH, now).expect("begun");
        for _ in 0..20 {
            recording.add(recorded(1 << 20), now);
        }
        let part = recording.end(now);
        assert_eq!((part.calls.len(), part.dropped), (15, 5));
        assert!(part.over);
    }

    #[test]
    fn it_ends_by_itself() {
        let (recording, now) = (RequestRecording::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        recording.begin(WISH, now).expect("begun");
        recording.add(recorded(1), at(20));
        assert_eq!(recording.take(at(29)).calls.len(), 1);
        recording.take(at(50));
        recording.add(recorded(1), at(60));
        assert!(recording.take(at(61)).over, "its time is over");
        recording.begin(WISH, at(70)).expect("begun");
        recording.add(recorded(1), at(71));
        assert!(recording.expire(at(99)));
        assert!(!recording.expire(at(100)), "its reader is gone");
        let part = recording.take(at(100));
        assert!(part.over && part.calls.is_empty());
        for (for_ms, max_bytes, error) in [
            (0, 1, RecordingError::Lasts),
            (3_600_001, 1, RecordingError::Lasts),
            (1, 0, RecordingError::Bytes),
            (1, MOST_BYTES + 1, RecordingError::Bytes),
        ] {
            let wish = RecordingWish { for_ms, max_bytes };
            assert_eq!(recording.begin(wish, at(200)), Err(error));
        }
    }

    #[test]
    fn a_recorded_call_reads_back_and_hides_its_request() {
        let call = recorded(3).expect("one");
        let json = serde_json::to_string(&call).expect("json");
        let back: RecordedCall = serde_json::from_str(&json).expect("read");
        assert_eq!(back.request.bytes(), [7, 7, 7]);
        assert_eq!((back.end(), back.code()), (7, Code::Ok));
        assert!(format!("{back:?}").contains("3 bytes"));
    }
}
