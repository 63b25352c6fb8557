//! Exits of containers, from ContainerStatus responses and from events of the runtime. The kubelet polls; each exit counts once.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::node::NodeFact;
use crate::view;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::container_request::ContainerRequest;
use criscope_cri::subject::{ContainerExit, ContainerIdentity, ExitReason, PodIdentity};
use criscope_cri::units::times::{self, UnixMicros, millis};

/// The times of an exit in an event and in ContainerStatus differ by less than this. They are equal unless the shim died.
const SAME_EXIT_WITHIN: Duration = Duration::from_secs(1);

/// The exit code of a process that SIGKILL ended.
pub(crate) const SIGKILL_EXIT_CODE: i32 = 137;

/// The exit code of a process that SIGTERM ended.
const SIGTERM_EXIT_CODE: i32 = 143;

/// How long before criscope's own end an exit counts as part of the node's shutdown.
const SHUTDOWN_EXIT_BEFORE: Duration = Duration::from_secs(2);
/// How long after criscope's own end an exit counts as part of the node's shutdown.
const SHUTDOWN_EXIT_AFTER: Duration = Duration::from_secs(120);
/// Longest time from the end of a container to the boot of a restarted node. If a node was off for longer, or its criscope ended
/// long before, the restart need not have ended its containers.
const MAX_REBOOT_TIME: Duration = Duration::from_secs(600);

/// The exit code in ContainerStatus of a container whose exit the runtime, containerd or the built-in one, did not see.
pub(crate) const UNSEEN_EXIT_CODE: i32 = 255;

/// Exits known to be counted. A node has some hundred containers, and the kubelet removes exited ones.
const MAX_KNOWN_EXITS: usize = 2048;

/// The exit of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub(crate) container: Box<str>,
    pub(crate) attempt: u32,
    pub(crate) code: i32,
    pub(crate) reason: ExitReason,
    /// Duration of the run; zero if it is not known.
    #[serde(with = "times::micros")]
    pub(crate) ran: Duration,
    /// The end of the run.
    pub(crate) at: UnixMicros,
    /// True if a StopContainer, or a StopPodSandbox of its sandbox, was received during the run: then the exit code, mostly 137 or
    /// 143, shows no fault.
    #[serde(
        rename = "ordered",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub(crate) stop_requested: bool,
    /// Number of processes of this node that the kernel killed for lack of memory in the seconds before a failed exit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) oom_kills: u32,
    /// True if those were not counted: criscope was not running then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_oom_uncounted: bool,
    /// The last OOM kill in the container that the runtime reported by an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oom_at: Option<UnixMicros>,
    /// Who evicted it and why, if the runtime's event says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evicted: Option<Box<str>>,
    /// The boot of the node, if its restart ended the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node_restarted: Option<UnixMicros>,
    /// The signal that ended it, 0 if it exited by itself; `None` if only the code is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    /// True if the exit is known only from an event of the runtime so far, and from no ContainerStatus.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_event: bool,
    /// What was requested for the container.
    #[serde(skip)]
    pub(crate) request: Option<Arc<ContainerRequest>>,
}

/// Effect of the report of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitChange {
    /// The exit is new.
    New,
    /// The exit was known from an event, and now has the values of ContainerStatus.
    Completed,
    /// The exit was known from ContainerStatus, and an event told how it ended.
    Explained,
    /// Nothing has changed.
    Nothing,
}

/// An exit follows an OOM kill if it comes within this time: the kill ended the first process of the container, or a process of the
/// shell that is it.
pub(crate) const EXIT_FOLLOWS_OOM_WITHIN: Duration = Duration::from_secs(10);

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl ExitRecord {
    /// From a runtime's response, whose times are nanoseconds; 0 means never.
    pub(crate) fn new(
        container: &ContainerIdentity,
        started_at: i64,
        exit: &ContainerExit,
    ) -> Self {
        let began = UnixMicros::from_nanos(started_at);
        let at = UnixMicros::from_nanos(exit.at);
        Self {
            container: container.name.clone(),
            attempt: container.attempt,
            code: exit.code,
            reason: exit.reason,
            ran: match began {
                UnixMicros::EPOCH => Duration::ZERO,
                // The start of a container that ends at once may be recorded after its end.
                _ if began > at => Duration::from_micros(1),
                _ => at.since(began),
            },
            at,
            stop_requested: false,
            oom_kills: 0,
            is_oom_uncounted: false,
            oom_at: None,
            evicted: None,
            node_restarted: None,
            signal: None,
            by_event: false,
            request: None,
        }
    }

    /// Returns whether the kernel ended it for lack of memory. containerd gives that reason for every container in which the kernel
    /// ever killed a process, even if the container ended in another way.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let follows_kill = self
            .oom_at
            .is_none_or(|oom_at| self.at.since(oom_at) <= EXIT_FOLLOWS_OOM_WITHIN);
        self.reason == ExitReason::OomKilled && self.code == SIGKILL_EXIT_CODE && follows_kill
    }

    /// This exit, as that of an evicted container if `by` says who evicted it.
    pub(crate) fn evicted_by(self, by: Option<Box<str>>) -> Self {
        match by {
            None => self,
            by => Self {
                reason: ExitReason::Evicted,
                evicted: by,
                ..self
            },
        }
    }

    /// Keeps the values that only the event has.
    fn complete(&mut self, event: &Self) {
        self.stop_requested |= event.stop_requested;
        if self.ran.is_zero() {
            self.ran = event.ran;
        }
        self.evicted.clone_from(&event.evicted);
        self.signal = event.signal;
        self.oom_at = event.oom_at;
        if let Some(oom_at) = event.oom_at {
            self.note_oom(oom_at);
        }
    }

    /// Notes that the kernel killed a process of the container just before.
    fn note_oom(&mut self, oom_at: UnixMicros) {
        if self.at.abs_diff(oom_at) <= EXIT_FOLLOWS_OOM_WITHIN && self.code == SIGKILL_EXIT_CODE {
            self.oom_at = self.oom_at.max(Some(oom_at));
            if self.reason == ExitReason::Error {
                self.reason = ExitReason::OomKilled;
            }
        }
    }

    /// The boot of the node, if this restart ended the container: either the runtime did not see the exit and reports it after the boot,
    /// or the container ended by a signal that no call had asked for while the node went down.
    fn ended_by(&self, restart: &NodeFact) -> Option<UnixMicros> {
        let booted = restart.booted()?;
        let began = self.at - self.ran;
        let is_lost = self.reason == ExitReason::Unknown;
        let is_killed = self.reason == ExitReason::Error
            && matches!(self.code, SIGKILL_EXIT_CODE | SIGTERM_EXIT_CODE);
        let down = restart.from - SHUTDOWN_EXIT_BEFORE..=restart.from + SHUTDOWN_EXIT_AFTER;
        let is_of_shutdown = (is_lost || is_killed && !self.stop_requested)
            && began < restart.from
            && down.contains(&self.at)
            && self.at <= booted
            && booted.since(self.at) <= MAX_REBOOT_TIME;
        let is_unseen = is_lost && began < booted && self.at + SHUTDOWN_EXIT_BEFORE >= booted;
        (!self.ran.is_zero() && (is_unseen || is_of_shutdown)).then_some(booted)
    }

    /// Returns whether the times show that the container ran. After a failed StartContainer, containerd reports an exit with code
    /// 128 of a container without a begin, and CRI-O one that began and ended when the container was created.
    pub(super) fn has_run(&self) -> bool {
        !self.ran.is_zero()
    }

    /// Returns whether this run of a container ended with this exit.
    pub(crate) fn is_of_run(&self, container: &ContainerIdentity) -> bool {
        self.is_run(&container.name, container.attempt)
    }

    /// Returns whether the call has started this run.
    pub(crate) fn is_of_start(&self, call: &EpisodeCall) -> bool {
        let container = call.container.as_deref();
        call.has_started() && container.is_some_and(|container| self.is_of_run(container))
    }

    fn is_run(&self, container: &str, attempt: u32) -> bool {
        *self.container == *container && self.attempt == attempt
    }

    /// Returns whether the call is about the same container.
    pub(super) fn is_of(&self, call: &EpisodeCall) -> bool {
        call.container_name() == Some(&*self.container)
    }

    /// Returns whether SIGKILL ended it, as far as that is known: a program may also exit with that code by itself.
    pub(crate) fn is_by_sigkill(&self) -> bool {
        self.code == SIGKILL_EXIT_CODE && self.signal != Some(0)
    }

    /// Returns whether it succeeded.
    pub(super) fn is_good(&self) -> bool {
        self.code == 0
    }

    /// The view of this exit.
    pub(crate) fn view(&self) -> view::ExitView {
        view::ExitView {
            container: self.container.to_string(),
            attempt: self.attempt,
            code: self.code,
            reason: self.reason.name().to_owned(),
            ran_ms: millis(self.ran),
            at_unix_us: self.at,
            ordered: self.stop_requested,
            signal: self.signal,
            evicted: self.evicted.as_deref().map(str::to_owned),
        }
    }
}

/// Returns whether containerd made up the code of an exit: if a shim dies, its event says SIGKILL, and ContainerStatus 255.
fn is_made_up(event: &ExitRecord, status: &ExitRecord) -> bool {
    (event.code, status.code) == (SIGKILL_EXIT_CODE, UNSEEN_EXIT_CODE)
        && event.at.abs_diff(status.at) < SAME_EXIT_WITHIN
}

impl EpisodeStore {
    /// Records the exit of a container, unless it is known, or the container never ran. ContainerStatus replaces the values of an
    /// event, since the kubelet acts on ContainerStatus.
    pub(crate) fn note_exit(
        &mut self,
        pod: &PodIdentity,
        container_id: Option<&str>,
        mut exit: ExitRecord,
    ) -> ExitChange {
        if let Some(id) = container_id {
            self.listed.note_exit(id, &exit);
        }
        if exit.by_event && exit.ran.is_zero() {
            // The container was started before the subscription to events.
            let started = self.started(pod, &exit);
            exit.ran = started.map_or(Duration::ZERO, |at| {
                exit.at.since(at).max(Duration::from_micros(1))
            });
        }
        let has_run = exit.has_run() || self.started(pod, &exit).is_some();
        if !has_run {
            return ExitChange::Nothing;
        }
        exit.stop_requested |= self.stop_requests.have_ended(pod, &exit);
        exit.request = self.request_of(pod, &exit.container, exit.attempt);
        if exit.node_restarted.is_none() {
            let mut restarts = self.node.restarts();
            exit.node_restarted = restarts.find_map(|restart| exit.ended_by(restart));
        }
        self.note_early_run(pod, &exit);
        // The id in a request may be only the beginning of the container's id.
        let is_known_from_event = self.exit_of(pod, &exit).is_some_and(|known| {
            let is_same = known.at.abs_diff(exit.at) < SAME_EXIT_WITHIN;
            known.by_event && !exit.by_event && is_same
        });
        if !self.exits.note(&pod.uid, container_id, &exit) || is_known_from_event {
            return self.complete_exit(pod, exit);
        }
        if let Some(episode) = self.episode_of(pod, &exit.container, exit.attempt) {
            episode.note_exit(exit);
        }
        ExitChange::New
    }

    /// Replaces an exit that is known only from an event by that of ContainerStatus.
    fn complete_exit(&mut self, pod: &PodIdentity, exit: ExitRecord) -> ExitChange {
        let Some(known) = self.exit_mut(pod, &exit.container, exit.attempt) else {
            return ExitChange::Nothing;
        };
        let is_made_up = if exit.by_event {
            is_made_up(&exit, known)
        } else {
            is_made_up(known, &exit)
        };
        let is_completed = known.by_event && !exit.by_event;
        let before = (known.signal, known.reason);
        if is_completed {
            let before = std::mem::replace(known, exit);
            known.complete(&before);
        } else if exit.by_event && known.code == exit.code {
            known.signal = known.signal.or(exit.signal);
        }
        if is_made_up {
            known.reason = ExitReason::Unknown;
        }
        if is_completed {
            ExitChange::Completed
        } else if (known.signal, known.reason) != before {
            ExitChange::Explained
        } else {
            ExitChange::Nothing
        }
    }

    /// The known exit of a container.
    pub(crate) fn exit_of(&self, pod: &PodIdentity, of: &ExitRecord) -> Option<ExitRecord> {
        let mut exits = self.episodes_of(pod).flat_map(|episode| &episode.exits);
        let known = exits.find(|exit| exit.is_run(&of.container, of.attempt));
        known.cloned()
    }

    fn exit_mut(&mut self, pod: &PodIdentity, name: &str, attempt: u32) -> Option<&mut ExitRecord> {
        let number = self
            .episodes_of(pod)
            .find(|episode| episode.exits.iter().any(|exit| exit.is_run(name, attempt)))?
            .number;
        let mut exits = self.episodes.get_mut(&number)?.exits.iter_mut();
        exits.find(|exit| exit.is_run(name, attempt))
    }

    /// The start or restart in which a container runs or ran, if it is known, or else the newest.
    fn episode_of(&mut self, pod: &PodIdentity, name: &str, attempt: u32) -> Option<&mut Episode> {
        let number = {
            let mut ups = self.episodes_of(pod).filter(|t| t.kind != Kind::Stop);
            let mut others = ups.clone();
            let started = others.find(|episode| episode.has_started(name, attempt));
            started.or_else(|| ups.next())?.number
        };
        self.get_mut(number)
    }

    /// Notes that the kernel killed a process of a container for lack of memory at this time. `kills`: the number of kills so far,
    /// if it is known. Returns the number of new kills.
    pub(crate) fn note_oom(
        &mut self,
        pod: &PodIdentity,
        container: &ContainerIdentity,
        at: UnixMicros,
        kills: Option<u32>,
    ) -> u32 {
        let ContainerIdentity { name, attempt } = container;
        let request = self.request_of(pod, name, *attempt);
        // The exit may be reported first.
        if let Some(exit) = self.exit_mut(pod, name, *attempt) {
            exit.note_oom(at);
        }
        let episode = self.episode_of(pod, name, *attempt);
        episode.map_or(0, |episode| episode.note_oom(container, at, kills, request))
    }

    /// The end of the container's successful StartContainer. By the clock of the runtime a container that ends at once may begin
    /// and end at the same time.
    fn started(&self, pod: &PodIdentity, exit: &ExitRecord) -> Option<UnixMicros> {
        let mut calls = self.episodes_of(pod).flat_map(|episode| &episode.calls);
        let start = calls.find(|call| {
            let container = call.container.as_deref();
            call.method == Method::StartContainer
                && call.is_good()
                && container.is_some_and(|c| c.name == exit.container && c.attempt == exit.attempt)
        });
        start.map(|call| call.ended_at())
    }
}

/// Exits that were counted, by a hash of pod, id, name and attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownExits {
    hashes: HashSet<u64>,
    order: VecDeque<u64>,
}

impl KnownExits {
    /// Adds an exit. Returns false if it is known.
    pub(super) fn note(
        &mut self,
        uid: &str,
        container_id: Option<&str>,
        exit: &ExitRecord,
    ) -> bool {
        let mut hash = DefaultHasher::new();
        (uid, container_id, &exit.container, exit.attempt).hash(&mut hash);
        let hash = hash.finish();
        if !self.hashes.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > MAX_KNOWN_EXITS
            && let Some(oldest) = self.order.pop_front()
        {
            self.hashes.remove(&oldest);
        }
        true
    }

    /// Number of known exits.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.hashes.len().max(self.order.len())
    }
}
