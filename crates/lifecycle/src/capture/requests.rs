//! Requests, recorded while `criscope capture --requests` runs (`docs/adr/0048`). They hold secrets: environments, arguments,
//! credentials of registries. They stay in memory until the command fetches them, and are never written by the daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use criscope_cri::Method;
use criscope_cri::call::{Call, Ending, Outcome, Sealed};
use criscope_cri::status::Code;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::{UnixMicros, micros_of};

/// How long a recording may last.
pub const MAX_RECORDING_TIME: Duration = Duration::from_secs(3600);

/// Upper bound of the bytes of one recording.
pub const MAX_RECORDING_LEN: u64 = 64 << 20;

/// Upper bound of the bytes that wait to be fetched.
const MAX_UNFETCHED_LEN: u64 = 16 << 20;

/// Cost of a recorded call besides its message, in bytes.
const CALL_OVERHEAD: u64 = 512;

/// A recording ends after this time without a reader.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A call with its request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedCall {
    /// Counts calls since the start of the process.
    pub seq: u64,
    /// The method.
    pub method: Method,
    /// Begin of the call.
    pub began: u64,
    /// Duration of the call.
    pub elapsed: u64,
    /// Time from `began` to the caller's deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Ending of the call.
    pub ending: Ending,
    /// The code that the caller got, as a number.
    pub code: i32,
    /// Set if a fault was injected.
    #[serde(default)]
    pub injected: bool,
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<PodIdentity>>,
    /// The new sandbox or container of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Arc<str>>,
    /// The request message.
    #[serde(serialize_with = "write_bytes", deserialize_with = "read_bytes")]
    pub request: Sealed,
}

impl RecordedCall {
    /// A call that has ended; `None` if its request was not read (see `server.max_message_bytes`).
    fn new(call: &Call, outcome: &Outcome) -> Option<Self> {
        // A slice instead of a copy would keep the connection's whole buffer.
        let request = Bytes::copy_from_slice(call.message.get()?.bytes());
        let made = match call.method {
            Method::RunPodSandbox | Method::RestorePod => {
                call.response.get().and_then(|r| r.sandbox_id.clone())
            }
            Method::CreateContainer => call.response.get().and_then(|r| r.container_id.clone()),
            _ => None,
        };
        Some(Self {
            seq: call.seq,
            method: call.method,
            began: UnixMicros::from(call.started_at).as_micros(),
            elapsed: micros_of(outcome.elapsed),
            deadline: call.deadline.map(micros_of),
            ending: outcome.ending,
            code: outcome.code as i32,
            injected: call.injected(outcome.elapsed).is_some(),
            pod: call.subject.get().and_then(|subject| subject.pod.clone()),
            made,
            request: Sealed::new(request),
        })
    }

    /// The code that the caller got.
    pub fn code(&self) -> Code {
        Code::from(self.code)
    }

    /// End of the call.
    pub fn end(&self) -> u64 {
        self.began.saturating_add(self.elapsed)
    }

    fn cost(&self) -> u64 {
        self.request.bytes().len() as u64 + CALL_OVERHEAD
    }
}

fn write_bytes<S: Serializer>(bytes: &Sealed, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes.bytes()))
}

fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sealed, D::Error> {
    let text = String::deserialize(deserializer)?;
    // The decoder's own error would quote a byte of the message.
    let bytes = STANDARD.decode(text);
    let bytes = bytes.map_err(|_| serde::de::Error::custom("a request is not in base64"))?;
    Ok(Sealed::new(bytes.into()))
}

/// A request to record: the JSON of `/debug/requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingRequest {
    /// Length of the recording.
    pub for_ms: u64,
    /// Upper bound of its bytes.
    pub max_bytes: u64,
}

/// The reason why a recording is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The length is zero or too long.
    #[error("a recording lasts between 1 ms and {} s", MAX_RECORDING_TIME.as_secs())]
    Duration,
    /// The size is zero or too large.
    #[error("a recording has between 1 byte and {} MiB", MAX_RECORDING_LEN >> 20)]
    Size,
    /// Another recording is in progress.
    #[error("requests are being recorded already")]
    Busy,
}

/// The calls recorded since the last fetch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedBatch {
    /// Set when the recording has ended.
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
    /// Set while a recording is in progress. Calls of a process that records nothing pay for one load.
    active: AtomicBool,
    state: Mutex<RecordingState>,
}

#[derive(Debug, Default)]
struct RecordingState {
    until: Option<Instant>,
    /// Time of the last fetch.
    fetched: Option<Instant>,
    /// Bytes that may still be recorded.
    left: u64,
    /// Bytes that wait to be fetched.
    waiting: u64,
    batch: RecordedBatch,
}

impl RequestRecording {
    fn state(&self) -> MutexGuard<'_, RecordingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a recording, which ends by itself.
    ///
    /// # Errors
    /// If a bound is exceeded, or another recording is in progress.
    pub fn begin(&self, wish: RecordingRequest, now: Instant) -> Result<(), RecordingError> {
        let lasts = Duration::from_millis(wish.for_ms);
        if lasts.is_zero() || lasts > MAX_RECORDING_TIME {
            return Err(RecordingError::Duration);
        }
        if wish.max_bytes == 0 || wish.max_bytes > MAX_RECORDING_LEN {
            return Err(RecordingError::Size);
        }
        self.expire(now);
        let mut state = self.state();
        if state.until.is_some() {
            return Err(RecordingError::Busy);
        }
        *state = RecordingState {
            until: Some(now + lasts),
            fetched: Some(now),
            left: wish.max_bytes,
            ..RecordingState::default()
        };
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records a call that has ended. Runs on the request path.
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
            state.batch.unread += 1;
            return;
        };
        let cost = call.cost();
        if cost > state.left || state.waiting + cost > MAX_UNFETCHED_LEN {
            state.batch.dropped += 1;
            return;
        }
        state.left -= cost;
        state.waiting += cost;
        state.batch.calls.push(call);
    }

    /// Takes the calls that wait.
    pub fn take(&self, now: Instant) -> RecordedBatch {
        self.expire(now);
        let mut state = self.state();
        state.waiting = 0;
        state.fetched = Some(now);
        let calls = std::mem::take(&mut state.batch.calls);
        RecordedBatch {
            over: state.until.is_none(),
            calls,
            ..state.batch
        }
    }

    /// Ends the recording, and takes the calls that wait.
    pub fn end(&self, now: Instant) -> RecordedBatch {
        self.active.store(false, Ordering::Relaxed);
        self.state().until = None;
        self.take(now)
    }

    /// Ends a recording whose time is over, and drops a recording without a reader. Returns whether a recording is in
    /// progress or waits to be fetched.
    pub fn expire(&self, now: Instant) -> bool {
        let mut state = self.state();
        if state.until.is_some_and(|until| until <= now) {
            self.active.store(false, Ordering::Relaxed);
            state.until = None;
        }
        if state.fetched.is_some_and(|at| now >= at + FETCH_TIMEOUT) {
            self.active.store(false, Ordering::Relaxed);
            *state = RecordingState::default();
        }
        state.until.is_some() || !state.batch.calls.is_empty()
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

    const WISH: RecordingRequest = RecordingRequest {
        for_ms: 60_000,
        max_bytes: MAX_RECORDING_LEN,
    };

    #[test]
    fn it_is_bounded_and_says_what_is_missing() {
        let (recording, now) = (RequestRecording::default(), Instant::now());
        recording.add(recorded(1), now);
        assert!(
            recording.take(now).calls.is_empty(),
            "nothing without a wish"
        );
        let wish = RecordingRequest {
            max_bytes: 3 * (CALL_OVERHEAD + 100),
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
            (0, 1, RecordingError::Duration),
            (3_600_001, 1, RecordingError::Duration),
            (1, 0, RecordingError::Size),
            (1, MAX_RECORDING_LEN + 1, RecordingError::Size),
        ] {
            let wish = RecordingRequest { for_ms, max_bytes };
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
