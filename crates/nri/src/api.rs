//! The messages, the methods of the two services, and the events.

#![allow(missing_docs, missing_debug_implementations)]

use prost::Message;

include!(concat!(env!("OUT_DIR"), "/nri.pkg.api.v1alpha1.rs"));

/// The version of the interface that is announced to plugins.
pub const VERSION: &str = "v0.12.0";

/// The service that plugins call.
pub(crate) const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// The service that plugins provide.
pub(crate) const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

/// The mask of all events: bit n - 1 for event n.
pub(crate) const ALL_EVENTS: u32 = (1 << Event::ValidateContainerAdjustment as u32) - 1;

impl Event {
    /// All events.
    pub const ALL: [Self; 14] = [
        Self::RunPodSandbox,
        Self::UpdatePodSandbox,
        Self::PostUpdatePodSandbox,
        Self::StopPodSandbox,
        Self::RemovePodSandbox,
        Self::CreateContainer,
        Self::PostCreateContainer,
        Self::StartContainer,
        Self::PostStartContainer,
        Self::UpdateContainer,
        Self::PostUpdateContainer,
        Self::StopContainer,
        Self::RemoveContainer,
        Self::ValidateContainerAdjustment,
    ];

    /// The bit of the event in a mask.
    pub(crate) const fn bit(self) -> u32 {
        1 << (self as u32 - 1)
    }

    /// The method of the service Plugin for the event.
    pub const fn method(self) -> &'static str {
        match self {
            Self::RunPodSandbox => "RunPodSandbox",
            Self::UpdatePodSandbox => "UpdatePodSandbox",
            Self::PostUpdatePodSandbox => "PostUpdatePodSandbox",
            Self::StopPodSandbox => "StopPodSandbox",
            Self::RemovePodSandbox => "RemovePodSandbox",
            Self::CreateContainer => "CreateContainer",
            Self::PostCreateContainer => "PostCreateContainer",
            Self::StartContainer => "StartContainer",
            Self::PostStartContainer => "PostStartContainer",
            Self::UpdateContainer => "UpdateContainer",
            Self::PostUpdateContainer => "PostUpdateContainer",
            Self::StopContainer => "StopContainer",
            Self::RemoveContainer => "RemoveContainer",
            Self::ValidateContainerAdjustment => "ValidateContainerAdjustment",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns whether plugins without the method get the event by StateChange.
    pub(crate) const fn by_state_change(self) -> bool {
        !matches!(
            self,
            Self::CreateContainer
                | Self::UpdateContainer
                | Self::StopContainer
                | Self::UpdatePodSandbox
                | Self::ValidateContainerAdjustment
                | Self::Unknown
        )
    }
}

/// A request of an event.
pub(crate) trait EventRequest: Message {
    /// The pod.
    fn pod(&self) -> Option<&PodSandbox>;
    /// The container, if the event is about one.
    fn container(&self) -> Option<&Container>;
}

macro_rules! event_requests {
    ($($message:ident $(has $container:ident)?;)*) => {$(
        impl EventRequest for $message {
            fn pod(&self) -> Option<&PodSandbox> {
                self.pod.as_ref()
            }
            fn container(&self) -> Option<&Container> {
                let found = None;
                $(let found = found.or(self.$container.as_ref());)?
                found
            }
        }
    )*};
}

event_requests! {
    PodRequest;
    UpdatePodSandboxRequest;
    ContainerRequest has container;
    UpdateContainerRequest has container;
    ValidateContainerAdjustmentRequest has container;
}
