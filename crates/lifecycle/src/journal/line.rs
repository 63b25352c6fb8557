//! The lines of the journal. Enums are written as words, so that people and later versions with other numbers can read it.

use std::borrow::Cow;
use std::ops::Not;

use opentelemetry::trace::SpanId;
use serde::{Deserialize, Serialize};

use crate::episode_call::EpisodeCall;
use crate::episode_store::{ExitRecord, SandboxEnd};
use crate::kubelet::images::ImageLookup;
use crate::kubelet::probes::ExecProbe;
use crate::kubelet::syncs::PodSync;
use crate::node::{NodeFact, PressureSpan};
use crate::view::EpisodeState;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::UnixMicros;

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalLine<'a> {
    /// A call has ended.
    Call(Cow<'a, EpisodeCall>),
    /// A call has run for a while, written as one that is lost by then. It was lost if criscope goes down before it ends.
    Running(Cow<'a, EpisodeCall>),
    /// A call is in flight in a process that hands over to the next, written as `Running`. It is lost if that process ends before it.
    HandedOver(Cow<'a, EpisodeCall>),
    /// A container has ended.
    Exit(ContainerExitLine<'a>),
    /// The kernel killed a process of a container for lack of memory.
    Oom(OomKillLine<'a>),
    /// A sandbox has ended.
    SandboxEnd(SandboxEndLine<'a>),
    /// The containers of a pod that starts, without ordinary init containers.
    Containers(ContainersLine<'a>),
    /// The kubelet worked on a pod for long, failed at it, or no longer fails.
    Sync(PodSyncLine<'a>),
    /// A caller ran a command in a container, or changed its limits.
    Intervention(Cow<'a, EpisodeCall>),
    /// The kubelet looked for an image that a pod needs.
    ImageLookup(Cow<'a, ImageLookup>),
    /// The exec probes of a container so far.
    Probes(ProbesLine<'a>),
    /// The directory of a stopped pod was found.
    Kept(KeptPodLine<'a>),
    /// A resource of the node was short during an episode.
    Pressure(PressureLine),
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
pub(crate) struct ProbesLine<'a> {
    pub(super) container_id: Cow<'a, str>,
    pub(super) probes: Cow<'a, [ExecProbe]>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptPodLine<'a> {
    pub(super) pod: Cow<'a, PodIdentity>,
    pub(super) at: UnixMicros,
    /// True if the directory is gone since.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_gone: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PressureLine {
    /// The root span, which identifies the episode.
    root: String,
    #[serde(flatten)]
    pub(super) pressure: PressureSpan,
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

    /// The line of a call that has run for a while: a call that was lost at the time of the line. `None` for one without a pod.
    pub(crate) fn running(call: EpisodeCall) -> Option<Self> {
        call.pod
            .is_some()
            .then_some(Self::Running(Cow::Owned(call)))
    }

    /// The line of a call in flight in a process that hands over. `None` for one without a pod.
    pub(crate) fn handed_over(call: EpisodeCall) -> Option<Self> {
        call.pod
            .is_some()
            .then_some(Self::HandedOver(Cow::Owned(call)))
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

    /// The line of something that a caller did to a container.
    pub(crate) fn intervention(call: &'a EpisodeCall) -> Self {
        Self::Intervention(Cow::Borrowed(call))
    }

    /// The line of a lookup of an image.
    pub(crate) fn image_lookup(lookup: &'a ImageLookup) -> Self {
        Self::ImageLookup(Cow::Borrowed(lookup))
    }

    /// The line of the exec probes of a container.
    pub(crate) fn probes(container_id: &'a str, probes: &'a [ExecProbe]) -> Self {
        Self::Probes(ProbesLine {
            container_id: Cow::Borrowed(container_id),
            probes: Cow::Borrowed(probes),
        })
    }

    /// The line of a stopped pod whose directory was found, or is gone since.
    pub(crate) fn kept(pod: &'a PodIdentity, at: UnixMicros, is_gone: bool) -> Self {
        let pod = Cow::Borrowed(pod);
        Self::Kept(KeptPodLine { pod, at, is_gone })
    }

    /// The line of a resource that was short during an episode.
    pub(crate) fn pressure(root: SpanId, pressure: PressureSpan) -> Self {
        let root = root.to_string();
        Self::Pressure(PressureLine { root, pressure })
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

impl PressureLine {
    /// The root span; `None` if the id is invalid.
    pub(super) fn root(&self) -> Option<SpanId> {
        SpanId::from_hex(&self.root).ok()
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
            r#"{"running":{"seq":8,"method":"PullImage","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"image":"i","ending":"error","code":14}}"#,
            r#"{"handed_over":{"seq":8,"method":"PullImage","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"image":"i","ending":"error","code":14}}"#,
            r#"{"call":{"seq":9,"method":"CreateContainer","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"facts":{"create":{"pod_grace":30}},"ending":"ok","code":0}}"#,
            r#"{"call":{"seq":9,"method":"CreateContainer","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"facts":{"create":{"pod_grace":30,"cpu_millis":10,"memory":25165824,"user":1000,"seccomp":"runtime_default","read_only_root":true,"drops_all_capabilities":true,"forbidden_port":80,"pre_stop":"sleep","mounts":[{"path":"/bin","kind":"empty_dir"},{"path":"/srv","kind":"config_map","read_only":true,"holds_command":true}]}},"ending":"ok","code":0}}"#,
            r#"{"call":{"seq":9,"method":"UpdateContainerResources","began":1,"elapsed":2,"client":"kubelet","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container_id":"c1","facts":{"limits":{"cpu_millis":20,"memory":0}},"ending":"ok","code":0}}"#,
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
            r#"{"intervention":{"seq":9,"method":"ExecSync","began":1,"elapsed":2,"client":"other:nodetool","pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"container_id":"c1","facts":{"exec":{"timeout":0,"exit_code":7}},"ending":"ok","code":0}}"#,
            r#"{"image_lookup":{"image":"a:1","at":1,"result":"missing"}}"#,
            r#"{"image_lookup":{"image":"a:1","at":1,"result":{"failed":"no"}}}"#,
            r#"{"probes":{"container_id":"c1","probes":[{"key":[10,1],"period":5,"runs":2,"failed":1,"failed_in_a_row":0,"tolerated":0,"at_first":1,"first_success":9,"last_error":"no","last":[{"began":1,"ended":2,"result":{"exit":1}},{"began":8,"ended":9,"result":{"exit":0}}]}]}}"#,
            r#"{"kept":{"pod":{"namespace":"shop","name":"a","uid":"u","attempt":0},"at":1}}"#,
            r#"{"pressure":{"root":"0fd3efd10e782af0","first":{"at":1,"some":[1,2,3]},"last":{"at":2,"some":[4,5,6]}}}"#,
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
