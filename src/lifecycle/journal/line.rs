//! The lines of the journal. Names are written out, so that a journal can be read by a person, and by a later version of
//! this program with other numbers.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry::trace::SpanId;
use serde::{Deserialize, Serialize};

use crate::call::{Client, Ending};
use crate::cri::Method;
use crate::cri::status::Code;
use crate::cri::subject::{ContainerIdentity, ExitReason, PodIdentity};
use crate::lifecycle::episode_call::{End, EpisodeCall, Work};
use crate::lifecycle::episode_store::Ended;
use crate::lifecycle::process_scanner::WorkKind;
use crate::lifecycle::view::State;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::lifecycle) enum Line<'a> {
    /// A call has ended.
    #[serde(borrow)]
    Call(Box<CallLine<'a>>),
    /// A container has ended.
    #[serde(borrow)]
    Exit(ExitLine<'a>),
    /// An episode is over and was told.
    Closed(ClosedLine),
}

type Text<'a> = Cow<'a, str>;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::lifecycle) struct PodLine<'a> {
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    attempt: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::lifecycle) struct CallLine<'a> {
    seq: u64,
    #[serde(borrow)]
    method: Text<'a>,
    began: u64,
    elapsed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(borrow)]
    client: Text<'a>,
    #[serde(borrow)]
    pod: PodLine<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    container: Option<(Text<'a>, u32)>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    container_id: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    image: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    handler: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    backend: Option<Text<'a>>,
    #[serde(borrow)]
    ending: Text<'a>,
    code: i32,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    seen: Vec<SeenLine<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SeenLine<'a> {
    #[serde(borrow)]
    work: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    doing: Option<Text<'a>>,
    began: u64,
    ended: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    own: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::lifecycle) struct ExitLine<'a> {
    #[serde(borrow)]
    pod: PodLine<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    container_id: Option<Text<'a>>,
    #[serde(borrow)]
    container: Text<'a>,
    attempt: u32,
    code: i32,
    #[serde(borrow)]
    reason: Text<'a>,
    ran: u64,
    at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::lifecycle) struct ClosedLine {
    /// The root span, which names the episode.
    root: String,
    pub(in crate::lifecycle) state: State,
    /// When.
    pub(in crate::lifecycle) at: u64,
}

impl<'a> PodLine<'a> {
    fn of(pod: &'a PodIdentity) -> Self {
        Self {
            namespace: (&*pod.namespace).into(),
            name: (&*pod.name).into(),
            uid: (&*pod.uid).into(),
            attempt: pod.attempt,
        }
    }

    fn identity(&self) -> PodIdentity {
        PodIdentity {
            namespace: (&*self.namespace).into(),
            name: (&*self.name).into(),
            uid: (&*self.uid).into(),
            attempt: self.attempt,
        }
    }
}

fn text(text: &Option<Arc<str>>) -> Option<Text<'_>> {
    text.as_deref().map(Cow::Borrowed)
}

fn shared(text: Option<&Text<'_>>) -> Option<Arc<str>> {
    text.map(|text| Arc::from(&**text))
}

fn named<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, wanted: &str) -> Option<T> {
    all.iter().copied().find(|value| name(*value) == wanted)
}

impl<'a> Line<'a> {
    /// The line of a call; `None` for one that is in flight or of no pod.
    pub(in crate::lifecycle) fn call(call: &'a EpisodeCall) -> Option<Self> {
        let (
            Some(pod),
            End::Over {
                ending,
                code,
                error,
            },
        ) = (&call.pod, &call.end)
        else {
            return None;
        };
        let container = call.container.as_deref();
        Some(Self::Call(Box::new(CallLine {
            seq: call.seq,
            method: call.method.name().into(),
            began: call.began,
            elapsed: call.elapsed,
            deadline: call.deadline,
            client: call.client.name().into(),
            pod: PodLine::of(pod),
            sandbox: text(&call.sandbox_id),
            container: container.map(|c| ((&*c.name).into(), c.attempt)),
            container_id: text(&call.container_id),
            image: text(&call.image),
            handler: text(&call.handler),
            backend: text(&call.backend),
            ending: ending.name().into(),
            code: *code as i32,
            error: text(error),
            seen: call.observations.iter().map(SeenLine::of).collect(),
        })))
    }

    /// The line of the end of a container.
    pub(in crate::lifecycle) fn exit(
        pod: &'a PodIdentity,
        container_id: Option<&'a str>,
        exit: &'a Ended,
    ) -> Self {
        Self::Exit(ExitLine {
            pod: PodLine::of(pod),
            container_id: container_id.map(Cow::Borrowed),
            container: (&*exit.container).into(),
            attempt: exit.attempt,
            code: exit.code,
            reason: exit.reason.name().into(),
            ran: exit.ran,
            at: exit.at,
        })
    }

    /// The line of an episode that was told.
    pub(in crate::lifecycle) fn closed(root: SpanId, state: State, at: u64) -> Self {
        let root = root.to_string();
        Self::Closed(ClosedLine { root, state, at })
    }
}

impl CallLine<'_> {
    /// The call; `None` if a word is unknown.
    pub(in crate::lifecycle) fn told(&self) -> Option<EpisodeCall> {
        let container = self
            .container
            .as_ref()
            .map(|(name, attempt)| ContainerIdentity {
                name: (&**name).into(),
                attempt: *attempt,
            });
        Some(EpisodeCall {
            seq: self.seq,
            method: named(&Method::ALL, Method::name, &self.method)?,
            began: self.began,
            elapsed: self.elapsed,
            deadline: self.deadline,
            client: named(&Client::ALL, Client::name, &self.client)?,
            pod: Some(Arc::new(self.pod.identity())),
            sandbox_id: shared(self.sandbox.as_ref()),
            container: container.map(Arc::new),
            container_id: shared(self.container_id.as_ref()),
            image: shared(self.image.as_ref()),
            handler: shared(self.handler.as_ref()),
            backend: shared(self.backend.as_ref()),
            end: End::Over {
                ending: named(&Ending::ALL, Ending::name, &self.ending)?,
                code: Code::from(self.code),
                error: shared(self.error.as_ref()),
            },
            retry: false,
            observations: self.seen.iter().filter_map(SeenLine::seen).collect(),
            spans: None,
        })
    }
}

impl<'a> SeenLine<'a> {
    fn of(seen: &'a Work) -> Self {
        Self {
            work: seen.work.name().into(),
            name: (&*seen.name).into(),
            doing: text(&seen.doing),
            began: seen.began,
            ended: seen.ended,
            own: seen.own,
        }
    }

    fn seen(&self) -> Option<Work> {
        Some(Work {
            work: named(
                &[WorkKind::Cni, WorkKind::Oci, WorkKind::Runtime],
                WorkKind::name,
                &self.work,
            )?,
            name: Arc::from(&*self.name),
            doing: shared(self.doing.as_ref()),
            began: self.began,
            ended: self.ended,
            own: self.own,
        })
    }
}

impl ExitLine<'_> {
    /// The pod, the container's id, and how it ended; `None` if a word is unknown.
    pub(in crate::lifecycle) fn ended(&self) -> Option<(PodIdentity, Option<&str>, Ended)> {
        let ended = Ended {
            container: (&*self.container).into(),
            attempt: self.attempt,
            code: self.code,
            reason: named(&ExitReason::ALL, ExitReason::name, &self.reason)?,
            ran: self.ran,
            at: self.at,
        };
        Some((self.pod.identity(), self.container_id.as_deref(), ended))
    }
}

impl ClosedLine {
    /// The root span; `None` if it is none.
    pub(in crate::lifecycle) fn root(&self) -> Option<SpanId> {
        SpanId::from_hex(&self.root).ok()
    }
}
