//! The episodes in which causes are looked for, by pod: what one of them shows can explain another.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cause::Cause;
use super::crash::{self, CrashLoop};
use super::kills::{self, KillLoop};
use super::kubelet::KubeletCause;
use super::{ephemeral, episode_cause, failure, hanging, oom, reboot, sandbox, stopped, syncs};
use crate::call::episode::Kind;
use crate::cri::Method;
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::usual::NodeContext;
use crate::lifecycle::view::{EpisodeState, ProbeView, SandboxDeathView};

/// A probe that has not run for so long says nothing any more, in microseconds.
const PROBE_RESULT_EXPIRES_AFTER: u64 = 5 * 60 * 1_000_000;

/// How long a slow stop that has ended remains the headline, in microseconds.
const SLOW_STOP_SHOWN_FOR: u64 = 10_000_000;

/// Another kill of a container this soon after the last, in microseconds, is one of the same series.
const NEXT_KILL_WITHIN: u64 = 10 * 60 * 1_000_000;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Diagnoser<'a> {
    /// By uid and name, in order of time: a static pod that is taken away and comes back has the same uid.
    pods: HashMap<PodKey<'a>, Vec<PodLifetime<'a>>>,
    /// The newest episode.
    newest: Option<&'a Episode>,
    /// The exec probes of its pod.
    probes: Vec<ProbeView>,
    node: NodeContext<'a>,
    /// In microseconds since 1970.
    now: u64,
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

/// Splits the episodes of pods with the same key where one of them begins after the one before was stopped.
fn split<'a>(episodes: &[&'a Episode], now: u64) -> Vec<PodLifetime<'a>> {
    let is_stopped = |time: u64| {
        let mut stops = episodes.iter().filter(|e| e.kind == Kind::Stop);
        stops.any(|stop| stop.state == EpisodeState::Ok && stop.ended <= time)
    };
    let begins = |e: &&&Episode| {
        let makes = e.calls.iter().any(|call| call.is_new_sandbox());
        let is_first = e.pod.attempt == 0 || e.comes_back();
        e.kind == Kind::Start && makes && is_first && is_stopped(e.began)
    };
    let begins = episodes.iter().filter(begins).map(|e| e.began);
    let begins = BTreeSet::from_iter(begins.chain([0]));
    let ends = begins.iter().copied().skip(1).chain([u64::MAX]);
    let parts = begins.iter().copied().zip(ends).map(|(begin, end)| {
        let of_it = |e: &&'a Episode| (begin..end).contains(&e.began);
        episodes.iter().copied().filter(of_it).collect()
    });
    parts
        .map(|episodes| PodLifetime::new(episodes, now))
        .collect()
}

impl<'a> PodLifetime<'a> {
    fn new(episodes: Vec<&'a Episode>, now: u64) -> Self {
        Self {
            loops: crash::loops(&episodes, now),
            kills: kills::newest_kill_loop(&episodes, now),
            episodes,
        }
    }

    /// The start whose sandbox could not be made, for a stop that fails after it: the kubelet cleans up after a failed
    /// RunPodSandbox, and what broke it mostly breaks that too.
    fn behind(&self, stop: &Episode) -> Option<&'a Episode> {
        let before =
            self.episodes.iter().copied().filter(|e| {
                stop.kind == Kind::Stop && e.kind != Kind::Stop && e.began <= stop.began
            });
        before.max_by_key(|e| e.began).filter(|e| {
            let failed = failure::newest_unresolved(e);
            failed.is_some_and(|call| call.method == Method::RunPodSandbox)
        })
    }

    /// The stop that ended well and after which nothing was started; not that of a sandbox that was replaced.
    fn last_stop(&self) -> Option<&'a Episode> {
        let episodes = || self.episodes.iter().copied();
        let last = episodes()
            .filter(|e| !e.only_cleans)
            .max_by_key(|e| e.began)?;
        let is_newest = !episodes().any(|e| e.pod.attempt > last.pod.attempt);
        (last.kind == Kind::Stop && last.state == EpisodeState::Ok && is_newest).then_some(last)
    }
}

impl<'a> Diagnoser<'a> {
    /// These episodes of a node; `now` in microseconds since 1970.
    pub(crate) fn new(episodes: &[&'a Episode], node: NodeContext<'a>, now: u64) -> Self {
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

    /// With the exec probes of the newest pod.
    pub(crate) fn with_probes(mut self, probes: Vec<ProbeView>) -> Self {
        self.probes = probes;
        self
    }

    /// The pod of one of the episodes.
    fn pod<'b>(&'b self, episode: &'b Episode) -> Option<&'b PodLifetime<'a>> {
        let pods = self.pods.get(&key(episode))?;
        let has_it =
            |pod: &&PodLifetime<'_>| pod.episodes.iter().any(|e| e.number == episode.number);
        pods.iter().find(has_it)
    }

    /// The cause of one of the episodes.
    pub(crate) fn cause(&self, episode: &'a Episode) -> Cause<'a> {
        let pod = self.pod(episode).map_or(&[][..], |pod| &pod.episodes);
        episode_cause(episode, pod, &self.node, self.now)
    }

    /// For a start or restart the sentence on the crash loop of a container that it started, or on that of one that the kubelet
    /// keeps killing.
    pub(crate) fn crash_loop(&self, episode: &Episode) -> Option<String> {
        let pod = self.pod(episode)?;
        if episode.kind == Kind::Stop {
            return None;
        }
        let of_it = containers(episode).filter_map(|name| pod.loops.get(name));
        let goes_on = of_it.filter(|it| !it.is_over);
        let crashes = goes_on.max_by_key(|it| it.at());
        let is_its = |it: &&KillLoop<'_>| containers(episode).any(|name| name == it.container);
        let kills = pod.kills.as_ref().filter(|it| !it.is_over).filter(is_its);
        match (crashes, kills) {
            (Some(crashes), Some(kills)) if crashes.at() >= kills.at => Some(crashes.to_string()),
            (_, Some(kills)) => {
                let cause = KubeletCause::KillLoop(kills.clone());
                Some(Cause::Kubelet(cause).to_string())
            }
            (crashes, None) => Some(crashes?.to_string()),
        }
    }

    /// Of a start, the end of its sandbox, if no call stopped it.
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

    /// The time for which the causes hold, in microseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// The cause that matters most now for the pod with the newest episode: of several pods of one name the newest counts.
    /// `None` without episodes.
    pub(crate) fn newest(&self) -> Option<Cause<'a>> {
        let pod = self.pod(self.newest?)?;
        // What is the matter with a container that was added says less than what is the matter with the others.
        let is_own = |e: &&'a Episode| !ephemeral::is_ephemeral(e, &pod.episodes);
        let own: Vec<_> = pod.episodes.iter().copied().filter(is_own).collect();
        if own.len() < pod.episodes.len() {
            let cause = self.newest_of(&PodLifetime::new(own, self.now));
            if let Some(problem) = cause.filter(Cause::is_problem) {
                return Some(problem);
            }
        }
        self.newest_of(pod)
    }

    fn newest_of(&self, pod: &PodLifetime<'a>) -> Option<Cause<'a>> {
        let last = |wanted: &dyn Fn(&Episode) -> bool| {
            let wanted = pod.episodes.iter().copied().filter(|e| wanted(e));
            wanted.max_by_key(|e| e.began)
        };
        if let Some(episode) = last(&|e| hanging(e).is_some()) {
            let kills = pod.kills.as_ref().filter(|it| !it.is_over);
            let is_kill = |it: &&KillLoop<'_>| {
                hanging(episode).is_some_and(|call| {
                    let is_stop = call.method == Method::StopContainer && !kills::is_overdue(call);
                    (is_stop || call.method == Method::ExecSync && call.probe.is_some())
                        && call.container_name() == Some(it.container)
                        && self.now.saturating_sub(it.at) < NEXT_KILL_WITHIN
                })
            };
            if let Some(kills) = kills.filter(is_kill) {
                return Some(Cause::Kubelet(KubeletCause::KillLoop(kills.clone())));
            }
            return Some(self.cause(episode));
        }
        if let Some((death, is_stopped)) = sandbox::newest_death(&pod.episodes) {
            let ago = self.now.saturating_sub(death.end.at);
            return Some(Cause::SandboxDied {
                death,
                ago,
                is_stopped,
            });
        }
        let fails =
            |e: &Episode| failure::newest_unresolved(e).is_some() && e.state != EpisodeState::Ok;
        let failing = last(&|e| e.state == EpisodeState::Open && fails(e));
        let failing = failing.map(|e| pod.behind(e).unwrap_or(e));
        let with_node = reboot::ended_with_node(&pod.episodes).filter(|_| failing.is_none());
        if with_node.is_some() {
            return with_node;
        }
        let crash_loop = pod.loops.values().max_by_key(|it| it.at());
        let crashed = crash_loop.map_or(0, CrashLoop::at);
        let kills = pod.kills.as_ref();
        let kills = kills.filter(|it| it.at > crashed && failing.is_none_or(|e| it.at > e.ended));
        if let Some(kills) = kills {
            return Some(Cause::Kubelet(KubeletCause::KillLoop(kills.clone())));
        }
        if let Some(crash_loop) = crash_loop
            && failing.is_none_or(|e| crash_loop.at() > e.ended)
        {
            return Some(Cause::CrashLoop(crash_loop.clone()));
        }
        // A quick stop is told below, if nothing else was the matter with the pod.
        let is_slow = |e: &Episode| self.node.usual.is_slow(e.duration_ms());
        let is_current = |e: &Episode| match e.kind {
            Kind::Stop if e.state == EpisodeState::Ok => {
                let just = self.now.saturating_sub(e.ended) < SLOW_STOP_SHOWN_FOR;
                just && is_slow(e) && !e.only_cleans
            }
            Kind::Stop => e.state == EpisodeState::Open && is_slow(e) && !e.only_cleans,
            _ => e.state == EpisodeState::Open,
        };
        let open = || last(&is_current);
        // A failure counts until a newer episode succeeded.
        let newest = || last(&|e| e.state != EpisodeState::Open);
        let failed = || newest().filter(|e| e.state == EpisodeState::Failed);
        let slowest = || {
            pod.episodes.iter().copied().max_by(|a, b| {
                let up = |e: &Episode| e.kind != Kind::Stop;
                up(a).cmp(&up(b)).then(a.duration().cmp(&b.duration()))
            })
        };
        let of_kubelet = || last(&|e| syncs::failing_sync(e, self.now).is_some());
        // How the last run ended matters more than how long a start took.
        let again = || {
            let newest =
                last(&|e| e.kind != Kind::Stop && e.attempt() > 0 && e.state == EpisodeState::Ok)?;
            // An init container that had to run again is done once others follow.
            let calls = pod.episodes.iter().flat_map(|e| &e.calls);
            let mut later = calls.filter(|c| c.began_us() >= newest.ended);
            let is_followed = later.any(|c| c.method == Method::StartContainer && c.is_good());
            let tells = !is_followed && self.cause(newest).tells_of_an_end();
            tells.then_some(newest)
        };
        let matters = failing
            .or_else(of_kubelet)
            .or_else(open)
            .or_else(failed)
            .or_else(again)
            .or_else(slowest)?;
        let cause = self.cause(matters);
        let cause = match oom::newest_oom_kills(&pod.episodes).filter(|_| failing.is_none()) {
            Some(kills) => Cause::OomKills {
                kills,
                ago: self.now.saturating_sub(kills.last),
                then: Box::new(cause),
            },
            None => cause,
        };
        let cause = match self.failing_probe(pod, &cause) {
            Some(probe) => Cause::ProbeFails {
                probe: probe.clone(),
                then: Box::new(cause),
            },
            None => cause,
        };
        let Some(stop) = pod.last_stop() else {
            return Some(cause);
        };
        let is_past = stop.number == matters.number || cause.is_past_when_stopped();
        let then = self.cause(stop);
        match stopped::pod_stop(stop, &pod.episodes, self.now).filter(|_| is_past) {
            Some(told) if then.is_fine_stop() => Some(Cause::PodStopped(told.with(then))),
            Some(_) => Some(then),
            None if cause.is_past_when_gone() => Some(then),
            None => Some(cause),
        }
    }

    /// An exec probe that keeps failing in a container that is up.
    fn failing_probe(&self, pod: &PodLifetime<'_>, cause: &Cause<'_>) -> Option<&ProbeView> {
        let up = cause.up();
        let fails = |it: &&ProbeView| {
            let is_recent = self.now.saturating_sub(it.last_unix_us) < PROBE_RESULT_EXPIRES_AFTER;
            it.failed_in_a_row >= 2 && is_recent && up.contains(&&*it.container)
        };
        let calls = pod.episodes.iter().flat_map(|episode| &episode.calls);
        let stops = calls
            .filter(|call| matches!(call.method, Method::StopContainer | Method::StopPodSandbox));
        let stopped = stops.map(|call| call.began_us()).max().unwrap_or(0);
        let failing = self.probes.iter().filter(fails);
        let failing = failing.filter(|it| it.last_unix_us > stopped);
        failing.max_by_key(|it| it.failed_in_a_row)
    }
}

/// The containers of an episode.
fn containers(episode: &Episode) -> impl Iterator<Item = &str> {
    let own = episode.container.iter().map(|container| &*container.name);
    let calls = episode.calls.iter().filter_map(|c| c.container_name());
    let exits = episode.exits.iter().map(|exit| &*exit.container);
    own.chain(calls).chain(exits)
}
