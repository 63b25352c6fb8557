//! Work of the kubelet other than starting and stopping: hooks and probes in containers, and pulls that wait for their turn.

use std::collections::VecDeque;
use std::time::Duration;

use super::assign::Assignment;
use super::{CallEffect, Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::kubelet::execs::ExecResult;
use crate::kubelet::images::{self, FailedImageLookup, MissingImage, MissingImages};
use crate::kubelet::probes::{ContainerProbes, KillEvidence};
use crate::kubelet::pulls::RecentPulls;
use crate::view;
use criscope_cri::Method;
use criscope_cri::call::CallRecord;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::UnixMicros;

/// Most hooks that wait for the stop they precede.
const MAX_WAITING_HOOKS: usize = 64;
/// The kubelet runs a postStart hook this soon after StartContainer, and calls StopContainer this soon after a preStop hook.
const HOOK_ADJOINS_WITHIN: Duration = Duration::from_secs(2);

/// The kubelet's own work: the parts that later calls need.
#[derive(Clone, Debug, Default)]
pub(super) struct KubeletWork {
    probes: ContainerProbes,
    pulls: RecentPulls,
    images: MissingImages,
    /// Hooks that have ended and followed no start: preStop hooks, most probably.
    hooks: VecDeque<EpisodeCall>,
}

impl EpisodeStore {
    /// Adds to a call the facts that only this process knows: its pod and container, and the events before it.
    pub(crate) fn observe(&self, call: &mut EpisodeCall) {
        self.observe_in(self, call);
    }

    /// Adds to a hook or stop in flight the facts that only this process knows. `excerpt` has the other calls in flight of its pod.
    pub(crate) fn observe_in(&self, excerpt: &Self, call: &mut EpisodeCall) {
        self.identify(call);
        self.judge_origin(call);
        match (call.method, call.container_id.as_deref()) {
            (Method::StopContainer, Some(id)) => {
                let hook = self.hook_before(excerpt, call);
                let at = hook.unwrap_or(call.began_at());
                call.probe = self.work.probes.failed_before(id, at, call.ended_at());
            }
            // No probe has failed before a postStart hook.
            (Method::ExecSync, Some(id)) => {
                let at = call.began_at();
                let failed = self.work.probes.failed_before(id, at, at);
                call.probe = failed.filter(|probe| probe.evidence == KillEvidence::AtOnce);
            }
            (Method::PullImage, _) => {
                let queue = self.end_before(call);
                let queue = queue.and_then(|end| self.work.pulls.queue_of(call, end));
                call.queue = queue.map(Box::new);
            }
            _ => {}
        }
    }

    /// The begin of the hook before this stop, which may be in flight. A hook soon after the start of its container was taken for a
    /// postStart hook.
    fn hook_before(&self, excerpt: &Self, stop: &EpisodeCall) -> Option<UnixMicros> {
        let episodes_of = excerpt.episodes_of(stop.pod.as_deref()?);
        let episodes_of = episodes_of.flat_map(|episode| &episode.calls);
        let hooks = episodes_of.filter(|call| call.method == Method::ExecSync);
        let hooks = hooks.chain(&self.work.hooks);
        let before = hooks.filter(|hook| precedes(hook, stop));
        before.map(|hook| hook.began_at()).max()
    }

    /// The end of the pod's call before this one.
    fn end_before(&self, call: &EpisodeCall) -> Option<UnixMicros> {
        let began = call.began_at();
        let open = self
            .episodes_of(call.pod.as_deref()?)
            .find(|episode| episode.is_open())?;
        let ends = open.calls.iter().map(|call| call.ended_at());
        ends.filter(|end| *end <= began).max()
    }

    /// Notes that the kubelet looked for an image and got none.
    pub(crate) fn note_no_image(&mut self, found: FailedImageLookup) {
        let waiting = self.open_episodes().filter(|episode| {
            let last = episode.calls.back();
            let from = episode.ended;
            let to = from + images::LOOKUP_FOLLOWS_SANDBOX_WITHIN;
            episode.kind == Kind::Start
                && last.is_some_and(|call| call.is_new_sandbox())
                && (from..=to).contains(&found.at)
        });
        let numbers: Vec<_> = waiting.map(|episode| episode.number).take(2).collect();
        let number = match numbers[..] {
            [number] => Some(number),
            _ => None,
        };
        self.work.images.note(found, number);
    }

    /// Images that the kubelet did not find and has not pulled.
    pub(crate) fn missing_images(&self) -> Vec<MissingImage> {
        self.work.images.all()
    }

    /// Notes that a probe has ended.
    pub(crate) fn note_probe(&mut self, record: &CallRecord) {
        self.work.probes.note(record);
    }

    /// Remembers the facts about this call that later calls need.
    pub(super) fn note_work(&mut self, call: &EpisodeCall) {
        if call.is_in_flight() {
            return;
        }
        match (call.method, call.container_id.as_deref()) {
            (Method::PullImage, _) => {
                self.work.pulls.note(call);
                self.work
                    .images
                    .forget(call.image.as_deref().unwrap_or_default());
            }
            (Method::RemoveContainer, Some(id)) => self.work.probes.forget(id),
            _ => {}
        }
    }

    /// Applies a hook. One that follows no start is kept for the stop that it precedes.
    pub(super) fn apply_hook(&mut self, call: EpisodeCall) -> CallEffect {
        let Some(pod) = call.pod.clone() else {
            return CallEffect::Nothing;
        };
        let number = match self.assign(&call) {
            Assignment::In(number) => number,
            _ if call.is_in_flight() => self.open(Kind::Stop, &pod, &call),
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
            for stop in stops.filter(|stop| stop.method == Method::StopContainer) {
                if let Some(id) = call
                    .container_id
                    .as_deref()
                    .filter(|_| precedes(&call, stop))
                {
                    let (at, until) = (call.began_at(), stop.ended_at());
                    stop.probe = self.work.probes.failed_before(id, at, until);
                }
            }
            episode.add(call);
        }
        CallEffect::PartOf(number)
    }

    /// The episode of a hook: the one that started its container just before, or that stops it.
    pub(super) fn assign_hook(&self, pod: &PodIdentity, call: &EpisodeCall) -> Assignment {
        let began = call.began_at();
        let episode = self.episodes_of(pod).find(|episode| {
            let calls = episode.calls.iter();
            let mut same = calls.filter(|other| {
                other.container_id.is_some() && other.container_id == call.container_id
            });
            same.any(|other| match other.method {
                Method::StartContainer => {
                    let end = other.ended_at();
                    other.is_good() && (end..=end + HOOK_ADJOINS_WITHIN).contains(&began)
                }
                Method::StopContainer => other.began_at() >= began,
                _ => false,
            })
        });
        match episode {
            Some(episode) => Assignment::In(episode.number),
            None => Assignment::Nowhere,
        }
    }

    /// Moves the hooks that precede this stop of their container into its episode.
    pub(super) fn claim_hooks(&mut self, number: u64, call: &EpisodeCall) {
        if call.method != Method::StopContainer {
            return;
        }
        let hooks = std::mem::take(&mut self.work.hooks);
        let (mut own, others): (VecDeque<_>, _) =
            hooks.into_iter().partition(|hook| precedes(hook, call));
        self.work.hooks = others;
        own.extend(self.take_early_hooks(number, call));
        if let Some(episode) = self.episodes.get_mut(&number) {
            own.into_iter().for_each(|hook| episode.add(hook));
        }
    }

    /// The preStop hooks of a container that had just started, which were taken for postStart hooks. A stop follows a postStart hook
    /// only if the hook failed.
    fn take_early_hooks(&mut self, number: u64, stop: &EpisodeCall) -> Vec<EpisodeCall> {
        let Some(pod) = stop.pod.as_deref() else {
            return Vec::new();
        };
        let started = self
            .episodes_of(pod)
            .find(|episode| {
                let mut calls = episode.calls.iter();
                episode.number != number && calls.any(|hook| is_good_hook_before(hook, stop))
            })
            .map(|episode| episode.number);
        let episode = started.and_then(|number| self.episodes.get_mut(&number));
        episode.map_or_else(Vec::new, |episode| {
            episode.take_calls(|hook| is_good_hook_before(hook, stop))
        })
    }

    /// The exec probes of the newest container of each name in these episodes.
    pub(crate) fn probes_of(&self, episodes: &[&Episode]) -> Vec<view::ProbeView> {
        let calls = episodes.iter().flat_map(|episode| &episode.calls);
        let mut newest = std::collections::BTreeMap::new();
        for call in calls.filter(|call| call.method == Method::StartContainer) {
            if let (Some(container), Some(id)) = (&call.container, &call.container_id) {
                let at = newest
                    .entry(&*container.name)
                    .or_insert((call.began, container, id));
                if at.0 < call.began {
                    *at = (call.began, container, id);
                }
            }
        }
        let all = newest.into_values();
        all.flat_map(|(_, container, id)| {
            let ContainerIdentity { name, attempt } = &**container;
            self.work.probes.views_of(id, name, *attempt)
        })
        .collect()
    }
}

/// Returns whether a call is a successful hook that the kubelet waited for before it stopped the container.
fn is_good_hook_before(call: &EpisodeCall, stop: &EpisodeCall) -> bool {
    call.method == Method::ExecSync
        && ExecResult::from_record(call).is_good()
        && precedes(call, stop)
}

/// Returns whether the kubelet waited for the hook before it stopped the container. A hook that takes longer than the grace period
/// goes on during the stop.
fn precedes(hook: &EpisodeCall, stop: &EpisodeCall) -> bool {
    let (began, end) = (hook.began_at(), hook.ended_at());
    hook.container_id.is_some()
        && hook.container_id == stop.container_id
        && began <= stop.began_at()
        && end + HOOK_ADJOINS_WITHIN >= stop.began_at()
}
