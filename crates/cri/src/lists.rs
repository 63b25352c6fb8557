//! The lists of sandboxes and containers reduced to identity, state and times: for the pod index, and for pods that ran before criscope.

use std::sync::Arc;

use prost::Message;

use super::peek::{ContainerMetadata, PodMetadata};
use super::subject::{ContainerIdentity, PodIdentity};
use super::units::times::UnixMicros;

/// `PodSandboxState.SANDBOX_READY`
const SANDBOX_READY: i32 = 0;

/// The identity fields of `PodSandbox`, its state and its age.
#[derive(Clone, PartialEq, Message)]
pub struct Sandbox {
    /// The id.
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<PodMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
}

impl Sandbox {
    /// The pod.
    pub fn pod(&self) -> Arc<PodIdentity> {
        self.metadata.clone().unwrap_or_default().identity()
    }
}

/// The identity fields of `Container`, its state and its age.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// The id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The id of its sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<ContainerMetadata>,
    #[prost(int32, tag = "6")]
    state: i32,
    #[prost(int64, tag = "7")]
    created_at: i64,
}

impl Container {
    /// The container's identity within its pod.
    pub fn identity(&self) -> Arc<ContainerIdentity> {
        self.metadata.clone().unwrap_or_default().identity()
    }
}

crate::named! {
    /// The state of a container in the runtime's list.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum ListedState {
        /// It was not started.
        Created = "created",
        /// It runs.
        Running = "running",
        /// It has ended.
        Exited = "exited",
        /// The runtime does not know.
        Unknown = "unknown",
    }
}

crate::serde_by_name!(ListedState);

/// A sandbox in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSandbox {
    /// The id.
    pub id: Arc<str>,
    /// The pod, with the attempt of the sandbox.
    pub pod: Arc<PodIdentity>,
    /// True while the sandbox is up.
    pub is_ready: bool,
    /// The time at which it was made.
    pub created: UnixMicros,
}

/// A container in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedContainer {
    /// The id.
    pub id: Arc<str>,
    /// The id of its sandbox.
    pub sandbox_id: Arc<str>,
    /// The container within its pod.
    pub container: Arc<ContainerIdentity>,
    /// The state.
    pub state: ListedState,
    /// The time at which it was made.
    pub created: UnixMicros,
}

/// Both lists of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeLists {
    /// Every sandbox.
    pub sandboxes: Vec<ListedSandbox>,
    /// Every container.
    pub containers: Vec<ListedContainer>,
}

impl From<Sandbox> for ListedSandbox {
    fn from(sandbox: Sandbox) -> Self {
        Self {
            pod: sandbox.pod(),
            is_ready: sandbox.state == SANDBOX_READY,
            created: UnixMicros::from_nanos(sandbox.created_at),
            id: sandbox.id.into(),
        }
    }
}

impl From<Container> for ListedContainer {
    fn from(container: Container) -> Self {
        Self {
            container: container.identity(),
            // `ContainerState` in proto/api.proto.
            state: match container.state {
                0 => ListedState::Created,
                1 => ListedState::Running,
                2 => ListedState::Exited,
                _ => ListedState::Unknown,
            },
            created: UnixMicros::from_nanos(container.created_at),
            id: container.id.into(),
            sandbox_id: container.pod_sandbox_id.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::v1;
    use super::*;

    const CREATED: i64 = 1_750_000_000_123_456_789;

    #[test]
    fn sandboxes_have_their_state_and_age() {
        let message = v1::PodSandbox {
            id: "s1".into(),
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".into(),
                uid: "u-1".into(),
                namespace: "shop".into(),
                attempt: 2,
            }),
            state: v1::PodSandboxState::SandboxNotready.into(),
            created_at: CREATED,
            ..Default::default()
        };
        let sandbox = Sandbox::decode(&*message.encode_to_vec()).expect("a sandbox");
        let listed = ListedSandbox::from(sandbox);
        assert_eq!((&*listed.id, &*listed.pod.name), ("s1", "web"));
        assert_eq!((listed.pod.attempt, listed.is_ready), (2, false));
        assert_eq!(listed.created, UnixMicros::new(1_750_000_000_123_456));
    }

    #[test]
    fn containers_have_their_state_and_age() {
        for (state, expected) in [
            (v1::ContainerState::ContainerCreated, ListedState::Created),
            (v1::ContainerState::ContainerRunning, ListedState::Running),
            (v1::ContainerState::ContainerExited, ListedState::Exited),
            (v1::ContainerState::ContainerUnknown, ListedState::Unknown),
        ] {
            let message = v1::Container {
                id: "c1".into(),
                pod_sandbox_id: "s1".into(),
                metadata: Some(v1::ContainerMetadata {
                    name: "app".into(),
                    attempt: 7,
                }),
                state: state.into(),
                created_at: CREATED,
                ..Default::default()
            };
            let container = Container::decode(&*message.encode_to_vec()).expect("a container");
            let listed = ListedContainer::from(container);
            assert_eq!(listed.state, expected);
            assert_eq!((&*listed.id, &*listed.sandbox_id), ("c1", "s1"));
            let ContainerIdentity { name, attempt } = &*listed.container;
            assert_eq!((&**name, *attempt), ("app", 7));
            assert_eq!(listed.created, UnixMicros::new(1_750_000_000_123_456));
        }
    }
}
