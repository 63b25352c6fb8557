//! Decodes the identity in a request message, and the few facts that a response adds. Works on a copy of the bytes; a
//! message that does not decode has no identity and is no error: it is forwarded all the same.
//!
//! The messages below hold only the fields that [`super::identity`] lists. prost skips all others without storing
//! them, so a secret is not even copied.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use prost::Message;

use super::method::{FirstId, Method};
use super::redact::image_reference;
use super::subject::{
    ContainerExit, ContainerIdentity, ContainerState, ExitReason, PodIdentity, ResponseDetails,
    RestoredContainer, RuntimeCondition, Subject, Unseen,
};
use super::{annotations, container_request};

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
        /// The name in the pod, where `image` is an id.
        #[prost(string, tag = "18")] user_specified_image: String,
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
    RestorePod {
        #[prost(message, optional, tag = "2")] config: Option<PodConfig>,
        #[prost(string, tag = "3")] runtime_handler: String,
    }
    RestoredConfigs {
        #[prost(message, repeated, tag = "5")] containers: Vec<ContainerConfig>,
    }
    Restored {
        #[prost(string, tag = "1")] name: String,
        #[prost(string, tag = "2")] container_id: String,
    }
    RestorePodAnswer {
        #[prost(string, tag = "1")] pod_sandbox_id: String,
        #[prost(message, repeated, tag = "2")] restored: Vec<Restored>,
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

impl Restored {
    fn container(&self) -> Option<RestoredContainer> {
        Some(RestoredContainer {
            id: id(&self.container_id)?,
            name: cut(&self.name).into(),
        })
    }
}

/// The identities of the containers that a RestorePod request names.
pub fn restored_containers(request: &[u8]) -> Vec<Arc<ContainerIdentity>> {
    let configs: RestoredConfigs = decode(request);
    let metadata = configs.containers.iter();
    let metadata = metadata.filter_map(|config| config.metadata.as_ref());
    metadata.map(ContainerMetadata::identity).collect()
}

/// The state in a `ContainerStatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatusAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<ContainerStatus>,
}

impl ContainerStatusAnswer {
    /// The state of the container; `None` if the response has no status.
    pub fn state(&self) -> Option<ContainerState> {
        self.status.as_ref().map(ContainerStatus::state)
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
            subject.origin = annotations::origin(message, 1);
            subject.limits = container_request::sandbox_limits(message, 1);
        }
        Method::RestorePod => {
            let m: RestorePod = decode(message);
            subject.pod = pod(m.config.as_ref());
            subject.handler = Some(cut(&m.runtime_handler).into());
            subject.origin = annotations::origin(message, 2);
            subject.limits = container_request::sandbox_limits(message, 2);
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
            subject.request = container_request::container_request(message).map(Arc::new);
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
        Method::UpdateContainerResources => {
            subject.container_id = first_id(message);
            subject.limits = Some(container_request::updated_limits(message));
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
    let name = Some(&image.user_specified_image).filter(|name| !name.is_empty());
    let name = name.unwrap_or(&image.image);
    subject.image = Some(image_reference(cut(name)).into());
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
            | Method::RestorePod
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
        Method::RestorePod => {
            let m: RestorePodAnswer = decode(message);
            answer.sandbox_id = id(&m.pod_sandbox_id);
            answer.restored = m.restored.iter().filter_map(Restored::container).collect();
        }
        Method::ExecSync => {
            answer.exit_code = Some(decode::<ExecSyncAnswer>(message).exit_code);
        }
        Method::ContainerStatus => {
            answer.state = decode::<ContainerStatusAnswer>(message).state();
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
