//! The state of a runtime, written by its probe and read by all others.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use crate::cri::method::ApiVersion;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Health {
    alpha: AtomicBool,
    reconnects: AtomicU64,
    pid: AtomicI32,
    state: Mutex<State>,
    image_fs: Mutex<Option<PathBuf>>,
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
    /// The same on the wall clock.
    pub changed: Option<SystemTime>,
    /// Name and version from its Version response.
    pub runtime: Option<(String, String)>,
    /// The conditions of its last successful Status, the kubelet's own included.
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
    /// A sentence, redacted if it is that of another runtime.
    pub message: String,
    /// Since when `status` is what it is; the first time it was seen so.
    pub since: SystemTime,
}

impl Condition {
    /// The sentence, or else the word.
    pub fn said(&self) -> &str {
        match self.message.is_empty() {
            true => &self.reason,
            false => &self.message,
        }
    }
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

    /// The process that listens on its socket, in our PID namespace; `None` if the kernel does not tell, or if the first process
    /// of the node has opened the socket for it.
    pub fn pid(&self) -> Option<u32> {
        let pid = u32::try_from(self.pid.load(Ordering::Relaxed)).ok();
        pid.filter(|pid| *pid > 1)
    }

    /// Sets the process that listens on its socket.
    pub(super) fn set_pid(&self, pid: i32) {
        self.pid.store(pid, Ordering::Relaxed);
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

    /// Returns whether this is the name in its Version response.
    pub fn is_runtime(&self, name: &str) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.runtime.as_ref().is_some_and(|(own, _)| own == name)
    }

    /// Changes the state.
    pub(super) fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_up = state.up;
        change(&mut state);
        if state.up != was_up || state.since.is_none() {
            state.since = Some(Instant::now());
            state.changed = Some(SystemTime::now());
        }
    }

    /// Takes in the conditions of a Status. Returns those whose status changed, as they were and as they are; a condition
    /// that is false from the beginning counts.
    pub(super) fn set_conditions(
        &self,
        mut conditions: Vec<Condition>,
    ) -> Vec<(Option<Condition>, Condition)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changes = Vec::new();
        for new in &mut conditions {
            let mut before = state.conditions.iter();
            let before = before.find(|it| it.kind == new.kind);
            match before {
                Some(before) if before.status == new.status => new.since = before.since,
                Some(before) => changes.push((Some(before.clone()), new.clone())),
                None if !new.status => changes.push((None, new.clone())),
                None => {}
            }
        }
        state.conditions = conditions;
        state.last_status = Some(Instant::now());
        changes
    }

    /// A path on the filesystem of its images, once a caller has asked the runtime for it.
    pub fn image_fs(&self) -> Option<PathBuf> {
        self.image_fs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets that path.
    pub fn set_image_fs(&self, path: &Path) {
        let mut known = self.image_fs.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(path) && path.is_absolute() {
            *known = Some(path.to_owned());
        }
    }

    /// Counts a reconnect.
    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}
