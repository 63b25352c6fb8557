//! The lines of the journal. Enums are written as words, so that people and later versions with other numbers can read it.

use std::borrow::Cow;

use opentelemetry::trace::SpanId;
use serde::{Deserialize, Serialize};

use crate::episode_call::EpisodeCall;
use crate::episode_store::{ExitRecord, SandboxEnd};
use crate::kubelet::syncs::PodSync;
use crate::node::NodeFact;
use crate::view::EpisodeState;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::UnixMicros;

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalLine<'a> {
    /// A call has ended.
    Call(Cow<'a, EpisodeCall>),
    /// A container has ended.
    Exit(ContainerExitLine<'a>),
    /// The kernel killed a process of a container for lack of memory.
    Oom(OomKillLine<'a>),
    /// A sandbox has ended.
    SandboxEnd(SandboxEndLine<'a>),
    /// The containers of a pod that starts, without ordinary init containers.
    Containers(ContainersLine<'a>),
    /// The kubelet failed at a pod, or no longer does.
    Sync(PodSyncLine<'a>),
    /// An episode is over and was reported.
    Closed(ClosedEpisodeLine),
    /// A fact about the node began or ended.
    Node(Cow<'a, NodeFact>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContainersLine<'a> {
    pub(super) pod: Cow<'a, PodIdentity>,
    pub(super) names: Cow<'a, [Box<str>]>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContainerExitLine<'a> {
    pub(super) pod: Cow<'a, PodIdentity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) container_id: Option<Cow<'a, str>>,
    #[serde(flatten)]
    pub(super) exit: Cow<'a, ExitRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OomKillLine<'a> {
    pub(super) pod: Cow<'a, PodIdentity>,
    pub(super) container: Cow<'a, ContainerIdentity>,
    pub(super) at: UnixMicros,
    /// Processes that were killed so far, if the runtime counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kills: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SandboxEndLine<'a> {
    pub(super) pod: Cow<'a, PodIdentity>,
    #[serde(flatten)]
    pub(super) end: Cow<'a, SandboxEnd>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PodSyncLine<'a> {
    pub(super) pod: Cow<'a, PodIdentity>,
    #[serde(flatten)]
    pub(super) sync: Cow<'a, PodSync>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClosedEpisodeLine {
    /// The root span, which identifies the episode.
    root: String,
    pub(super) state: EpisodeState,
    pub(super) at: UnixMicros,
    /// Time at which the pod was found to be deleted before it had a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deleted: Option<UnixMicros>,
}

impl<'a> JournalLine<'a> {
    /// The line of a call; `None` for one in flight or without a pod.
    pub(crate) fn call(call: &'a EpisodeCall) -> Option<Self> {
        let is_written = !call.is_in_flight() && call.pod.is_some();
        is_written.then_some(Self::Call(Cow::Borrowed(call)))
    }

    /// The line of a container's exit.
    pub(crate) fn exit(
        pod: &'a PodIdentity,
        container_id: Option<&'a str>,
        exit: &'a ExitRecord,
    ) -> Self {
        Self::Exit(ContainerExitLine {
            pod: Cow::Borrowed(pod),
            container_id: container_id.map(Cow::Borrowed),
            exit: Cow::Borrowed(exit),
        })
    }

    /// The line of an OOM kill in a container.
    pub(crate) fn oom(
        pod: &'a PodIdentity,
        container: &'a ContainerIdentity,
        at: UnixMicros,
        kills: Option<u32>,
    ) -> Self {
        Self::Oom(OomKillLine {
            pod: Cow::Borrowed(pod),
            container: Cow::Borrowed(container),
            at,
            kills,
        })
    }

    /// The line of the end of a sandbox.
    pub(crate) fn sandbox_end(pod: &'a PodIdentity, end: &'a SandboxEnd) -> Self {
        let (pod, end) = (Cow::Borrowed(pod), Cow::Borrowed(end));
        Self::SandboxEnd(SandboxEndLine { pod, end })
    }

    /// The line of the kubelet's work on a pod.
    pub(crate) fn sync(pod: &'a PodIdentity, sync: &'a PodSync) -> Self {
        let (pod, sync) = (Cow::Borrowed(pod), Cow::Borrowed(sync));
        Self::Sync(PodSyncLine { pod, sync })
    }

    /// The line of a fact about the node.
    pub(crate) fn node(fact: &'a NodeFact) -> Self {
        Self::Node(Cow::Borrowed(fact))
    }

    /// The line of the containers of a pod.
    pub(crate) fn containers(pod: &'a PodIdentity, names: &'a [Box<str>]) -> Self {
        let (pod, names) = (Cow::Borrowed(pod), Cow::Borrowed(names));
        Self::Containers(ContainersLine { pod, names })
    }

    /// The line of a closed and reported episode.
    pub(crate) fn closed(
        root: SpanId,
        state: EpisodeState,
        at: UnixMicros,
        deleted: Option<UnixMicros>,
    ) -> Self {
        let root = root.to_string();
        Self::Closed(ClosedEpisodeLine {
            root,
            state,
            at,
            deleted,
        })
    }
}

impl ClosedEpisodeLine {
    /// The root span; `None` if the id is invalid.
    pub(super) fn root(&self) -> Option<SpanId> {
        SpanId::from_hex(&self.root).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format of the version before, and today's.
    #[test]
    fn a_journal_of_an_earlier_version_is_read() {
        let lines = [
            r#"{"call":{"seq":7,"method":"PullImage","began":1750000000000000,"elapsed":1500,"deadline":240000000,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":1},"sandbox":"s","container":["app",2],"container_id":"c","image":"i","handler":"","backend":"main","ending":"error","code":5,"error":"no such image","seen":[{"work":"cni","name":"bridge","doing":"iptables","began":1,"ended":2},{"work":"runtime","name":"making namespaces","began":1,"ended":2,"own":true}]}}"#,
            r#"{"call":{"seq":8,"method":"RunPodSandbox","began":1,"elapsed":2,"client":"other","pod":{"namespace":"","name":"","uid":"","attempt":0},"ending":"ok","code":0}}"#,
            r#"{"call":{"seq":8,"method":"PullImage","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"ending":"ok","code":0,"remarks":["the image is old"]}}"#,
            r#"{"call":{"seq":9,"method":"CreateContainer","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"facts":{"create":{"pod_grace":30}},"ending":"ok","code":0}}"#,
            r#"{"exit":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container_id":"c1","container":"app","attempt":1,"code":137,"reason":"oom_killed","ran":5,"at":1750000000900000}}"#,
            r#"{"containers":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"names":["proxy","web"]}}"#,
            r#"{"exit":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container":"app","attempt":1,"code":137,"reason":"error","ran":5,"at":1750000000900000,"ordered":true}}"#,
            r#"{"exit":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container":"app","attempt":1,"code":137,"reason":"oom_killed","ran":5,"at":1750000000900000,"oom_at":1750000000800000,"by_event":true}}"#,
            r#"{"oom":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container":["app",1],"at":1750000000900000}}"#,
            r#"{"oom":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container":["app",1],"at":1750000000900000,"kills":2}}"#,
            r#"{"sandbox_end":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"at":1750000000900000,"code":137}}"#,
            r#"{"sandbox_end":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"at":1750000000900000}}"#,
            r#"{"closed":{"root":"0fd3efd10e782af0","state":"failed","at":1750000000900000}}"#,
            r#"{"closed":{"root":"0fd3efd10e782af0","state":"failed","at":1750000000900000,"deleted":1750000000800000}}"#,
            r#"{"node":{"fact":"not_ready","backend":"main","condition":"NetworkReady","from":1,"to":2,"reason":"no CNI"}}"#,
            r#"{"node":{"fact":"criscope_down","from":1,"to":2}}"#,
            r#"{"node":{"fact":"node_restarted","booted":2,"from":1,"to":3}}"#,
            r#"{"exit":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container":"app","attempt":1,"code":255,"reason":"unknown","ran":5,"at":1750000000900000,"node_restarted":1750000000800000}}"#,
        ];
        for text in lines {
            let line: JournalLine<'_> = serde_json::from_str(text).expect("read");
            let before: serde_json::Value = serde_json::from_str(text).expect("json");
            assert_eq!(serde_json::to_value(&line).expect("written"), before);
        }
    }
}
