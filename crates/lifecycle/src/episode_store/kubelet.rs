//! Work of the kubelet other than starting and stopping: probes in containers, and pulls that wait for their turn.

use std::collections::VecDeque;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::kubelet::images::{self, AwaitedImages, FoundImage, ImageLookup, MissingImage};
use crate::kubelet::probes::{ContainerProbes, ExecProbe, KillEvidence};
use crate::kubelet::pulls::RecentPulls;
use crate::view;
use criscope_cri::Method;
use criscope_cri::call::CallRecord;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ContainerIdentity;
use criscope_cri::units::times::UnixMicros;

/// The kubelet's own work: the parts that later calls need.
#[derive(Clone, Debug, Default)]
pub(super) struct KubeletWork {
    pub(super) probes: ContainerProbes,
    pulls: RecentPulls,
    images: AwaitedImages,
    /// Hooks that have ended and followed no start: preStop hooks, most probably.
    pub(super) hooks: VecDeque<EpisodeCall>,
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
        call.usual = self.usual_at_end(call);
        call.was_listed_up = self.is_listed_up(call);
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

    /// The end of the pod's call before this one.
    fn end_before(&self, call: &EpisodeCall) -> Option<UnixMicros> {
        let began = call.began_at();
        let open = self
            .episodes_of(call.pod.as_deref()?)
            .find(|episode| episode.is_open())?;
        let ends = open.calls.iter().map(|call| call.ended_at());
        ends.filter(|end| *end <= began).max()
    }

    /// Notes that the kubelet looked for an image: for a new sandbox, or after it stopped a container. Returns whether a pod needs the
    /// image.
    pub(crate) fn note_image_lookup(&mut self, lookup: ImageLookup) -> bool {
        let waiting = self.open_episodes().filter(|episode| {
            let last = episode.calls.back();
            let from = episode.ended;
            let to = from + images::LOOKUP_FOLLOWS_WITHIN;
            let has_just_stopped = episode.is_tentative()
                && last.is_some_and(|call| {
                    call.method == Method::StopContainer && call.peer.is_kubelet() && call.is_good()
                });
            let has_just_sandbox =
                episode.kind == Kind::Start && last.is_some_and(|call| call.is_new_sandbox());
            (has_just_sandbox || has_just_stopped) && (from..=to).contains(&lookup.at)
        });
        let numbers: Vec<_> = waiting.map(|episode| episode.number).take(2).collect();
        let number = match numbers[..] {
            [number] => Some(number),
            _ => None,
        };
        self.work.images.note(lookup, number)
    }

    /// Images that the kubelet did not find and has not pulled.
    pub(crate) fn missing_images(&self) -> Vec<MissingImage> {
        self.work.images.missing()
    }

    /// Images that the kubelet found for pods.
    pub(crate) fn found_images(&self) -> Vec<FoundImage> {
        self.work.images.found()
    }

    /// Notes that a probe has ended. Returns whether that is news for the journal.
    pub(crate) fn note_probe(&mut self, record: &CallRecord) -> bool {
        self.work.probes.note(record)
    }

    /// The exec probes of all containers, by container id.
    pub(crate) fn probes(&self) -> &ContainerProbes {
        &self.work.probes
    }

    /// Notes the exec probes of a container that an earlier process knew.
    pub(crate) fn put_probes(&mut self, container_id: &str, probes: Vec<ExecProbe>) {
        self.work.probes.put(container_id, probes);
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
        .map(|probe| self.without_downtime(probe))
        .collect()
    }

    /// The probe without a run that seemed to hang because criscope did not run.
    fn without_downtime(&self, mut probe: view::ProbeView) -> view::ProbeView {
        probe.last_hung.take_if(|hung| {
            let (from, to) = (hung.began_unix_us, hung.ended_unix_us);
            let mut facts = self.node.since(from);
            facts.any(|fact| fact.is_of_criscope() && !fact.within(from, to).is_zero())
        });
        probe
    }
}
