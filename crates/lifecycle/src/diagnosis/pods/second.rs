//! A second fault of the same pod: a crash loop beside a missing image, an OOM kill before each kill by a probe. The table of causes
//! says which of two is worse; that one is told first.

use std::iter;

use super::Diagnoser;
use crate::diagnosis::cause::{Cause, Severity};
use crate::diagnosis::fault::FaultClass;
use crate::diagnosis::kubelet::KubeletCause;
use crate::diagnosis::lifetimes::PodLifetime;
use crate::diagnosis::node::FactAt;
use crate::diagnosis::remarks::{Diagnosis, Remark};
use crate::diagnosis::{crash, failure, history, node, oom, syncs};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{ContainerOomKills, Episode, ExitRecord};
use crate::node::NodeFactKind;
use crate::view::{EpisodeState, ProbeView};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultSubject<'a> {
    Container(&'a str),
    Image(&'a str),
    /// The sandbox, and with it all containers.
    Pod,
    Node,
}

impl<'a> FaultSubject<'a> {
    fn of_cause(cause: &'a Cause<'_>) -> Self {
        match cause {
            Cause::CallFails(failure) => Self::of_call(failure.last),
            Cause::CallInFlight(in_flight) => Self::of_call(in_flight.call),
            Cause::CrashLoop(crashes) => Self::Container(crashes.container),
            Cause::ContainerExited(exit) | Cause::OtherExits { exit, .. } => {
                Self::Container(&exit.container)
            }
            Cause::ProbeFails(probe) => Self::Container(&probe.container),
            Cause::ProbeHangs(probe) => Self::Container(&probe.container),
            Cause::OomKills { kills, .. } => Self::Container(&kills.container.name),
            Cause::AwaitsContainer { awaited, .. } => Self::Container(awaited.last),
            Cause::Kubelet(KubeletCause::KillLoop(kills)) => Self::Container(kills.container),
            Cause::Kubelet(KubeletCause::HookInFlight { hook, .. }) => {
                Self::Container(hook.container)
            }
            Cause::Kubelet(KubeletCause::FailingSync(fails)) => {
                fails.container().map_or(Self::Pod, Self::Container)
            }
            Cause::ImageMissing { image, .. } => Self::Image(&image.image),
            Cause::SlowCall(call) => Self::of_call(call),
            Cause::NodeTrouble(_) | Cause::WaitsForNode { .. } => Self::Node,
            _ => Self::Pod,
        }
    }

    fn of_call(call: &'a EpisodeCall) -> Self {
        match (call.method, call.container_name(), call.image.as_deref()) {
            (Method::PullImage, _, Some(image)) => Self::Image(image),
            (_, Some(name), _) => Self::Container(name),
            _ => Self::Pod,
        }
    }
}

impl<'a> Diagnoser<'a> {
    /// The diagnosis with the worst other fault of the pod, if there is one.
    pub(super) fn with_second_fault(
        &self,
        pod: &PodLifetime<'a>,
        lead: Diagnosis<'a>,
    ) -> Diagnosis<'a> {
        if pod.last_stop().is_some() || is_stop(&lead.cause) {
            return lead;
        }
        let others = self.other_faults(pod, &lead.cause).into_iter();
        let others = others.filter(|other| is_another(&lead.cause, other));
        // Of equal ones the first.
        let worst = others.reduce(|worst, other| {
            let is_worse = other.row().severity > worst.row().severity;
            if is_worse { other } else { worst }
        });
        let Some(other) = worst else { return lead };
        let (own, severity) = (lead.cause.row().severity, other.row().severity);
        if own < Severity::Impaired {
            // What took long, or is over, stays a remark on the fault.
            let is_past = is_about_past(&lead.cause)
                // It may have ended again meanwhile.
                || matches!(lead.cause, Cause::StartedAgain(_))
                    && matches!(other, Cause::NodeTrouble(_));
            let is_worse = severity >= Severity::Impaired && is_past;
            return if is_worse { lead.led_by(other) } else { lead };
        }
        if severity > own {
            return Diagnosis {
                remarks: vec![Remark::SecondFault(lead.cause)],
                ..Diagnosis::from(other)
            };
        }
        let remarks = lead.remarks.into_iter();
        let remarks = remarks.chain(iter::once(Remark::SecondFault(other)));
        Diagnosis {
            remarks: remarks.collect(),
            ..lead
        }
    }

    /// The faults of a pod beside this one.
    fn other_faults(&self, pod: &PodLifetime<'a>, lead: &Cause<'a>) -> Vec<Cause<'a>> {
        let mut faults = Vec::new();
        let starts = pod.episodes.iter().copied();
        let starts = starts.filter(|e| e.kind != Kind::Stop && e.state == EpisodeState::Open);
        for episode in starts {
            let failed = failure::all_unresolved(episode);
            faults.extend(failed.map(|call| {
                Cause::CallFails(failure::call_failure(episode, call, self.now, false))
            }));
        }
        let loops = pod
            .loops
            .values()
            .filter(|crashes| !crashes.is_over && !crashes.has_recovered());
        faults.extend(loops.cloned().map(Cause::CrashLoop));
        let kills = pod.kills.iter().filter(|kills| !kills.is_over);
        faults.extend(
            kills
                .clone()
                .map(|kills| Cause::Kubelet(KubeletCause::KillLoop(kills.clone()))),
        );
        let failing = syncs::newest_failing_sync(&pod.episodes, self.now);
        let failing = failing.filter(|(_, fails)| fails.is_news());
        faults.extend(failing.map(|(_, fails)| Cause::Kubelet(KubeletCause::FailingSync(fails))));
        faults.extend(self.node_trouble(pod, lead));
        faults.extend(self.missing_for_next_try(pod, lead));
        let attempts = pod.episodes.iter().map(|episode| episode.pod.attempt);
        let newest = attempts.max();
        let own = pod.episodes.iter();
        let own = own.filter(|episode| Some(episode.pod.attempt) == newest);
        let down = own.filter_map(|episode| {
            let exit = crash::faulty_exit(episode, &pod.episodes)?;
            is_down(pod, exit).then_some(Cause::ContainerExited(exit))
        });
        faults.extend(down);
        if let Cause::CrashLoop(crashes) = lead
            && let Some((exit, times)) = crashes.other_exit
        {
            faults.push(Cause::OtherExits { exit, times });
        }
        faults.extend(oom_kills(pod, lead).map(|kills| Cause::OomKills {
            kills,
            ago: self.now.since(kills.last),
        }));
        let hanging = self.hanging_probes.iter().cloned();
        faults.extend(hanging.map(Cause::ProbeHangs));
        let probes = self.failing_probes(pod).filter(|probe| is_up(pod, probe));
        faults.extend(probes.cloned().map(Cause::ProbeFails));
        faults.extend(self.slow_call(pod, lead));
        faults
    }

    /// A fact about the node that holds now, unless the pod has been up. A disk that is nearly full harms only calls that need space.
    fn node_trouble(&self, pod: &PodLifetime<'a>, lead: &Cause<'a>) -> Option<Cause<'a>> {
        let newest = pod.newest(|episode| episode.kind != Kind::Stop)?;
        let mut holding = newest.node.iter().filter(|fact| fact.holds());
        let fact = holding.find(|fact| match fact.kind {
            NodeFactKind::BackendDown { .. }
            | NodeFactKind::BackendHangs { .. }
            | NodeFactKind::NotReady { .. } => true,
            NodeFactKind::ImageFsFull { .. } => lacks_space(lead),
            _ => false,
        })?;
        let now = self.now;
        Some(Cause::NodeTrouble(FactAt { fact, now }))
    }

    /// Why a container that has ended is not started again, or a failed call not made again: the runtime does not answer, or there is no
    /// kubelet.
    fn missing_for_next_try(&self, pod: &PodLifetime<'a>, lead: &Cause<'_>) -> Option<Cause<'a>> {
        let is_down = matches!(
            lead,
            Cause::ContainerExited(_)
                | Cause::ContainersStopped(_)
                | Cause::CrashLoop(_)
                | Cause::CallFails(_)
        );
        if !is_down {
            return None;
        }
        let last = history::calls(&pod.episodes).max_by_key(|call| call.began)?;
        let fact = self
            .node
            .silent_backend(|backend| node::is_on(last, backend));
        let fact = fact.or_else(|| self.node.absent_kubelet())?;
        let now = self.now;
        Some(Cause::NodeTrouble(FactAt { fact, now }))
    }

    /// The longest call that succeeded and was slow, beside a call that fails.
    fn slow_call(&self, pod: &PodLifetime<'a>, lead: &Cause<'a>) -> Option<Cause<'a>> {
        let Cause::CallFails(failure) = lead else {
            return None;
        };
        let start = pod.newest(|episode| is_start_of(episode, failure.last))?;
        let good = start.calls.iter().filter(|call| call.is_good());
        let longest = good.max_by_key(|call| call.elapsed())?;
        let is_slow = self.node.usual.is_slow(longest.took());
        is_slow.then_some(Cause::SlowCall(longest))
    }
}

/// Returns whether a call failed for lack of space or inodes.
fn lacks_space(cause: &Cause<'_>) -> bool {
    let Cause::CallFails(failure) = cause else {
        return false;
    };
    let fault = failure.kind.fault();
    matches!(fault, Some(FaultClass::NoSpace | FaultClass::NoInodes))
}

/// The newest OOM kills in the container of a series of kills by the kubelet, or else in one that runs on.
fn oom_kills<'a>(pod: &PodLifetime<'a>, lead: &Cause<'_>) -> Option<&'a ContainerOomKills> {
    let Cause::Kubelet(KubeletCause::KillLoop(series)) = lead else {
        return oom::newest_oom_kills(&pod.episodes);
    };
    let all = pod.episodes.iter().flat_map(|episode| &episode.oom_kills);
    let own = all.filter(|kills| *kills.container.name == *series.container);
    let newest = own.max_by_key(|kills| kills.last);
    newest.or_else(|| oom::newest_oom_kills(&pod.episodes))
}

fn is_start_of(episode: &Episode, call: &EpisodeCall) -> bool {
    let mut calls = episode.calls.iter();
    episode.kind == Kind::Start && calls.any(|other| std::ptr::eq(other, call))
}

/// Returns whether a container or the pod is being stopped: then no other fault matters any more.
fn is_stop(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::CallInFlight(in_flight) => in_flight.call.method.takes_away(),
        Cause::CallFails(failure) => failure.last.method.takes_away(),
        Cause::Kubelet(KubeletCause::HookInFlight { .. }) => true,
        _ => false,
    }
}

/// Returns whether a cause tells what was, so that a fault of now can be told before it.
fn is_about_past(cause: &Cause<'_>) -> bool {
    matches!(
        cause,
        Cause::SlowPhase(_)
            | Cause::Recovered(_)
            | Cause::BackendWasAway(_)
            | Cause::OomKills { .. }
    )
}

/// Returns whether a fault is another one than the first, and not a consequence of it.
fn is_another<'a>(lead: &Cause<'a>, other: &Cause<'a>) -> bool {
    use FaultSubject::{Container, Image, Node, Pod};
    match (FaultSubject::of_cause(lead), FaultSubject::of_cause(other)) {
        (Node, Node) => false,
        (_, Node) => !matches!(lead, Cause::SandboxDied { .. }),
        (Node, _) => matches!(other, Cause::CrashLoop(_) | Cause::ContainerExited(_)),
        // What is wrong with the sandbox stands before all else.
        (Pod, _) => is_about_past(lead),
        (_, Pod) => matches!(
            other,
            Cause::SlowCall(_) | Cause::Kubelet(KubeletCause::FailingSync(_))
        ),
        (Container(one), Container(two)) if one == two => is_another_of_container(lead, other),
        (Image(one), Image(two)) => one != two,
        // A container that ended is down for its own reason, and stays down for lack of its image.
        (Image(_), Container(_)) | (Container(_), Image(_)) => true,
        (Container(_), Container(_)) => true,
    }
}

/// Returns whether two faults of one container are not two words for the same.
fn is_another_of_container(lead: &Cause<'_>, other: &Cause<'_>) -> bool {
    match (lead, other) {
        (Cause::CrashLoop(_), Cause::OtherExits { .. }) => true,
        (Cause::CrashLoop(crashes), Cause::Kubelet(KubeletCause::KillLoop(kills)))
        | (Cause::Kubelet(KubeletCause::KillLoop(kills)), Cause::CrashLoop(crashes)) => {
            // The end of a kill is no crash.
            crashes.at() != kills.at
        }
        (Cause::Kubelet(KubeletCause::KillLoop(kills)), Cause::OomKills { kills: oom, .. }) => {
            oom.last + kills.window >= kills.at
        }
        (Cause::OomKills { .. }, Cause::ProbeFails(_) | Cause::ProbeHangs(_)) => true,
        // Why it ended, and why it is not started again.
        (
            Cause::CrashLoop(_) | Cause::ContainerExited(_),
            Cause::Kubelet(KubeletCause::FailingSync(_)),
        ) => true,
        _ => false,
    }
}

/// Returns whether an image is being pulled that the pod has pulled before: a container that ended is about to be started again.
pub(super) fn is_pull_for_restart(cause: &Cause<'_>, pod: &PodLifetime<'_>) -> bool {
    let Cause::CallInFlight(in_flight) = cause else {
        return false;
    };
    let pull = in_flight.call;
    let mut earlier = history::calls(&pod.episodes).filter(|call| call.began < pull.began);
    pull.method == Method::PullImage
        && earlier.any(|call| {
            call.method == Method::PullImage && call.is_good() && call.image == pull.image
        })
}

/// Returns whether the container of this exit was not started again.
fn is_down(pod: &PodLifetime<'_>, exit: &ExitRecord) -> bool {
    let mut calls = history::calls(&pod.episodes);
    !calls.any(|call| call.has_started_container(&exit.container) && call.began_at() > exit.at)
}

/// Returns whether the run that a probe is about goes on.
fn is_up(pod: &PodLifetime<'_>, probe: &ProbeView) -> bool {
    let mut exits = history::exits(&pod.episodes);
    !exits.any(|exit| *exit.container == *probe.container && exit.attempt >= probe.attempt)
}
