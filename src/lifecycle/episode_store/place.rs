//! Which episode a call belongs to. Reads only, so that calls in flight can be asked about as well.

use super::{EpisodeStore, Tale};
use crate::cri::Method;
use crate::cri::call::{ContainerIdentity, PodIdentity};
use crate::cri::episode::Kind;
use crate::lifecycle::episode_call::Told;
use crate::lifecycle::view::State;

/// A call that ends something and takes less than this, in microseconds, is no story by itself: the kubelet's garbage
/// collector stops what is stopped, and removes it a minute later.
const TRIVIAL: u64 = 1_000_000;

/// Where a call belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the open episode with this number.
    In(u64),
    /// In a new one.
    New(Kind),
    /// In none.
    Nowhere,
}

impl Place {
    fn in_or_new(found: Option<&Tale>, kind: Kind) -> Self {
        found.map_or(Self::New(kind), |tale| Self::In(tale.number))
    }
}

impl EpisodeStore {
    /// Where this call belongs.
    pub(super) fn place(&self, call: &Told) -> Place {
        let Some(pod) = call.pod.as_deref() else {
            return Place::Nowhere;
        };
        match call.method {
            Method::RunPodSandbox => {
                let start = self.open_of(pod, Kind::Start);
                Place::in_or_new(start.filter(|t| t.pod.attempt == pod.attempt), Kind::Start)
            }
            Method::PullImage => self.place_pull(pod, call),
            Method::CreateContainer | Method::StartContainer => self.place_container(pod, call),
            Method::StopContainer
            | Method::StopPodSandbox
            | Method::RemoveContainer
            | Method::RemovePodSandbox => self.place_end(pod, call),
            _ => Place::Nowhere,
        }
    }

    fn open_of<'a>(&'a self, pod: &'a PodIdentity, kind: Kind) -> Option<&'a Tale> {
        let mut tales = self.of_pod(pod);
        tales.find(|tale| tale.is_open() && tale.kind == kind)
    }

    /// Whether anything is known of how this sandbox came up.
    fn was_up(&self, pod: &PodIdentity, call: &Told) -> bool {
        let mut tales = self.of_pod(pod);
        tales.any(|t| t.kind != Kind::Stop && t.is_of_sandbox(pod, call.sandbox_id.as_deref()))
    }

    /// A pull names no container. It counts to what is under way in the pod.
    fn place_pull(&self, pod: &PodIdentity, call: &Told) -> Place {
        let same = |t: &&Tale| t.pod.attempt == pod.attempt;
        let start = self.open_of(pod, Kind::Start).filter(same);
        let open = start.or_else(|| self.open_of(pod, Kind::Restart).filter(same));
        match open {
            Some(tale) => Place::In(tale.number),
            None if self.was_up(pod, call) => Place::New(Kind::Restart),
            None => Place::New(Kind::Start),
        }
    }

    fn place_container(&self, pod: &PodIdentity, call: &Told) -> Place {
        let sandbox = call.sandbox_id.as_deref();
        let open = || {
            let tales = self.of_pod(pod);
            tales.filter(|t| t.is_open() && t.kind != Kind::Stop && t.is_of_sandbox(pod, sandbox))
        };
        // Where it was created it is started.
        let id = call.container_id.as_deref();
        if let Some(tale) = open().find(|t| id.is_some_and(|id| t.call_of_container(id).is_some()))
        {
            return Place::In(tale.number);
        }
        let nobody = ContainerIdentity::default();
        let container = call.container.as_deref().unwrap_or(&nobody);
        let start = open().find(|t| t.kind == Kind::Start).filter(|start| {
            // What a start could not do is tried again by a container with the next number.
            container.attempt == 0 || start.is_unresolved(&container.name)
        });
        if let Some(start) = start {
            return Place::In(start.number);
        }
        let restart = open().find(|t| t.kind == Kind::Restart && continues(t, container));
        match restart {
            Some(tale) => Place::In(tale.number),
            None if container.attempt > 0 || self.was_up(pod, call) => Place::New(Kind::Restart),
            None => Place::New(Kind::Start),
        }
    }

    fn place_end(&self, pod: &PodIdentity, call: &Told) -> Place {
        let sandbox = call.sandbox_id.as_deref();
        let mut stops = self
            .of_pod(pod)
            .filter(|t| t.kind == Kind::Stop && t.is_of_sandbox(pod, sandbox));
        let newest = stops.next();
        if let Some(stop) = newest.filter(|t| t.is_open()) {
            // Dead containers are swept up while others go on.
            return match call.method {
                Method::RemoveContainer if stop.is_tentative() => Place::Nowhere,
                _ => Place::In(stop.number),
            };
        }
        let stopped = newest.is_some_and(|t| t.state == State::Ok && !t.is_tentative());
        let trivial = call.elapsed < TRIVIAL && !call.is_bad();
        match call.method {
            Method::RemoveContainer => Place::Nowhere,
            Method::RemovePodSandbox if trivial => Place::Nowhere,
            _ if stopped && trivial => Place::Nowhere,
            _ => Place::New(Kind::Stop),
        }
    }
}

/// Whether a start of this container belongs to that restart.
fn continues(restart: &Tale, container: &ContainerIdentity) -> bool {
    match &restart.container {
        // So far only the image was pulled.
        None => restart.is_resolved(),
        Some(ours) if ours.name != container.name => false,
        Some(ours) => ours.attempt == container.attempt || restart.is_unresolved(&container.name),
    }
}
