//! The state of a runtime, written by its probe and read by all others.

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

/// State of a runtime as its probe sees it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether it answers.
    pub up: bool,
    /// Why it is down, in one line; empty before the first attempt.
    pub reason: String,
    /// When `up` last changed.
    pub since: Option<Instant>,
    /// Name and version from its Version response.
    pub runtime: Option<(String, String)>,
    /// The conditions of its last successful Status.
    pub conditions: Vec<Condition>,
    /// When the last successful Status arrived.
    pub last_status: Option<Instant>,
}

/// A condition such as `RuntimeReady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `RuntimeReady`, `NetworkReady`, ...
    pub kind: String,
    /// Whether it holds.
    pub status: bool,
    /// One word, as the runtime reports it.
    pub reason: String,
}

impl Health {
    /// The version of the CRI that the runtime serves; v1 until the probe finds otherwise.
    pub fn api(&self) -> ApiVersion {
        match self.alpha.load(Ordering::Relaxed) {
            true => ApiVersion::V1Alpha2,
            false => ApiVersion::V1,
        }
    }

    /// Sets the version.
    pub fn set_api(&self, api: ApiVersion) {
        self.alpha
            .store(api == ApiVersion::V1Alpha2, Ordering::Relaxed);
    }

    /// Number of returns after it was down.
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

    /// Returns whether it is up.
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

    /// Counts a reconnect.
    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}
