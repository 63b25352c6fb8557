//! Exits of containers, from ContainerStatus responses. The kubelet polls; each exit counts once.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::{Episode, EpisodeStore};
use crate::call::episode::Kind;
use crate::cri::Method;
use crate::cri::subject::{ContainerExit, ContainerIdentity, ExitReason, PodIdentity};
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::view;

/// Exits known to be counted. A node has some hundred containers, and the kubelet removes exited ones.
const KNOWN: usize = 2048;

/// The exit of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::lifecycle) struct Exit {
    pub(in crate::lifecycle) container: Box<str>,
    pub(in crate::lifecycle) attempt: u32,
    pub(in crate::lifecycle) code: i32,
    pub(in crate::lifecycle) reason: ExitReason,
    /// How long it had run, in microseconds; 0 if that is not known.
    pub(in crate::lifecycle) ran: u64,
    /// When it ended, in microseconds since 1970.
    pub(in crate::lifecycle) at: u64,
    /// Whether a StopContainer, or a StopPodSandbox of its sandbox, was received while it ran: then its exit code, mostly 137
    /// or 143, is no fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::lifecycle) ordered: bool,
    /// Processes of this node that the kernel killed for lack of memory within the seconds before it, if it failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(in crate::lifecycle) oom_kills: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Exit {
    /// From a runtime's response, whose times are nanoseconds; 0 means never.
    pub(in crate::lifecycle) fn new(
        container: &ContainerIdentity,
        started_at: i64,
        exit: &ContainerExit,
    ) -> Self {
        let micros = |nanos: i64| u64::try_from(nanos / 1000).unwrap_or(0);
        let (began, at) = (micros(started_at), micros(exit.at));
        Self {
            container: container.name.clone(),
            attempt: container.attempt,
            code: exit.code,
            reason: exit.reason,
            ran: match began {
                0 => 0,
                // The start of one that ends at once may be recorded after its end.
                _ if began > at => 1,
                _ => at - began,
            },
            at,
            ordered: false,
            oom_kills: 0,
        }
    }

    /// Returns whether the times say that the container ran. After a failed StartContainer, containerd reports an exit with code
    /// 128 of a container without a begin, and CRI-O one that began and ended when the container was created.
    pub(super) fn has_run(&self) -> bool {
        self.ran > 0
    }

    /// Returns whether the call is about the same container.
    pub(super) fn is_of(&self, call: &EpisodeCall) -> bool {
        call.container_name() == Some(&*self.container)
    }

    /// Returns whether it succeeded.
    pub(super) fn is_good(&self) -> bool {
        self.code == 0
    }

    /// Its view.
    pub(in crate::lifecycle) fn view(&self) -> view::Exit {
        view::Exit {
            container: self.container.to_string(),
            attempt: self.attempt,
            code: self.code,
            reason: self.reason.name().to_owned(),
            ran_ms: millis(self.ran),
            at_unix_us: self.at,
            ordered: self.ordered,
        }
    }
}

impl EpisodeStore {
    /// Records the exit of a container. Returns false if it is known, or if the container never ran.
    pub(in crate::lifecycle) fn note_exit(
        &mut self,
        pod: &PodIdentity,
        container_id: Option<&str>,
        mut exit: Exit,
    ) -> bool {
        let has_run = exit.has_run() || self.was_started(pod, &exit);
        if !has_run || !self.exits.note(&pod.uid, container_id, &exit) {
            return false;
        }
        exit.ordered |= self.orders.have_ended(pod, &exit);
        let started = |episode: &&Episode| episode.has_started(&exit.container, exit.attempt);
        let up = || self.of_pod(pod).filter(|t| t.kind != Kind::Stop);
        let number = up().find(started).or_else(|| up().next()).map(|t| t.number);
        if let Some(episode) = number.and_then(|n| self.episodes.get_mut(&n)) {
            episode.note_exit(exit);
        }
        true
    }

    /// Returns whether the container was started successfully. One that ended at once may have begun and ended at the same
    /// time, by the clock of its runtime.
    fn was_started(&self, pod: &PodIdentity, exit: &Exit) -> bool {
        let mut calls = self.of_pod(pod).flat_map(|episode| &episode.calls);
        calls.any(|call| {
            let container = call.container.as_deref();
            call.method == Method::StartContainer
                && call.is_good()
                && container.is_some_and(|c| c.name == exit.container && c.attempt == exit.attempt)
        })
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
    pub(super) fn note(&mut self, uid: &str, container_id: Option<&str>, exit: &Exit) -> bool {
        let mut hash = DefaultHasher::new();
        (uid, container_id, &exit.container, exit.attempt).hash(&mut hash);
        let hash = hash.finish();
        if !self.hashes.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > KNOWN
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
