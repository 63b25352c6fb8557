//! Hooks of containers. The CRI does not say whether a command without a timeout is a postStart or a preStop hook; the order of the
//! kubelet's calls does, in most cases.
//!
//! The kubelet runs a postStart hook once, in the sync that has just started the container, and makes no other call of that sync before
//! the hook has ended (`startContainer` in pkg/kubelet/kuberuntime/kuberuntime_container.go). It runs a preStop hook right before the
//! StopContainer of the container, waits for it at most as long as the grace period, and subtracts the seconds that it took from the
//! grace period (`killContainer` and `executePreStopHook` there). The request for the container has its preStop hook, if it has one.

use std::collections::VecDeque;
use std::time::Duration;

use super::assign::Assignment;
use super::{CallEffect, Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::kubelet::execs::ExecResult;
use criscope_cri::Method;
use criscope_cri::call::Ending;
use criscope_cri::call::episode::Kind;
use criscope_cri::container_request::HookHandler;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// Most hooks that wait for the stop they precede.
const MAX_WAITING_HOOKS: usize = 64;
/// The kubelet runs a postStart hook this soon after the start, unless the node is very busy. Only for a hook that runs, or has failed:
/// the calls after it do not show which kind it is.
pub(crate) const POST_START_FOLLOWS_WITHIN: Duration = Duration::from_millis(300);
/// Shortest grace period that the kubelet asks for, whatever a preStop hook took (`minimumGracePeriodInSeconds`).
const MIN_GRACE_SECONDS: u64 = 2;

impl EpisodeStore {
    /// Applies a hook. One that follows no start is kept for the stop that it precedes.
    pub(super) fn apply_hook(&mut self, mut call: EpisodeCall) -> CallEffect {
        let Some(pod) = call.pod.clone() else {
            return CallEffect::Nothing;
        };
        let is_cut_short = self.is_cut_short(&call);
        let number = match self.assign(&call) {
            Assignment::In(number) => number,
            // No stop follows a hook that went with criscope or with the kubelet before the kubelet tries again.
            _ if call.is_in_flight() || call.is_lost || is_cut_short => {
                call.is_broken_off = is_cut_short;
                let begun = self.begun_stop(&pod);
                begun.unwrap_or_else(|| self.open(Kind::Stop, &pod, &call))
            }
            _ => {
                if self.work.hooks.len() >= MAX_WAITING_HOOKS {
                    self.work.hooks.pop_front();
                }
                self.work.hooks.push_back(call);
                return CallEffect::Noticed;
            }
        };
        if let Some(episode) = self.episodes.get_mut(&number)
            && !episode.has(&call)
        {
            let stops = episode.calls.iter_mut();
            // The hook outlasted the stop, which was observed without it.
            for stop in stops.filter(|stop| is_next_stop(&call, stop)) {
                if let Some(id) = call.container_id.as_deref() {
                    let (at, until) = (call.began_at(), stop.ended_at());
                    let failed = self.work.probes.failed_before(id, at, until);
                    stop.probe = call.probe.or(failed);
                }
            }
            episode.add(call);
        }
        CallEffect::PartOf(number)
    }

    /// Returns whether the kubelet broke a hook off before the grace period was over.
    fn is_cut_short(&self, hook: &EpisodeCall) -> bool {
        let grace = hook
            .pod
            .as_deref()
            .and_then(|pod| self.pod_grace(pod, hook));
        hook.has_ended(Ending::Cancelled)
            && grace.is_some_and(|grace| hook.took().as_secs() + 1 < grace)
    }

    /// The grace period of the pod in seconds, as the request for the container of this hook has it.
    fn pod_grace(&self, pod: &PodIdentity, hook: &EpisodeCall) -> Option<u64> {
        let mut calls = self.episodes_of(pod).flat_map(|episode| &episode.calls);
        let grace = calls.find_map(|call| {
            let request = call.facts.container_request();
            let own = request.filter(|_| call.container_id == hook.container_id)?;
            own.pod_grace
        });
        grace.map(u64::from)
    }

    /// The number of the stop that a hook of this pod has begun.
    fn begun_stop(&self, pod: &PodIdentity) -> Option<u64> {
        let mut own = self.episodes_of(pod);
        let stop = own.find(|episode| {
            let is_own = episode.kind == Kind::Stop && episode.pod.attempt == pod.attempt;
            is_own && self.open.contains(&episode.number)
        });
        Some(stop?.number)
    }

    /// The episode of a hook: the one that stops its container, or the one that has just started it.
    pub(super) fn assign_hook(&self, pod: &PodIdentity, hook: &EpisodeCall) -> Assignment {
        let own = self.episodes_of(pod);
        let id = hook.container_id.as_deref();
        let mut only_post_start =
            own.filter(|episode| id.is_some_and(|id| episode.has_no_pre_stop_command(id)));
        if let Some(episode) =
            only_post_start.find(|e| id.is_some_and(|id| e.start_of(id).is_some()))
        {
            return Assignment::In(episode.number);
        }
        let stopping = self
            .episodes_of(pod)
            .find(|episode| episode.calls.iter().any(|stop| is_next_stop(hook, stop)));
        let episode = stopping.or_else(|| self.episode_of_post_start(pod, hook));
        match episode {
            Some(episode) => Assignment::In(episode.number),
            None => Assignment::Nowhere,
        }
    }

    /// The start or restart of which a hook may be a postStart hook: its container was started there, is not known to be killed for a
    /// probe, has run no other hook, and no other container was created since. A start that is over has no such hooks.
    fn episode_of_post_start(&self, pod: &PodIdentity, hook: &EpisodeCall) -> Option<&Episode> {
        let id = hook
            .container_id
            .as_deref()
            .filter(|_| hook.probe.is_none())?;
        let own = self.episodes_of(pod);
        let episode = own.clone().find(|episode| episode.start_of(id).is_some())?;
        let started = episode.start_of(id)?.ended_at();
        let began = hook.began_at();
        let others = own.clone().flat_map(|episode| &episode.calls);
        let mut others = others.chain(&self.work.hooks);
        let is_later = others.any(|call| {
            let is_other_hook = call.method == Method::ExecSync
                && call.container_id.as_deref() == Some(id)
                && (call.seq, call.began) != (hook.seq, hook.began);
            (is_other_hook || is_of_sync(call)) && (started..began).contains(&call.began_at())
        });
        let is_over = began > episode.ended.max(started) + self.limits.quiet;
        self.get(episode.number).filter(|_| !is_later && !is_over)
    }

    /// Moves the preStop hooks of this stop into its episode.
    pub(super) fn claim_hooks(&mut self, number: u64, stop: &EpisodeCall) {
        if stop.method != Method::StopContainer || !stop.peer.is_kubelet() {
            return;
        }
        let hooks = std::mem::take(&mut self.work.hooks);
        let (mut own, others): (VecDeque<_>, _) =
            hooks.into_iter().partition(|hook| is_next_stop(hook, stop));
        self.work.hooks = others;
        // A stop has one preStop hook. A hook before that was the postStart hook.
        if own.is_empty() {
            own.extend(self.take_early_hooks(number, stop));
        }
        if let Some(episode) = self.episodes.get_mut(&number) {
            own.into_iter().for_each(|hook| episode.add(hook));
        }
    }

    /// The preStop hooks of a container that had just started, which may have been postStart hooks until it was stopped.
    fn take_early_hooks(&mut self, number: u64, stop: &EpisodeCall) -> Vec<EpisodeCall> {
        let Some(pod) = stop.pod.as_deref() else {
            return Vec::new();
        };
        let early = self
            .episodes_of(pod)
            .filter(|episode| episode.number != number && episode.kind != Kind::Stop)
            .flat_map(|episode| &episode.calls)
            .find(|hook| is_next_stop(hook, stop) && self.is_pre_stop(pod, hook, stop))
            .map(|hook| (hook.seq, hook.began));
        let Some(early) = early else {
            return Vec::new();
        };
        let mut episodes = self.episodes.values_mut();
        let episode = episodes.find(|episode| {
            let mut calls = episode.calls.iter();
            calls.any(|hook| (hook.seq, hook.began) == early && is_next_stop(hook, stop))
        });
        episode.map_or_else(Vec::new, |episode| {
            episode.take_calls(|hook| (hook.seq, hook.began) == early)
        })
    }

    /// The begin of the preStop hook of this stop, which may be in flight.
    pub(super) fn hook_before(&self, excerpt: &Self, stop: &EpisodeCall) -> Option<UnixMicros> {
        let pod = stop.pod.as_deref()?;
        let hooks = excerpt
            .episodes_of(pod)
            .flat_map(|episode| {
                let is_stop = episode.kind == Kind::Stop;
                episode.calls.iter().map(move |hook| (is_stop, hook))
            })
            .filter(|(is_stop, hook)| {
                is_next_stop(hook, stop) && (*is_stop || excerpt.is_pre_stop(pod, hook, stop))
            })
            .map(|(_, hook)| hook);
        let waiting = self.work.hooks.iter();
        let hooks = hooks.chain(waiting.filter(|hook| is_next_stop(hook, stop)));
        hooks.map(|hook| hook.began_at()).max()
    }

    /// Returns whether a hook that began right after the start of its container is the preStop hook of this stop.
    fn is_pre_stop(&self, pod: &PodIdentity, hook: &EpisodeCall, stop: &EpisodeCall) -> bool {
        let id = hook.container_id.as_deref();
        let start = id.and_then(|id| self.episodes_of(pod).find_map(|e| e.start_of(id)));
        let mut episodes = self.episodes_of(pod);
        let is_post_start =
            id.is_some_and(|id| episodes.any(|episode| episode.has_no_pre_stop_command(id)));
        let Some(start) = start.filter(|_| !is_post_start && stop.peer.is_kubelet()) else {
            return false;
        };
        let (ended, stopped) = (hook.ended_at(), stop.began_at());
        // The kubelet waits for the end of a postStart hook.
        if stopped < ended {
            return !hook.has_ended(Ending::Cancelled);
        }
        // The sync that ran a postStart hook went on.
        let mut calls = self.episodes_of(pod).flat_map(|episode| &episode.calls);
        if calls.any(|call| is_of_sync(call) && (ended..stopped).contains(&call.began_at())) {
            return false;
        }
        if let Some(is_pre_stop) = self.grace_shows(pod, hook, stop) {
            return is_pre_stop;
        }
        let (before, after) = (
            hook.began_at().since(start.ended_at()),
            stopped.since(ended),
        );
        // The container of a postStart hook that failed is stopped at once, too.
        let may_have_failed_start =
            !ExecResult::from_record(hook).is_good() && before <= POST_START_FOLLOWS_WITHIN;
        !may_have_failed_start && after < before
    }

    /// Returns whether the grace period of a stop shows that the hook before it was a preStop hook: then it lacks the seconds that the
    /// hook took. `None` if it shows nothing.
    fn grace_shows(
        &self,
        pod: &PodIdentity,
        hook: &EpisodeCall,
        stop: &EpisodeCall,
    ) -> Option<bool> {
        let own = self.pod_grace(pod, hook)?;
        let given = stop.facts.grace_period()?.as_secs();
        let took = hook.took().as_secs();
        // The kubelet measures a little more than the call took.
        let left = [took, took + 1].map(|took| own.saturating_sub(took).max(MIN_GRACE_SECONDS));
        match given {
            _ if took == 0 || left.contains(&own) => None,
            given if given == own => Some(false),
            given if left.contains(&given) => Some(true),
            _ => None,
        }
    }
}

impl Episode {
    /// Returns whether the request for the container with this id says that no preStop hook of it is a command.
    pub(crate) fn has_no_pre_stop_command(&self, id: &str) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| {
            let request = call.facts.container_request();
            let is_own = call.container_id.as_deref() == Some(id);
            // Journals of earlier versions have no limits and no hooks; requests of other programs have no annotations of the kubelet.
            request.is_some_and(|request| {
                is_own
                    && request.cpu_millis.is_some()
                    && request.pod_grace.is_some()
                    && request.pre_stop != Some(HookHandler::Exec)
            })
        })
    }

    /// The successful StartContainer of the container with this id.
    fn start_of(&self, id: &str) -> Option<&EpisodeCall> {
        let mut calls = self.calls.iter();
        calls.find(|call| call.has_started() && call.container_id.as_deref() == Some(id))
    }
}

/// Returns whether the call is one that the kubelet makes in order to start containers, one after the other.
fn is_of_sync(call: &EpisodeCall) -> bool {
    let starts = matches!(
        call.method,
        Method::RunPodSandbox
            | Method::RestorePod
            | Method::PullImage
            | Method::CreateContainer
            | Method::StartContainer
    );
    starts && call.peer.is_kubelet()
}

/// Returns whether this is a stop by the kubelet of the container of a hook, after the begin of the hook.
fn is_next_stop(hook: &EpisodeCall, stop: &EpisodeCall) -> bool {
    hook.method == Method::ExecSync
        && stop.method == Method::StopContainer
        && stop.peer.is_kubelet()
        && hook.container_id.is_some()
        && hook.container_id == stop.container_id
        && hook.began_at() <= stop.began_at()
}
