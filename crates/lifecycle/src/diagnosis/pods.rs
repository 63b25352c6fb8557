//! Diagnosis of pods: episodes grouped by pod, since one episode of a pod can explain another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::cause::Cause;
use super::crash::{self, CrashLoop};
use super::kills::{self, KillLoop};
use super::kubelet::KubeletCause;
use super::remarks::Diagnosis;
use super::{
    before, ephemeral, episode_cause, failure, hanging, history, oom, reboot, sandbox, stopped,
    syncs,
};
use crate::episode_store::Episode;
use crate::usual::NodeContext;
use crate::view::{EpisodeState, ProbeView, SandboxDeathView};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A probe that has not run for this long says nothing any more.
const PROBE_RESULT_EXPIRES_AFTER: Duration = Duration::from_secs(5 * 60);

/// How long a slow stop that has ended remains the headline.
const SLOW_STOP_SHOWN_FOR: Duration = Duration::from_secs(10);

/// Another kill of a container this soon after the last is one of the same series.
const NEXT_KILL_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Finds the causes of episodes, and the cause that matters most for a pod.
#[derive(Debug)]
pub(crate) struct Diagnoser<'a> {
    /// By uid and name, in order of time: a static pod that is taken away and comes back has the same uid.
    pods: HashMap<PodKey<'a>, Vec<PodLifetime<'a>>>,
    /// The newest episode.
    newest: Option<&'a Episode>,
    /// The exec probes of the pod with the newest episode.
    probes: Vec<ProbeView>,
    node: NodeContext<'a>,
    /// The time of the diagnosis.
    now: UnixMicros,
}

/// Uid, namespace and name.
type PodKey<'a> = (&'a str, &'a str, &'a str);

/// A pod from its first sandbox until it is stopped.
#[derive(Debug)]
struct PodLifetime<'a> {
    episodes: Vec<&'a Episode>,
    loops: BTreeMap<&'a str, CrashLoop<'a>>,
    /// The newest series of kills by the kubelet.
    kills: Option<KillLoop<'a>>,
}

fn key(episode: &Episode) -> PodKey<'_> {
    (&episode.pod.uid, &episode.pod.namespace, &episode.pod.name)
}

/// Splits the episodes of pods with the same key: a pod begins with a first sandbox after the pod before was stopped.
fn split<'a>(episodes: &[&'a Episode], now: UnixMicros) -> Vec<PodLifetime<'a>> {
    let stops = episodes
        .iter()
        .filter(|e| e.kind == Kind::Stop && e.state == EpisodeState::Ok);
    let first_stop = stops
        .map(|stop| stop.ended)
        .min()
        .unwrap_or(UnixMicros::MAX);
    let starts = episodes.iter().filter(|e| e.kind == Kind::Start);
    let begins = starts.filter(|start| {
        let makes = start.calls.iter().any(|call| call.is_new_sandbox());
        let is_first = start.pod.attempt == 0 || start.comes_back();
        makes && is_first && first_stop <= start.began
    });
    let begins = begins.map(|start| start.began);
    let begins = BTreeSet::from_iter(begins.chain([UnixMicros::EPOCH]));
    let ends = begins.iter().copied().skip(1).chain([UnixMicros::MAX]);
    let lifetimes = begins.iter().copied().zip(ends).map(|(begin, end)| {
        let own = episodes.iter().copied();
        let own = own.filter(|episode| (begin..end).contains(&episode.began));
        PodLifetime::new(own.collect(), now)
    });
    lifetimes.collect()
}

impl<'a> PodLifetime<'a> {
    fn new(episodes: Vec<&'a Episode>, now: UnixMicros) -> Self {
        Self {
            loops: crash::loops(&episodes, now),
            kills: kills::newest_kill_loop(&episodes, now),
            episodes,
        }
    }

    /// The start that failed before a failing stop: the kubelet cleans up after a failed RunPodSandbox, and the fault that broke
    /// the one mostly breaks the other.
    fn failed_start_before(&self, stop: &Episode) -> Option<&'a Episode> {
        let before =
            self.episodes.iter().copied().filter(|e| {
                stop.kind == Kind::Stop && e.kind != Kind::Stop && e.began <= stop.began
            });
        before.max_by_key(|e| e.began).filter(|e| {
            let failed = failure::newest_unresolved(e);
            failed.is_some_and(|call| call.method == Method::RunPodSandbox)
        })
    }

    /// The newest of the `wanted` episodes.
    fn newest(&self, wanted: impl Fn(&Episode) -> bool) -> Option<&'a Episode> {
        let episodes = self.episodes.iter().copied();
        let wanted = episodes.filter(|episode| wanted(episode));
        wanted.max_by_key(|episode| episode.began)
    }

    /// The kill loop or crash loop of a container, if it went on after the `failing` episode.
    fn loop_cause(&self, failing: Option<&Episode>) -> Option<Cause<'a>> {
        let failed = failing.map(|episode| episode.ended);
        let crashes = self.loops.values();
        let kills = self.kills.as_ref();
        newest_loop(
            crashes.filter(|crashes| failed.is_none_or(|failed| crashes.at() > failed)),
            kills.filter(|kills| failed.is_none_or(|failed| kills.at > failed)),
        )
    }

    /// The newest stop, if it ended well and nothing was started after it. The stop of a replaced sandbox does not count.
    fn last_stop(&self) -> Option<&'a Episode> {
        let episodes = self.episodes.iter().copied();
        let last = episodes
            .clone()
            .filter(|e| !e.only_cleans)
            .max_by_key(|e| e.began)?;
        let is_newest = !episodes.clone().any(|e| e.pod.attempt > last.pod.attempt);
        (last.kind == Kind::Stop && last.state == EpisodeState::Ok && is_newest).then_some(last)
    }
}

impl<'a> Diagnoser<'a> {
    /// A diagnosis of these episodes of a node.
    pub(crate) fn new(episodes: &[&'a Episode], node: NodeContext<'a>, now: UnixMicros) -> Self {
        let mut pods = HashMap::<_, Vec<_>>::new();
        for episode in episodes {
            pods.entry(key(episode)).or_default().push(*episode);
        }
        let pods = pods.into_iter();
        let pods = pods.map(|(key, episodes)| (key, split(&episodes, now)));
        let pods = pods.collect();
        let newest = episodes.iter().copied().max_by_key(|e| e.began);
        Self {
            pods,
            newest,
            probes: Vec::new(),
            node,
            now,
        }
    }

    /// Adds the exec probes of the newest pod.
    pub(crate) fn with_probes(mut self, probes: Vec<ProbeView>) -> Self {
        self.probes = probes;
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

    /// The sentence on the crash loop, or the kill loop, of a container of a start or restart.
    pub(crate) fn crash_loop(&self, episode: &Episode) -> Option<String> {
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
        newest_loop(crashes, kills).map(|cause| cause.to_string())
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

    /// The time of the diagnosis.
    pub(crate) fn now(&self) -> UnixMicros {
        self.now
    }

    /// The diagnosis that matters most now for the pod with the newest episode. Of several pods of one name the newest counts.
    /// `None` without episodes.
    pub(crate) fn newest_cause(&self) -> Option<Diagnosis<'a>> {
        let pod = self.pod(self.newest?)?;
        // A problem of the pod's own containers matters more than one of an ephemeral container.
        let own = pod.episodes.iter().copied();
        let own = own.filter(|episode| !ephemeral::is_ephemeral(episode, &pod.episodes));
        let own: Vec<_> = own.collect();
        if own.len() < pod.episodes.len() {
            let own = self.cause_that_matters(&PodLifetime::new(own, self.now));
            if let Some(problem) = own.filter(Diagnosis::is_problem) {
                return Some(problem);
            }
        }
        self.cause_that_matters(pod)
    }

    fn cause_that_matters(&self, pod: &PodLifetime<'a>) -> Option<Diagnosis<'a>> {
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
        if let Some(cause) = with_node.or_else(|| pod.loop_cause(failing)) {
            return Some(cause.into());
        }
        if let Some((exit, peer)) =
            before::stopped_for_good(&pod.episodes).filter(|_| failing.is_none())
        {
            let ago = self.now.since(exit.at);
            return Some(Cause::StoppedByOther { exit, peer, ago }.into());
        }
        let episode = failing.or_else(|| self.episode_that_matters(pod))?;
        let mut diagnosis = self.cause(episode);
        if let Some(kills) = oom::newest_oom_kills(&pod.episodes).filter(|_| failing.is_none()) {
            let ago = self.now.since(kills.last);
            diagnosis = diagnosis.led_by(Cause::OomKills { kills, ago });
        }
        if let Some(probe) = self.failing_probe(pod, &diagnosis) {
            diagnosis = diagnosis.led_by(Cause::ProbeFails(probe.clone()));
        }
        let Some(stop) = pod.last_stop() else {
            return Some(diagnosis);
        };
        let is_past = stop.number == episode.number || diagnosis.is_past_when_stopped();
        let then = self.cause(stop);
        Some(
            match stopped::pod_stop(stop, &pod.episodes, self.now).filter(|_| is_past) {
                Some(stop) if then.is_fine_stop() => then.led_by(Cause::PodStopped(stop)),
                Some(_) => then,
                None if diagnosis.is_past_when_gone() => then,
                None => diagnosis,
            },
        )
    }

    /// The diagnosis of the newest episode with a call that hangs, or the kill loop that this call is part of.
    fn cause_of_hanging_call(&self, pod: &PodLifetime<'a>) -> Option<Diagnosis<'a>> {
        let episode = pod.newest(|e| hanging(e).is_some())?;
        let call = hanging(episode)?;
        let kills = pod.kills.as_ref().filter(|kills| {
            let is_stop = call.method == Method::StopContainer && !kills::is_overdue(call);
            (is_stop || call.method == Method::ExecSync && call.probe.is_some())
                && call.container_name() == Some(kills.container)
                && !kills.is_over
                && self.now.since(kills.at) < NEXT_KILL_WITHIN
        });
        Some(match kills {
            Some(kills) => Cause::Kubelet(KubeletCause::KillLoop(kills.clone())).into(),
            None => self.cause(episode),
        })
    }

    /// The episode that matters most if nothing fails now.
    fn episode_that_matters(&self, pod: &PodLifetime<'a>) -> Option<&'a Episode> {
        pod.newest(|e| syncs::failing_sync(e, self.now).is_some())
            .or_else(|| pod.newest(|e| self.is_current(e)))
            .or_else(|| {
                // A failure counts until a newer episode succeeded.
                let newest = pod.newest(|e| e.state != EpisodeState::Open);
                newest.filter(|e| e.state == EpisodeState::Failed)
            })
            .or_else(|| self.restart_that_matters(pod))
            .or_else(|| {
                let episodes = pod.episodes.iter().copied();
                episodes.max_by_key(|e| (e.kind != Kind::Stop, e.duration()))
            })
    }

    /// Returns whether an episode goes on, or is a slow stop that has just ended. A quick stop is told only if nothing else was
    /// the matter with the pod.
    fn is_current(&self, episode: &Episode) -> bool {
        let is_slow = self.node.usual.is_slow(episode.duration());
        match episode.kind {
            Kind::Stop if episode.state == EpisodeState::Ok => {
                let has_just_ended = self.now.since(episode.ended) < SLOW_STOP_SHOWN_FOR;
                has_just_ended && is_slow && !episode.only_cleans
            }
            Kind::Stop => episode.state == EpisodeState::Open && is_slow && !episode.only_cleans,
            Kind::Start | Kind::Restart => episode.state == EpisodeState::Open,
        }
    }

    /// The newest restart, if its cause says how the last run ended: that matters more than how long a start took.
    fn restart_that_matters(&self, pod: &PodLifetime<'a>) -> Option<&'a Episode> {
        let restart =
            pod.newest(|e| e.kind != Kind::Stop && e.attempt() > 0 && e.state == EpisodeState::Ok)?;
        // An init container that had to run again is done once others follow.
        let mut calls = history::calls(&pod.episodes);
        let is_followed = calls.any(|call| call.began_at() >= restart.ended && call.has_started());
        let matters = !is_followed && self.cause(restart).says_how_a_run_ended();
        matters.then_some(restart)
    }

    /// An exec probe that keeps failing in a container that is up.
    fn failing_probe(
        &self,
        pod: &PodLifetime<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> Option<&ProbeView> {
        let up = diagnosis.up();
        let stops = history::calls(&pod.episodes)
            .filter(|call| matches!(call.method, Method::StopContainer | Method::StopPodSandbox));
        let stopped = stops.map(|call| call.began_at()).max().unwrap_or_default();
        let failing = self.probes.iter().filter(|probe| {
            let last = probe.last_unix_us;
            let is_recent = self.now.since(last) < PROBE_RESULT_EXPIRES_AFTER;
            probe.failed_in_a_row >= 2
                && is_recent
                && last > stopped
                && up.contains(&&*probe.container)
        });
        failing.max_by_key(|probe| probe.failed_in_a_row)
    }
}

/// The newest of these loops.
fn newest_loop<'b, 'a: 'b>(
    crashes: impl Iterator<Item = &'b CrashLoop<'a>>,
    kills: Option<&KillLoop<'a>>,
) -> Option<Cause<'a>> {
    let crashes = crashes.max_by_key(|crashes| crashes.at());
    match (crashes, kills) {
        (Some(crashes), kills) if kills.is_none_or(|kills| kills.at <= crashes.at()) => {
            Some(Cause::CrashLoop(crashes.clone()))
        }
        (_, kills) => Some(Cause::Kubelet(KubeletCause::KillLoop(kills?.clone()))),
    }
}

/// The containers of an episode.
fn containers(episode: &Episode) -> impl Iterator<Item = &str> {
    let own = episode.container.iter().map(|container| &*container.name);
    let calls = episode.calls.iter().filter_map(|c| c.container_name());
    let exits = episode.exits.iter().map(|exit| &*exit.container);
    own.chain(calls).chain(exits)
}
