//! Decodes the identity in a request message, and the few facts that a response adds. Works on a copy of the bytes; a
//! message that does not decode has no identity and is no error: it is forwarded all the same.
//!
//! The messages below hold only the fields that [`super::identity`] lists. prost skips all others without storing
//! them, so a secret is not even copied.

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
    let conditions = conditions.map(|it| RuntimeCondition {
        kind: cut(&it.kind).into(),
        status: it.status,
        reason: cut(&it.reason).into(),
        message: Unseen::new(&it.message[..it.message.floor_char_boundary(4 * MAX)]),
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
            answer.conditions = status.map(|it| conditions(&it));
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

#[cfg(test)]
mod tests {
    use super::super::v1;
    use super::*;

    fn sandbox_config() -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".into(),
                uid: "u-1".into(),
                namespace: "shop".into(),
                attempt: 2,
            }),
            hostname: "secret-host".into(),
            annotations: [("kubernetes.io/config.seen", "2025-06-15T15:06:40Z")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_sandbox_is_named_by_its_metadata() {
        let message = v1::RunPodSandboxRequest {
            config: Some(sandbox_config()),
            runtime_handler: "kata".into(),
        };
        let subject = request(Method::RunPodSandbox, &message.encode_to_vec());
        let pod = subject.pod.expect("pod");
        assert_eq!(
            (&*pod.namespace, &*pod.name, &*pod.uid, pod.attempt),
            ("shop", "web", "u-1", 2)
        );
        assert_eq!(subject.handler.as_deref(), Some("kata"));
        let origin = subject.origin.expect("an origin");
        assert_eq!(origin.seen_us, 1_750_000_000_000_000);
    }

    #[test]
    fn a_container_is_named_by_its_metadata_and_image() {
        let message = v1::CreateContainerRequest {
            pod_sandbox_id: "s1".into(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "app".into(),
                    attempt: 1,
                }),
                image: Some(v1::ImageSpec {
                    image: "https://me:pw@registry.example/app?token=x".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            sandbox_config: Some(sandbox_config()),
        };
        let subject = request(Method::CreateContainer, &message.encode_to_vec());
        assert_eq!(subject.sandbox_id.as_deref(), Some("s1"));
        assert_eq!(
            subject.container.map(|c| c.name.clone()).as_deref(),
            Some("app")
        );
        assert_eq!(
            subject.image.as_deref(),
            Some("https://registry.example/app")
        );
    }

    #[test]
    fn every_call_that_carries_an_id_gives_it() {
        let message = v1::StopContainerRequest {
            container_id: "c1".into(),
            timeout: 3,
        };
        let subject = request(Method::StopContainer, &message.encode_to_vec());
        assert_eq!(subject.container_id.as_deref(), Some("c1"));
        assert_eq!(subject.timeout, Some(3));
        let message = v1::ExecSyncRequest {
            container_id: "c1".into(),
            cmd: vec!["secret".into()],
            timeout: 5,
        };
        let subject = request(Method::ExecSync, &message.encode_to_vec());
        assert_eq!(subject.container_id.as_deref(), Some("c1"));
        assert_eq!(subject.timeout, Some(5));

        let message = v1::ListContainersRequest {
            filter: Some(v1::ContainerFilter {
                id: "c2".into(),
                ..Default::default()
            }),
        };
        let subject = request(Method::ListContainers, &message.encode_to_vec());
        assert_eq!(subject.container_id.as_deref(), Some("c2"));
    }

    #[test]
    fn nonsense_gives_nothing() {
        for method in Method::ALL {
            assert_eq!(request(method, b"\xff\xff\xff\xff").pod, None, "{method}");
            let _ = answer(method, b"\x0a\xff");
        }
    }

    #[test]
    fn long_names_are_cut() {
        let message = v1::StopContainerRequest {
            container_id: "é".repeat(1000),
            timeout: 0,
        };
        let subject = request(Method::StopContainer, &message.encode_to_vec());
        assert_eq!(subject.container_id.map(|id| id.len()), Some(MAX));
    }

    #[test]
    fn answers() {
        let message = v1::ExecSyncResponse {
            stdout: b"secret".as_slice().into(),
            stderr: Default::default(),
            exit_code: 7,
        };
        assert_eq!(
            answer(Method::ExecSync, &message.encode_to_vec()).exit_code,
            Some(7)
        );
        let mut status = v1::ContainerStatus {
            state: v1::ContainerState::ContainerRunning.into(),
            started_at: 5,
            finished_at: 9,
            exit_code: 137,
            reason: "OOMKilled".into(),
            ..Default::default()
        };
        let state = |status: &v1::ContainerStatus| {
            let message = v1::ContainerStatusResponse {
                status: Some(status.clone()),
                ..Default::default()
            };
            let answer = answer(Method::ContainerStatus, &message.encode_to_vec());
            answer.state.expect("a state")
        };
        assert_eq!((state(&status).started_at, state(&status).exit), (5, None));
        status.state = v1::ContainerState::ContainerExited.into();
        let exit = state(&status).exit.expect("an exit");
        assert_eq!(
            (exit.at, exit.code, exit.reason),
            (9, 137, ExitReason::OomKilled)
        );
        for (word, reason) in [
            ("Completed", ExitReason::Completed),
            ("Error", ExitReason::Error),
            ("StartError", ExitReason::Other),
            ("", ExitReason::Other),
        ] {
            status.reason = word.into();
            assert_eq!(
                state(&status).exit.map(|e| e.reason),
                Some(reason),
                "{word}"
            );
        }

        let message = v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![v1::RuntimeCondition {
                    r#type: "NetworkReady".into(),
                    status: false,
                    reason: "NetworkPluginNotReady".into(),
                    message: "secret path".into(),
                }],
            }),
            ..Default::default()
        };
        let details = answer(Method::Status, &message.encode_to_vec());
        let conditions = details.conditions.as_deref().expect("conditions");
        assert_eq!(conditions[0].message.text(), "secret path");
        assert!(!format!("{details:?}").contains("secret"));

        let message = v1::RunPodSandboxResponse {
            pod_sandbox_id: "s9".into(),
        };
        let answer = answer(Method::RunPodSandbox, &message.encode_to_vec());
        assert_eq!(answer.sandbox_id.as_deref(), Some("s9"));
    }
}
