//! Decodes the identity in a request message, and the few facts that a response adds. Works on a copy of the bytes; a
//! message that does not decode has no identity and is no error: it is forwarded all the same.
//!
//! The messages below hold only the fields that [`super::identity`] lists. prost skips all others without storing
//! them, so a secret is not even copied.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use prost::Message;

use super::annotations;
use super::method::{FirstId, Method};
use super::redact::image_reference;
use super::subject::{
    ContainerExit, ContainerIdentity, ContainerState, ExitReason, PodIdentity, ResponseDetails,
    RuntimeCondition, Subject, Unseen,
};

/// Longest identity string kept, in bytes. The kubelet's are at most 253.
const MAX: usize = 256;

/// Defines messages with some of the fields of `proto/api.proto`, under their numbers.
macro_rules! partial {
    ($($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {
        $(#[derive(Clone, PartialEq, Message)]
        pub(super) struct $name { $($(#[$attribute])* $field: $type,)* })*
    };
}

partial! {
    PodMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] uid: String,
        #[prost(string, tag = "3")] namespace: String,
        #[prost(uint32, tag = "4")] attempt: u32,
    }
    ContainerMetadata {
        #[prost(string, tag = "1")] name: String,
        #[prost(uint32, tag = "2")] attempt: u32,
    }
    ImageSpec {
        #[prost(string, tag = "1")] image: String,
        #[prost(string, tag = "19")] runtime_handler: String,
    }
    PodConfig {
        #[prost(message, optional, tag = "1")] metadata: Option<PodMetadata>,
    }
    ContainerConfig {
        #[prost(message, optional, tag = "1")] metadata: Option<ContainerMetadata>,
        #[prost(message, optional, tag = "2")] image: Option<ImageSpec>,
    }
    RunPodSandbox {
        #[prost(message, optional, tag = "1")] config: Option<PodConfig>,
        #[prost(string, tag = "2")] runtime_handler: String,
    }
    CreateContainer {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
        #[prost(message, optional, tag = "2")] config: Option<ContainerConfig>,
        #[prost(message, optional, tag = "3")] sandbox_config: Option<PodConfig>,
    }
    PullImage {
        #[prost(message, optional, tag = "1")] image: Option<ImageSpec>,
        #[prost(message, optional, tag = "3")] sandbox_config: Option<PodConfig>,
    }
    OneImage {
        #[prost(message, optional, tag = "1")] image: Option<ImageSpec>,
    }
    OneId {
        #[prost(string, tag = "1")] id: String,
    }
    StopContainer {
        #[prost(int64, tag = "2")] timeout: i64,
    }
    ExecSync {
        #[prost(int64, tag = "3")] timeout: i64,
    }
    Filtered {
        #[prost(message, optional, tag = "1")] filter: Option<OneId>,
    }
    ContainerStatus {
        #[prost(int32, tag = "3")] state: i32,
        #[prost(int64, tag = "5")] started_at: i64,
        #[prost(int64, tag = "6")] finished_at: i64,
        #[prost(int32, tag = "7")] exit_code: i32,
        #[prost(string, tag = "10")] reason: String,
    }
    ContainerStatusAnswer {
        #[prost(message, optional, tag = "1")] status: Option<ContainerStatus>,
    }
    ExecSyncAnswer {
        #[prost(int32, tag = "3")] exit_code: i32,
    }
    Condition {
        #[prost(string, tag = "1")] kind: String,
        #[prost(bool, tag = "2")] status: bool,
        #[prost(string, tag = "3")] reason: String,
        #[prost(string, tag = "4")] message: String,
    }
    Conditions {
        #[prost(message, repeated, tag = "1")] conditions: Vec<Condition>,
    }
    StatusAnswer {
        #[prost(message, optional, tag = "1")] status: Option<Conditions>,
    }
    MountPoint {
        #[prost(string, tag = "1")] mountpoint: String,
    }
    Filesystem {
        #[prost(message, optional, tag = "2")] id: Option<MountPoint>,
    }
    ImageFsAnswer {
        #[prost(message, repeated, tag = "1")] images: Vec<Filesystem>,
    }
}

impl PodMetadata {
    pub(super) fn identity(&self) -> Arc<PodIdentity> {
        Arc::new(PodIdentity {
            namespace: cut(&self.namespace).into(),
            name: cut(&self.name).into(),
            uid: cut(&self.uid).into(),
            attempt: self.attempt,
        })
    }
}

impl ContainerMetadata {
    pub(super) fn identity(&self) -> Arc<ContainerIdentity> {
        Arc::new(ContainerIdentity {
            name: cut(&self.name).into(),
            attempt: self.attempt,
        })
    }
}

/// `ContainerState.CONTAINER_EXITED`
const EXITED: i32 = 2;

impl ContainerStatus {
    fn state(&self) -> ContainerState {
        ContainerState {
            started_at: self.started_at,
            exit: (self.state == EXITED).then(|| ContainerExit {
                at: self.finished_at,
                code: self.exit_code,
                reason: exit_reason(&self.reason),
            }),
        }
    }
}

/// The exit reasons of containerd and CRI-O. The text itself is dropped.
fn exit_reason(reason: &str) -> ExitReason {
    match reason {
        "Completed" => ExitReason::Completed,
        "Error" => ExitReason::Error,
        "OOMKilled" => ExitReason::OomKilled,
        "Unknown" => ExitReason::Unknown,
        "Evicted" => ExitReason::Evicted,
        _ => ExitReason::Other,
    }
}

/// The longest prefix of at most [`MAX`] bytes.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX)]
}

fn id(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| cut(text).into())
}

/// Most conditions of a runtime; there are two or three.
const MOST_CONDITIONS: usize = 16;

fn conditions(status: &Conditions) -> Arc<[RuntimeCondition]> {
    let conditions = status.conditions.iter().take(MOST_CONDITIONS);
    let conditions = conditions.map(|condition| {
        let message = &condition.message;
        RuntimeCondition {
            kind: cut(&condition.kind).into(),
            status: condition.status,
            reason: cut(&condition.reason).into(),
            message: Unseen::new(&message[..message.floor_char_boundary(4 * MAX)]),
        }
    });
    conditions.collect()
}

fn decode<M: Message + Default>(message: &[u8]) -> M {
    M::decode(message).unwrap_or_default()
}

/// Decodes the subject of a request message. `message` is uncompressed, without its gRPC frame header.
pub fn request(method: Method, message: &[u8]) -> Subject {
    let mut subject = Subject::default();
    match method {
        Method::RunPodSandbox => {
            let m: RunPodSandbox = decode(message);
            subject.pod = pod(m.config.as_ref());
            subject.handler = Some(cut(&m.runtime_handler).into());
            subject.origin = annotations::origin(message);
        }
        Method::StopContainer => {
            subject.container_id = first_id(message);
            subject.timeout = Some(decode::<StopContainer>(message).timeout);
        }
        Method::ExecSync => {
            subject.container_id = first_id(message);
            subject.timeout = Some(decode::<ExecSync>(message).timeout);
        }
        Method::CreateContainer => {
            let m: CreateContainer = decode(message);
            subject.pod = pod(m.sandbox_config.as_ref());
            subject.sandbox_id = id(&m.pod_sandbox_id);
            subject.grace_period = annotations::grace_period(message);
            if let Some(config) = &m.config {
                subject.container = config.metadata.as_ref().map(ContainerMetadata::identity);
                set_image(&mut subject, config.image.as_ref());
            }
        }
        Method::PullImage => {
            let m: PullImage = decode(message);
            subject.pod = pod(m.sandbox_config.as_ref());
            set_image(&mut subject, m.image.as_ref());
        }
        Method::ImageStatus | Method::RemoveImage => {
            set_image(&mut subject, decode::<OneImage>(message).image.as_ref());
        }
        Method::ListPodSandbox => subject.sandbox_id = filtered(message),
        Method::ListContainers => subject.container_id = filtered(message),
        _ => match method.first_id() {
            Some(FirstId::Sandbox) => subject.sandbox_id = first_id(message),
            Some(FirstId::Container) => subject.container_id = first_id(message),
            None => {}
        },
    }
    subject
}

fn first_id(message: &[u8]) -> Option<Arc<str>> {
    id(&decode::<OneId>(message).id)
}

fn pod(config: Option<&PodConfig>) -> Option<Arc<PodIdentity>> {
    Some(config?.metadata.as_ref()?.identity())
}

fn set_image(subject: &mut Subject, image: Option<&ImageSpec>) {
    let Some(image) = image else { return };
    subject.image = Some(image_reference(cut(&image.image)).into());
    if !image.runtime_handler.is_empty() {
        subject.handler = Some(cut(&image.runtime_handler).into());
    }
}

fn filtered(message: &[u8]) -> Option<Arc<str>> {
    id(&decode::<Filtered>(message).filter?.id)
}

/// Returns whether [`answer`] decodes anything for this method, so that the response must be copied.
pub const fn wants_answer(method: Method) -> bool {
    matches!(
        method,
        Method::RunPodSandbox
            | Method::CreateContainer
            | Method::ContainerStatus
            | Method::ExecSync
            | Method::Status
            | Method::ImageFsInfo
    )
}

/// Decodes the facts that a response adds.
pub fn answer(method: Method, message: &[u8]) -> ResponseDetails {
    let mut answer = ResponseDetails::default();
    match method {
        Method::RunPodSandbox => answer.sandbox_id = id(&decode::<OneId>(message).id),
        Method::CreateContainer => answer.container_id = id(&decode::<OneId>(message).id),
        Method::ExecSync => {
            answer.exit_code = Some(decode::<ExecSyncAnswer>(message).exit_code);
        }
        Method::ContainerStatus => {
            let status = decode::<ContainerStatusAnswer>(message).status;
            answer.state = status.as_ref().map(ContainerStatus::state);
        }
        Method::Status => {
            let status = decode::<StatusAnswer>(message).status;
            answer.conditions = status.map(|status| conditions(&status));
        }
        Method::ImageFsInfo => {
            let images = decode::<ImageFsAnswer>(message).images;
            let id = images.into_iter().next().and_then(|fs| fs.id);
            answer.image_fs = id.map(|id| Unseen::new(cut(&id.mountpoint)));
        }
        _ => {}
    }
    answer
}
