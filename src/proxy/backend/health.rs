//! What is known about a runtime, kept by its probe and read by everyone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::cri::method::ApiVersion;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Health {
    alpha: AtomicBool,
    reconnects: AtomicU64,
    state: Mutex<State>,
}

/// The probe's view of a runtime.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether it answers.
    pub up: bool,
    /// Why not, in one line; empty before the first attempt.
    pub reason: String,
    /// When `up` last changed.
    pub since: Option<Instant>,
    /// Name and version, as it tells them.
    pub runtime: Option<(String, String)>,
    /// The conditions of its last good Status, and when that was.
    pub conditions: Vec<Condition>,
    /// When the last good Status came.
    pub last_status: Option<Instant>,
}

/// A condition such as `RuntimeReady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `RuntimeReady`, `NetworkReady`, ...
    pub kind: String,
    /// Whether it holds.
    pub status: bool,
    /// One word, as the runtime gives it.
    pub reason: String,
}

impl Health {
    /// The spelling of the services that it knows. v1 until shown otherwise.
    pub fn api(&self) -> ApiVersion {
        match self.alpha.load(Ordering::Relaxed) {
            true => ApiVersion::V1Alpha2,
            false => ApiVersion::V1,
        }
    }

    /// Notes the spelling.
    pub fn set_api(&self, api: ApiVersion) {
        self.alpha
            .store(api == ApiVersion::V1Alpha2, Ordering::Relaxed);
    }

    /// How often it came back.
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    /// A copy of the state.
    pub fn state(&self) -> State {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether it answers.
    pub fn is_up(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).up
    }

    /// Changes the state.
    pub(super) fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_up = state.up;
        change(&mut state);
        if state.up != was_up || state.since.is_none() {
            state.since = Some(Instant::now());
        }
    }

    /// Counts a return.
    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}
