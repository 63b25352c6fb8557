//! The health of a runtime, written by its probe.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::cgroup_driver::FoundDriver;
use crate::cri::method::ApiVersion;

/// The health of a runtime.
#[derive(Debug, Default)]
pub struct BackendHealth {
    alpha: AtomicBool,
    reconnects: AtomicU64,
    pid: AtomicI32,
    state: Mutex<HealthState>,
}

/// State of a runtime as its probe sees it.
#[derive(Clone, Debug, Default)]
pub struct HealthState {
    /// True if the runtime answers.
    pub up: bool,
    /// Why it is down, in one line; empty before the first attempt.
    pub reason: String,
    /// When `up` last changed.
    pub since: Option<Instant>,
    /// Wall-clock time of the change.
    pub changed: Option<SystemTime>,
    /// Name and version from its Version response.
    pub runtime: Option<(String, String)>,
    /// The conditions of its last successful Status, the kubelet's own included.
    pub conditions: Vec<HealthCondition>,
    /// When the last successful Status arrived.
    pub last_status: Option<Instant>,
    /// The cgroup driver that was last answered in its place.
    pub found_driver: Option<FoundDriver>,
    /// A path on the filesystem of its images, once a caller has asked the runtime for it.
    pub image_fs: Option<PathBuf>,
}

/// A condition such as `RuntimeReady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCondition {
    /// `RuntimeReady`, `NetworkReady`, ...
    pub kind: String,
    /// True if the condition holds.
    pub status: bool,
    /// The reason, one word, as the runtime reports it.
    pub reason: String,
    /// The message, redacted if it is that of another runtime.
    pub message: String,
    /// When `status` last changed, or was first seen.
    pub since: SystemTime,
}

impl HealthCondition {
    /// The message, or the reason if there is none.
    pub fn said(&self) -> &str {
        if self.message.is_empty() {
            &self.reason
        } else {
            &self.message
        }
    }
}

impl BackendHealth {
    /// The version of the CRI that the runtime serves; v1 until the probe finds otherwise.
    pub fn api(&self) -> ApiVersion {
        if self.alpha.load(Ordering::Relaxed) {
            ApiVersion::V1Alpha2
        } else {
            ApiVersion::V1
        }
    }

    /// Sets the version.
    pub fn set_api(&self, api: ApiVersion) {
        self.alpha
            .store(api == ApiVersion::V1Alpha2, Ordering::Relaxed);
    }

    /// The process that listens on its socket, in our PID namespace; `None` if the kernel does not report it, or if PID
    /// 1 opened the socket on its behalf.
    pub fn pid(&self) -> Option<u32> {
        let pid = u32::try_from(self.pid.load(Ordering::Relaxed)).ok();
        pid.filter(|pid| *pid > 1)
    }

    /// Sets the process that listens on its socket.
    pub(super) fn set_pid(&self, pid: i32) {
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// Number of reconnects.
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the state.
    pub fn state(&self) -> HealthState {
        self.lock().clone()
    }

    /// Returns whether it is up.
    pub fn is_up(&self) -> bool {
        self.lock().up
    }

    /// Returns whether this is the name in its Version response.
    pub fn is_runtime(&self, name: &str) -> bool {
        let state = self.lock();
        state.runtime.as_ref().is_some_and(|(own, _)| own == name)
    }

    /// Changes the state.
    pub(super) fn update(&self, change: impl FnOnce(&mut HealthState)) {
        self.update_since(Duration::ZERO, change);
    }

    /// Changes the state, as if it had changed this long ago.
    pub(super) fn update_since(&self, age: Duration, change: impl FnOnce(&mut HealthState)) {
        let mut state = self.lock();
        let was_up = state.up;
        change(&mut state);
        if state.up != was_up || state.since.is_none() {
            state.since = Instant::now().checked_sub(age);
            state.changed = SystemTime::now().checked_sub(age);
        }
    }

    /// Replaces the conditions. Returns those whose status changed, before and after; a condition that is false when
    /// first seen counts as changed.
    pub(super) fn set_conditions(
        &self,
        mut conditions: Vec<HealthCondition>,
    ) -> Vec<(Option<HealthCondition>, HealthCondition)> {
        let mut state = self.lock();
        let mut changes = Vec::new();
        for new in &mut conditions {
            let mut before = state.conditions.iter();
            let before = before.find(|known| known.kind == new.kind);
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

    /// Sets the cgroup driver that was answered in its place; `None` if it answered by itself.
    pub(super) fn set_found_driver(&self, found: Option<FoundDriver>) {
        self.lock().found_driver = found;
    }

    /// Sets the path on the filesystem of its images.
    pub(super) fn set_image_fs(&self, path: &Path) {
        if path.is_absolute() {
            self.lock().image_fs = Some(path.to_owned());
        }
    }

    /// Counts a reconnect.
    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}
