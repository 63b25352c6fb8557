//! Diagnosis of pods: episodes grouped by pod, since one episode of a pod can explain another.

mod next;
mod probes;
mod second;

use std::collections::HashMap;

use super::before::Predecessor;
use super::cause::Cause;
use super::kill_reason::known_kill_reason;
use super::kills;
use super::kubelet::KubeletCause;
use super::lifetimes::{self, PodLifetime, newest_loop};
use super::remarks::{Diagnosis, Remark};
use super::{
    before, checkpoints, containers, ephemeral, episode_cause, evidence, failure, hanging, history,
    interventions, missing_image, new_image, node, oom, outcome, reboot, sandbox, stopped, syncs,
    waits,
};
use crate::episode_store::Episode;
use crate::kubelet::hanging_probe::HangingProbe;
use crate::node::NodePrograms;
use crate::usual::NodeContext;
use crate::view::{EpisodeState, PodReason, PodState, ProbeView, SandboxDeathView};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// Finds the causes of episodes, and the cause that matters most for a pod.
#[derive(Debug)]
pub(crate) struct Diagnoser<'a> {
    /// By uid and name, in order of time: a static pod that is taken away and comes back has the same uid.
    pods: HashMap<PodKey<'a>, Vec<PodLifetime<'a>>>,
    /// The newest episode.
    newest: Option<&'a Episode>,
    /// The exec probes of the pod with the newest episode.
    probes: Vec<ProbeView>,
    /// The exec probes of this pod that hang.
    hanging_probes: Vec<HangingProbe>,
    node: NodeContext<'a>,
    /// The time of the diagnosis.
    now: UnixMicros,
}

/// What is the matter with a pod.
#[derive(Debug)]
pub(crate) struct PodVerdict<'a> {
    /// The diagnosis that matters most now.
    pub(crate) diagnosis: Diagnosis<'a>,
    /// The state that it means, where the calls alone do not show it.
    pub(crate) state: Option<PodState>,
}

impl PodVerdict<'_> {
    /// The sentence and the state, for lists.
    pub(crate) fn reason(&self, pods: &Diagnoser<'_>) -> PodReason {
        let diagnosis = &self.diagnosis;
        PodReason {
            text: diagnosis.to_string(),
            cause: diagnosis.name().to_owned(),
            raw_message: diagnosis.raw_message(pods.programs()),
            next: pods.next_of_newest(diagnosis),
            state: self.state,
        }
    }
}

/// Uid, namespace and name.
type PodKey<'a> = (&'a str, &'a str, &'a str);

fn key(episode: &Episode) -> PodKey<'_> {
    (&episode.pod.uid, &episode.pod.namespace, &episode.pod.name)
}

/// The newest episode of the newest pod. The end of a pod may come after the begin of the next one of its name.
fn newest_episode<'a>(pods: &HashMap<PodKey<'_>, Vec<&'a Episode>>) -> Option<&'a Episode> {
    let newest = pods.values().max_by_key(|pod| {
        let began = pod.iter().map(|episode| episode.began);
        (began.clone().min(), began.max())
    })?;
    newest.iter().copied().max_by_key(|episode| episode.began)
}

impl<'a> Diagnoser<'a> {
    /// A diagnosis of these episodes of a node.
    pub(crate) fn new(episodes: &[&'a Episode], node: NodeContext<'a>, now: UnixMicros) -> Self {
        let mut pods = HashMap::<_, Vec<_>>::new();
        for episode in episodes {
            pods.entry(key(episode)).or_default().push(*episode);
        }
        let newest = newest_episode(&pods);
        let pods = pods.into_iter();
        let pods = pods.map(|(key, episodes)| (key, lifetimes::split(&episodes, now)));
        let pods = pods.collect();
        Self {
            pods,
            newest,
            probes: Vec::new(),
            hanging_probes: Vec::new(),
            node,
            now,
        }
    }

    /// Adds the exec probes of the newest pod.
    pub(crate) fn with_probes(mut self, probes: Vec<ProbeView>) -> Self {
        self.probes = probes;
        self
    }

    /// Adds the probes of the newest pod that hang.
    pub(crate) fn with_hanging_probes(mut self, probes: Vec<HangingProbe>) -> Self {
        self.hanging_probes = probes;
        self
    }

    /// The pod of one of the episodes.
    fn pod<'b>(&'b self, episode: &'b Episode) -> Option<&'b PodLifetime<'a>> {
        let pods = self.pods.get(&key(episode))?;
        pods.iter().find(|pod| {
            let mut episodes = pod.episodes.iter();
            episodes.any(|other| other.number == episode.number)
        })
    }

    /// The diagnosis of one of the episodes.
    pub(crate) fn cause(&self, episode: &'a Episode) -> Diagnosis<'a> {
        let pod = self.pod(episode).map_or(&[][..], |pod| &pod.episodes);
        episode_cause(episode, pod, &self.node, self.now)
    }

    /// The crash loop, or the kill loop, of a container of a start or restart.
    pub(crate) fn crash_loop(&self, episode: &Episode) -> Option<Diagnosis<'a>> {
        let pod = self.pod(episode)?;
        if episode.kind == Kind::Stop {
            return None;
        }
        let crashes = containers(episode).filter_map(|name| pod.loops.get(name));
        let crashes = crashes.filter(|crashes| !crashes.is_over);
        let kills = pod.kills.as_ref().filter(|kills| {
            let mut names = containers(episode);
            !kills.is_over && names.any(|name| name == kills.container)
        });
        newest_loop(crashes, kills).map(Diagnosis::from)
    }

    /// The end of the sandbox of a start, if no call stopped it.
    pub(crate) fn sandbox_death(&self, episode: &Episode) -> Option<SandboxDeathView> {
        episode.sandbox_end.as_ref()?;
        let death = sandbox::death(&self.pod(episode)?.episodes, episode.pod.attempt)?;
        Some(death.view())
    }

    /// Returns whether an episode is about a container that was added to the running pod.
    pub(crate) fn is_ephemeral(&self, episode: &Episode) -> bool {
        let pod = self.pod(episode).map_or(&[][..], |pod| &pod.episodes);
        ephemeral::is_ephemeral(episode, pod)
    }

    /// The programs of the node.
    pub(crate) fn programs(&self) -> &NodePrograms {
        self.node.programs
    }

    /// The time of the diagnosis.
    pub(crate) fn now(&self) -> UnixMicros {
        self.now
    }

    /// The verdict on the pod with the newest episode. Of several pods of one name the newest counts. `None` without episodes.
    pub(crate) fn newest_verdict(&self) -> Option<PodVerdict<'a>> {
        let pod = self.pod(self.newest?)?;
        // A problem of the pod's own containers matters more than one of an ephemeral container, which has no part in the state.
        let own = pod.episodes.iter().copied();
        let own = own.filter(|episode| !ephemeral::is_ephemeral(episode, &pod.episodes));
        let own: Vec<_> = own.collect();
        if own.len() == pod.episodes.len() {
            return self.verdict(pod);
        }
        let of_own = self.verdict(&PodLifetime::new(own, self.now));
        let all = self.faults(pod)?;
        match of_own {
            Some(of_own)
                if of_own.diagnosis.is_problem()
                    || !all.is_problem()
                    || pod.last_stop().is_some() =>
            {
                Some(of_own)
            }
            of_own => Some(PodVerdict {
                diagnosis: Diagnosis {
                    remarks: [Remark::OnlyEphemeral]
                        .into_iter()
                        .chain(all.remarks)
                        .collect(),
                    ..all
                },
                // Without a call of its own containers they were up before criscope.
                state: of_own.map_or(Some(PodState::Ok), |of_own| of_own.state),
            }),
        }
    }

    fn verdict(&self, pod: &PodLifetime<'a>) -> Option<PodVerdict<'a>> {
        let diagnosis = self.faults(pod)?;
        let state = match diagnosis.state() {
            Some(PodState::Completed) if containers::some_run(&pod.episodes) => None,
            Some(PodState::Failed) if second::is_pull_for_restart(&diagnosis.cause, pod) => {
                Some(PodState::Starting)
            }
            Some(PodState::Completed) if diagnosis.awaits_container() => Some(PodState::Starting),
            None if diagnosis.awaits_container() => Some(PodState::Starting),
            None if containers::are_done(&pod.episodes) => Some(PodState::Completed),
            state => state,
        };
        Some(PodVerdict { diagnosis, state })
    }

    /// The cause that matters most, a second fault, and the CPU limit where it matters.
    fn faults(&self, pod: &PodLifetime<'a>) -> Option<Diagnosis<'a>> {
        let mut diagnosis = self.with_second_fault(pod, self.cause_that_matters(pod)?);
        evidence::add_request_facts(&mut diagnosis, &pod.episodes);
        let answered = node::answered_driver(&diagnosis, &self.node);
        diagnosis.remarks.extend(answered);
        Some(diagnosis)
    }

    /// The cause that matters most, and the containers that were never started.
    fn cause_that_matters(&self, pod: &PodLifetime<'a>) -> Option<Diagnosis<'a>> {
        let mut diagnosis = self.main_cause(pod)?;
        let start = pod.newest(|e| e.kind == Kind::Start);
        let is_told = diagnosis
            .causes()
            .any(|cause| matches!(cause, Cause::NeverStarted { .. }));
        let never = start.filter(|_| !is_told).and_then(outcome::never_started);
        diagnosis.remarks.extend(never.map(Remark::Also));
        let down = new_image::down_for_image(&diagnosis.cause, &pod.episodes, self.now);
        diagnosis.remarks.extend(down.map(Remark::DownForImage));
        let failed = outcome::failed_before(&diagnosis, &pod.episodes);
        diagnosis.remarks.extend(failed);
        interventions::add_interventions(&mut diagnosis, &pod.episodes);
        let checkpoint = checkpoints::recent_checkpoint(&pod.episodes, self.now);
        diagnosis
            .remarks
            .extend(checkpoint.map(Remark::Checkpointed));
        Some(diagnosis)
    }

    fn main_cause(&self, pod: &PodLifetime<'a>) -> Option<Diagnosis<'a>> {
        if let Some(hanging) = self.cause_of_hanging_call(pod) {
            return Some(hanging);
        }
        if let Some((death, is_stopped)) = sandbox::newest_death(&pod.episodes) {
            let ago = self.now.since(death.end.at);
            let died = Cause::SandboxDied {
                death,
                ago,
                is_stopped,
            };
            return Some(died.into());
        }
        let failing = pod
            .newest(|e| e.state == EpisodeState::Open && failure::newest_unresolved(e).is_some());
        let failing = failing.map(|e| pod.failed_start_before(e).unwrap_or(e));
        let with_node = reboot::ended_with_node(&pod.episodes).filter(|_| failing.is_none());
        let stopped = containers::stopped(&pod.episodes, self.now);
        let mut stopped = stopped.filter(|_| failing.is_none() && with_node.is_none());
        // The kubelet's kills are part of a loop; what others stop ends it.
        if let Some(stopped) = stopped.take_if(|stopped| !stopped.by_kubelet) {
            let mut diagnosis = Diagnosis::from(Cause::ContainersStopped(stopped));
            let past = pod.loop_cause(None).and_then(Cause::into_past);
            diagnosis.remarks.extend(past.map(Remark::Also));
            return Some(diagnosis);
        }
        if let Some(cause) = with_node.or_else(|| pod.loop_cause(failing)) {
            return Some(cause.into());
        }
        if let Some(stopped) = stopped {
            let waits = self.image_after_stop(pod).map(Remark::Also);
            return Some(Diagnosis {
                remarks: waits.into_iter().collect(),
                ..Cause::ContainersStopped(stopped).into()
            });
        }
        let episode = failing.or_else(|| self.episode_that_matters(pod))?;
        let mut diagnosis = self.cause(episode);
        if failing.is_none() && pod.last_stop().is_none() {
            diagnosis = pod.with_settled_loop(diagnosis);
        }
        if let Some(kills) = oom::newest_oom_kills(&pod.episodes).filter(|_| failing.is_none()) {
            let ago = self.now.since(kills.last);
            diagnosis = diagnosis.led_by(Cause::OomKills { kills, ago });
        }
        let hanging = self.hanging_probes.iter().max_by_key(|probe| probe.took);
        if let Some(probe) = hanging.filter(|_| failing.is_none()) {
            diagnosis = diagnosis.led_by(Cause::ProbeHangs(probe.clone()));
        } else if let Some(probe) = self.failing_probe(pod, &diagnosis) {
            diagnosis = diagnosis.led_by(Cause::ProbeFails(probe.clone()));
        } else if let Some(probe) = self.hung_probe(pod, &diagnosis) {
            diagnosis = diagnosis.led_by(Cause::ProbeHangs(probe));
        } else if let Some(probe) = self.late_probe(pod, &diagnosis) {
            diagnosis = diagnosis.led_by(Cause::ProbeLate(probe));
        }
        let Some(stop) = pod.last_stop() else {
            return Some(diagnosis);
        };
        let is_past = stop.number == episode.number || diagnosis.is_past_when_stopped();
        let then = self.cause(stop);
        Some(
            match stopped::pod_stop(stop, &pod.episodes, self.now).filter(|_| is_past) {
                Some(pod_stop) if then.is_fine_stop() => {
                    let by_hand = interventions::run_ended_by_hand(stop, &pod.episodes, self.now);
                    let mut then = stopped::with_past(then, pod_stop, diagnosis, &pod.loops);
                    let by_hand = by_hand.map(Predecessor::ContainerRun);
                    let by_hand = by_hand.map(Cause::StartedAgain).map(Remark::Also);
                    then.remarks.extend(by_hand);
                    then
                }
                Some(_) => then,
                None if diagnosis.is_past_when_gone()
                    || diagnosis.is_slow_start_of_running() && !then.is_fine_stop() =>
                {
                    then
                }
                None => {
                    let failed = matches!(diagnosis.cause, Cause::CallFails(_));
                    let stopped = stopped::sandbox_stop(stop, self.now).filter(|_| failed);
                    diagnosis.remarks.extend(stopped);
                    diagnosis
                }
            },
        )
    }

    /// What the kubelet waits for since it stopped a container and looked for another image.
    fn image_after_stop(&self, pod: &PodLifetime<'a>) -> Option<Cause<'a>> {
        let stop = pod.newest(Episode::is_tentative)?;
        let image = self.node.awaited_image(stop.number)?;
        let pull = self.node.pull_before(&stop.pod);
        let reasons = waits::steps_before_pull(image, self.now.since(image.last), &self.node);
        Some(missing_image(
            image,
            self.now.since(stop.ended),
            pull,
            reasons,
        ))
    }

    /// The diagnosis of the newest episode with a call that hangs, or the kill loop that this call is part of.
    fn cause_of_hanging_call(&self, pod: &PodLifetime<'a>) -> Option<Diagnosis<'a>> {
        let episode = pod.newest(|e| hanging(e).is_some())?;
        let call = hanging(episode)?;
        let mut kills = pod.kills.as_ref().filter(|kills| {
            let ends = matches!(call.method, Method::StopContainer | Method::ExecSync);
            ends && call.container_name() == Some(kills.container) && !kills.is_over
        });
        // A stop without a known reason may be the end of the pod.
        let is_next_kill = match call.method {
            Method::StopContainer => {
                known_kill_reason(&pod.episodes, call).is_some() && !kills::is_overdue(call)
            }
            _ => call.probe.is_some(),
        };
        if let Some(kills) = kills.take_if(|_| is_next_kill) {
            return Some(Cause::Kubelet(KubeletCause::KillLoop(kills.clone())).into());
        }
        let mut diagnosis = self.cause(episode);
        if let Some(kills) = kills {
            let past = Cause::Kubelet(KubeletCause::KillLoop(kills.clone())).into_past();
            diagnosis.remarks.extend(past.map(Remark::Also));
        }
        Some(diagnosis)
    }

    /// The episode that matters most if nothing fails now.
    fn episode_that_matters(&self, pod: &PodLifetime<'a>) -> Option<&'a Episode> {
        let failing_sync = syncs::newest_failing_sync(&pod.episodes, self.now);
        failing_sync
            .map(|(episode, _)| episode)
            .or_else(|| pod.newest(|e| self.is_current(pod, e)))
            .or_else(|| {
                // A failure counts until a newer episode succeeded. The stop of the pod makes nothing good.
                let newest = pod.newest(|e| e.state != EpisodeState::Open);
                let up = pod.newest(|e| e.state != EpisodeState::Open && e.kind != Kind::Stop);
                let newest = newest.into_iter().chain(up);
                newest.into_iter().find(|e| e.state == EpisodeState::Failed)
            })
            .or_else(|| self.restart_that_matters(pod))
            .or_else(|| {
                let episodes = pod.episodes.iter().copied();
                episodes.max_by_key(|e| (e.kind != Kind::Stop, e.duration()))
            })
    }

    /// Returns whether an episode goes on. A quick stop is told only if nothing else was the matter with the pod.
    fn is_current(&self, pod: &PodLifetime<'_>, episode: &Episode) -> bool {
        let is_told = match episode.kind {
            Kind::Start => true,
            Kind::Restart => !outcome::is_of_done_init(episode, &pod.episodes),
            Kind::Stop => self.node.usual.is_slow(episode.duration()) && !episode.only_cleans,
        };
        episode.state == EpisodeState::Open && is_told
    }

    /// The newest restart, if its cause says how the last run ended: that matters more than how long a start took.
    fn restart_that_matters(&self, pod: &PodLifetime<'a>) -> Option<&'a Episode> {
        let restart = pod
            .newest(|e| before::may_follow_run(e, &pod.episodes) && e.state == EpisodeState::Ok)?;
        // An init container that had to run again is done once others follow.
        let mut calls = history::calls(&pod.episodes);
        let is_followed = calls.any(|call| call.began_at() >= restart.ended && call.has_started());
        let matters = !is_followed && self.cause(restart).says_how_a_run_ended();
        matters.then_some(restart)
    }
}

/// The containers of an episode.
fn containers(episode: &Episode) -> impl Iterator<Item = &str> {
    let own = episode.container.iter().map(|container| &*container.name);
    let calls = episode.calls.iter().filter_map(|c| c.container_name());
    let exits = episode.exits.iter().map(|exit| &*exit.container);
    own.chain(calls).chain(exits)
}
