//! The verdict on an episode: its unresolved failures, when it is over, and its final state.

use std::time::Duration;

use super::{Episode, StoreLimits};
use crate::episode_call::EpisodeCall;
use crate::timeline::EpisodePhase;
use crate::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::Ending;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// Most unresolved failures.
const MAX_UNRESOLVED_FAILURES: usize = 16;
/// The next RunPodSandbox is awaited this long after one that its caller broke off. The kubelet breaks a call off when its pod is
/// deleted, and when it stops itself.
const RETRY_AFTER_CANCEL: Duration = Duration::from_secs(30);
/// The next RunPodSandbox is awaited this long after a failed one. The kubelet repeats it after 10 to 15 seconds until the pod is
/// deleted. Another try continues the episode.
const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Calls from this duration on are worth a warning, if nothing in their request makes them long.
const LONG_CALL: Duration = Duration::from_secs(30);
/// PullImage and StopContainer from this duration on are worth a warning: they depend on the size of the image and on the grace
/// period.
const LONG_PULL_OR_STOP: Duration = Duration::from_secs(300);

/// A failure that no later call has made good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnresolvedFailure {
    phase: EpisodePhase,
    target: Box<str>,
    /// True if the caller broke off every such call: then nothing has failed.
    cancelled: bool,
}

impl Episode {
    /// Returns whether a failure of this container or image is unresolved.
    pub(crate) fn is_unresolved(&self, target: &str) -> bool {
        self.unresolved
            .iter()
            .any(|failure| *failure.target == *target)
    }

    /// Returns whether no failure is unresolved.
    pub(crate) fn is_resolved(&self) -> bool {
        self.unresolved.is_empty()
    }

    /// Returns whether it is open with an unresolved failure. A call that its caller broke off is no failure.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_open() && self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.unresolved.iter().any(|failure| !failure.cancelled)
    }

    /// The state that people see.
    pub(crate) fn shown_state(&self) -> EpisodeState {
        if self.is_failing() {
            EpisodeState::Failing
        } else {
            self.state
        }
    }

    /// The duration that people see: up to `now` while the episode is incomplete. The silence after which a complete start counts
    /// as over is not included.
    pub(crate) fn shown_duration(&self, now: UnixMicros) -> Duration {
        let is_done = self.is_resolved() && self.is_complete() && self.awaited(now).is_none();
        let is_missing = self.is_open() && !is_done;
        if is_missing {
            self.duration().max(now.since(self.began))
        } else {
            self.duration()
        }
    }

    pub(super) fn note_failure(&mut self, call: &EpisodeCall) {
        let phase = EpisodePhase::from_method(call.method);
        let cancelled = call.has_ended(Ending::Cancelled);
        let mut failures = self.unresolved.iter_mut();
        let known =
            failures.find(|failure| failure.phase == phase && *failure.target == *call.target());
        if let Some(known) = known {
            known.cancelled &= cancelled;
        } else if self.unresolved.len() < MAX_UNRESOLVED_FAILURES {
            let target = call.target().into();
            self.unresolved.push(UnresolvedFailure {
                phase,
                target,
                cancelled,
            });
        }
        if self.failing_since.is_none() && self.has_failed() {
            self.failing_since = Some(call.ended_at());
        }
    }

    /// A success resolves failures of the same call; a StartContainer also those of its CreateContainer, a StopContainer those of the hook
    /// before it, and a StopPodSandbox, which ends all containers, those of both.
    pub(super) fn resolve(&mut self, call: &EpisodeCall) {
        let phase = EpisodePhase::from_method(call.method);
        self.unresolved.retain(|failure| {
            let is_same_target = *failure.target == *call.target();
            let is_same = failure.phase == phase && is_same_target;
            let is_included = match phase {
                EpisodePhase::ContainerStart => {
                    // A restart pulls for its own container.
                    let is_own_pull =
                        failure.phase == EpisodePhase::ImagePull && self.kind == Kind::Restart;
                    failure.phase == EpisodePhase::ContainerCreate && is_same_target || is_own_pull
                }
                EpisodePhase::ContainerStop => {
                    failure.phase == EpisodePhase::Hook && is_same_target
                }
                EpisodePhase::SandboxStop => matches!(
                    failure.phase,
                    EpisodePhase::ContainerStop | EpisodePhase::Hook
                ),
                EpisodePhase::SandboxRemove => true,
                _ => false,
            };
            !is_same && !is_included
        });
        self.forget_failing();
    }

    /// Forgets the pulls that failed: the containers that they were for have other images now, and were started.
    pub(super) fn resolve_pulls(&mut self) {
        let pull = EpisodePhase::ImagePull;
        self.unresolved.retain(|failure| failure.phase != pull);
        self.forget_failing();
    }

    /// Notes that another episode resolved the failures of a container.
    pub(super) fn resolve_container(&mut self, name: &str) {
        self.unresolved.retain(|failure| {
            let is_of_container = matches!(
                failure.phase,
                EpisodePhase::ContainerCreate | EpisodePhase::ContainerStart
            );
            !(is_of_container && *failure.target == *name)
        });
        self.forget_failing();
    }

    fn forget_failing(&mut self) {
        if !self.has_failed() {
            self.failing_since = None;
        }
    }

    /// The state at `now`. `in_flight`: whether one of its calls has not ended.
    pub(super) fn verdict(
        &self,
        now: UnixMicros,
        in_flight: bool,
        limits: &StoreLimits,
    ) -> EpisodeState {
        let quiet = !in_flight && now >= self.ended + limits.quiet;
        if quiet && self.is_resolved() && self.is_complete() && self.awaited(now).is_none() {
            return EpisodeState::Ok;
        }
        if !in_flight && self.is_abandoned(now) {
            return self.cut_short();
        }
        let given_up = now >= self.give_up_from + limits.give_up;
        if given_up {
            EpisodeState::Failed
        } else {
            EpisodeState::Open
        }
    }

    /// Returns whether it is a start whose sandbox was never made.
    pub(super) fn lacks_sandbox(&self) -> bool {
        let mut calls = self.calls.iter();
        self.kind == Kind::Start
            && self.started == 0
            && calls.all(|call| call.method.makes_sandbox() && !call.is_good())
    }

    /// Returns whether the kubelet no longer tries to make the sandbox of a start. No call shows this: the deletion of a pod without a
    /// sandbox takes none.
    fn is_abandoned(&self, now: UnixMicros) -> bool {
        let Some(last) = self.calls.back().filter(|_| self.lacks_sandbox()) else {
            return false;
        };
        let was_told = last.has_ended(Ending::Cancelled) || self.last_cleanup_end.is_some();
        let wait = if was_told {
            RETRY_AFTER_CANCEL
        } else {
            RETRY_AFTER_FAILURE
        };
        let since = self.last_cleanup_end.unwrap_or_default().max(self.ended);
        last.is_bad() && now >= since + wait
    }

    /// Returns whether it can end without a further call.
    pub(super) fn is_complete(&self) -> bool {
        match self.kind {
            Kind::Start => self.started > 0,
            Kind::Restart => {
                self.started > 0 || self.calls.iter().all(|c| c.method == Method::PullImage)
            }
            Kind::Stop => true,
        }
    }

    /// Returns whether a later call may continue it although it is closed: it was given up, and the kubelet had not.
    pub(super) fn may_continue(&self) -> bool {
        !self.ended_by_other && matches!(self.state, EpisodeState::Failed | EpisodeState::Cancelled)
    }

    /// Returns whether one of its calls took so long that the log warns of it.
    pub(crate) fn is_long(&self) -> bool {
        self.calls.iter().any(|call| {
            let most = match call.method {
                Method::PullImage | Method::StopContainer => LONG_PULL_OR_STOP,
                _ => LONG_CALL,
            };
            call.took() >= most
        })
    }

    /// The final state if the episode ends now.
    pub(super) fn cut_short(&self) -> EpisodeState {
        if self.is_complete() && self.is_resolved() {
            match self.awaited(self.ended) {
                Some(_) => EpisodeState::Cancelled,
                None => EpisodeState::Ok,
            }
        } else if self.is_resolved() || self.has_failed() {
            EpisodeState::Failed
        } else {
            EpisodeState::Cancelled
        }
    }
}
