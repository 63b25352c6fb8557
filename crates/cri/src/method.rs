//! The methods of CRI v1 as a closed set, so that a method name can be a metric label and a path never is.

use std::fmt;

/// The service of `proto/api.proto` that a method belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `runtime.v1.RuntimeService`
    Runtime,
    /// `runtime.v1.ImageService`
    Image,
}

/// Effect of a method on the node; determines log level, sampling and the ending of a cancelled call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes state: gets an info line and a trace each time.
    Mutating,
    /// Reads state; the kubelet does this several times a second.
    Poll,
    /// Stays open until the caller cancels.
    Watch,
}

/// The two versions of the CRI in service names. Their messages are wire-compatible for every method of `v1alpha2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    /// `runtime.v1`
    V1,
    /// `runtime.v1alpha2`, of kubelets before 1.26 and runtimes before containerd 1.6.
    V1Alpha2,
}

impl ApiVersion {
    /// The protobuf package.
    pub const fn package(self) -> &'static str {
        match self {
            Self::V1 => "runtime.v1",
            Self::V1Alpha2 => "runtime.v1alpha2",
        }
    }
}

/// The id in the first field of a request message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstId {
    /// Of a sandbox.
    Sandbox,
    /// Of a container.
    Container,
}

macro_rules! methods {
    ($($name:ident, $service:ident, $class:ident, $streams:literal;)*) => {
        /// A method of CRI v1, or [`Method::Other`] for anything else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $(#[doc = concat!("`", stringify!($name), "`")] $name,)*
            /// Not in the version of the CRI that this program was built with. Forwarded unchanged.
            Other,
        }

        impl Method {
            /// Every method, `Other` last. Indexed by [`Method::index`].
            pub const ALL: [Method; 44] = [$(Method::$name,)* Method::Other];

            /// The short name, unique over both services; `_OTHER` for an unknown method.
            pub const fn name(self) -> &'static str {
                match self { $(Method::$name => stringify!($name),)* Method::Other => "_OTHER" }
            }

            /// The service; `None` for an unknown method.
            pub const fn service(self) -> Option<Service> {
                match self { $(Method::$name => Some(Service::$service),)* Method::Other => None }
            }

            /// The class. Unknown methods count as mutating: they are rare, and worth a log line.
            pub const fn class(self) -> Class {
                match self { $(Method::$name => Class::$class,)* Method::Other => Class::Mutating }
            }

            /// Returns whether the response is a stream of messages.
            pub const fn is_server_streaming(self) -> bool {
                match self { $(Method::$name => $streams,)* Method::Other => true }
            }

            /// `runtime.v1.SERVICE/METHOD`, the `rpc.method` of OpenTelemetry; `_OTHER` for an unknown method.
            pub const fn full_name(self) -> &'static str {
                match self {
                    $(Method::$name => concat!("runtime.v1.", stringify!($service), "Service/", stringify!($name)),)*
                    Method::Other => "_OTHER",
                }
            }

            fn from_name(service: Service, name: &str) -> Option<Method> {
                match (service, name) {
                    $((Service::$service, stringify!($name)) => Some(Method::$name),)*
                    _ => None,
                }
            }
        }

        impl crate::Named for Method {
            const NAMES: &'static [&'static str] = &[$(stringify!($name),)* "_OTHER"];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

methods! {
    Version, Runtime, Poll, false;
    RunPodSandbox, Runtime, Mutating, false;
    StopPodSandbox, Runtime, Mutating, false;
    RemovePodSandbox, Runtime, Mutating, false;
    PodSandboxStatus, Runtime, Poll, false;
    ListPodSandbox, Runtime, Poll, false;
    StreamPodSandboxes, Runtime, Poll, true;
    CreateContainer, Runtime, Mutating, false;
    StartContainer, Runtime, Mutating, false;
    StopContainer, Runtime, Mutating, false;
    RemoveContainer, Runtime, Mutating, false;
    ListContainers, Runtime, Poll, false;
    StreamContainers, Runtime, Poll, true;
    ContainerStatus, Runtime, Poll, false;
    UpdateContainerResources, Runtime, Mutating, false;
    ReopenContainerLog, Runtime, Mutating, false;
    ExecSync, Runtime, Mutating, false;
    Exec, Runtime, Mutating, false;
    Attach, Runtime, Mutating, false;
    PortForward, Runtime, Mutating, false;
    ContainerStats, Runtime, Poll, false;
    ListContainerStats, Runtime, Poll, false;
    StreamContainerStats, Runtime, Poll, true;
    PodSandboxStats, Runtime, Poll, false;
    ListPodSandboxStats, Runtime, Poll, false;
    StreamPodSandboxStats, Runtime, Poll, true;
    UpdateRuntimeConfig, Runtime, Mutating, false;
    Status, Runtime, Poll, false;
    CheckpointContainer, Runtime, Mutating, false;
    CheckpointPod, Runtime, Mutating, false;
    RestorePod, Runtime, Mutating, false;
    GetContainerEvents, Runtime, Watch, true;
    ListMetricDescriptors, Runtime, Poll, false;
    ListPodSandboxMetrics, Runtime, Poll, false;
    StreamPodSandboxMetrics, Runtime, Poll, true;
    RuntimeConfig, Runtime, Poll, false;
    UpdatePodSandboxResources, Runtime, Mutating, false;
    ListImages, Image, Poll, false;
    StreamImages, Image, Poll, true;
    ImageStatus, Image, Poll, false;
    PullImage, Image, Mutating, false;
    RemoveImage, Image, Mutating, false;
    ImageFsInfo, Image, Poll, false;
}

impl Method {
    /// Returns whether it makes a sandbox: the pod begins anew.
    pub const fn makes_sandbox(self) -> bool {
        matches!(self, Self::RunPodSandbox | Self::RestorePod)
    }

    /// Returns whether it freezes containers to write their state to files.
    pub const fn checkpoints(self) -> bool {
        matches!(self, Self::CheckpointContainer | Self::CheckpointPod)
    }

    /// Returns whether it stops or removes an object.
    pub const fn takes_away(self) -> bool {
        matches!(
            self,
            Self::StopContainer
                | Self::StopPodSandbox
                | Self::RemoveContainer
                | Self::RemovePodSandbox
        )
    }

    /// Number of methods, `Other` included.
    pub const COUNT: usize = Self::ALL.len();

    /// A dense index below [`Method::COUNT`], in the order of [`Method::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Parses the `:path` of a request: `/runtime.v1.RuntimeService/Version`. `None` if it is not a known CRI method.
    pub fn from_path(path: &str) -> Option<(Method, ApiVersion)> {
        let (service, name) = path.strip_prefix("/runtime.")?.split_once('/')?;
        let (version, service) = service.split_once('.')?;
        let version = match version {
            "v1" => ApiVersion::V1,
            "v1alpha2" => ApiVersion::V1Alpha2,
            _ => return None,
        };
        let service = match service {
            "RuntimeService" => Service::Runtime,
            "ImageService" => Service::Image,
            _ => return None,
        };
        Some((Method::from_name(service, name)?, version))
    }

    /// The object whose id is the first field of the request; `None` for other requests. The call is about that one object.
    pub const fn first_id(self) -> Option<FirstId> {
        match self {
            Self::StopPodSandbox
            | Self::RemovePodSandbox
            | Self::PodSandboxStatus
            | Self::PodSandboxStats
            | Self::PortForward
            | Self::UpdatePodSandboxResources
            | Self::CheckpointPod
            | Self::CreateContainer => Some(FirstId::Sandbox),
            Self::StartContainer
            | Self::StopContainer
            | Self::RemoveContainer
            | Self::ContainerStatus
            | Self::ContainerStats
            | Self::UpdateContainerResources
            | Self::ReopenContainerLog
            | Self::ExecSync
            | Self::Exec
            | Self::Attach
            | Self::CheckpointContainer => Some(FirstId::Container),
            _ => None,
        }
    }

    /// Returns whether the response lists objects, and so must contain those of every backend.
    pub const fn is_list(self) -> bool {
        matches!(
            self,
            Self::ListPodSandbox
                | Self::StreamPodSandboxes
                | Self::ListContainers
                | Self::StreamContainers
                | Self::ListContainerStats
                | Self::StreamContainerStats
                | Self::ListPodSandboxStats
                | Self::StreamPodSandboxStats
                | Self::ListPodSandboxMetrics
                | Self::StreamPodSandboxMetrics
                | Self::ListImages
                | Self::StreamImages
        )
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

crate::serde_by_name!(Method);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_versions_are_known() {
        assert_eq!(
            Method::from_path("/runtime.v1.RuntimeService/RunPodSandbox"),
            Some((Method::RunPodSandbox, ApiVersion::V1))
        );
        assert_eq!(
            Method::from_path("/runtime.v1alpha2.ImageService/PullImage"),
            Some((Method::PullImage, ApiVersion::V1Alpha2))
        );
        for unknown in [
            "",
            "/",
            "/runtime.v1.ImageService/RunPodSandbox",
            "/runtime.v2.RuntimeService/Version",
            "/runtime.v1.RuntimeService/MigratePod",
            "/grpc.health.v1.Health/Check",
        ] {
            assert_eq!(Method::from_path(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_index_is_dense() {
        for (i, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method.index(), i);
        }
    }

    #[test]
    fn the_first_id_is_that_of_the_protocol() {
        let pool = prost_reflect::DescriptorPool::decode(crate::DESCRIPTOR).expect("pool");
        let mut seen = 0;
        for rpc in pool
            .services()
            .flat_map(|s| s.methods().collect::<Vec<_>>())
        {
            let path = format!("/{}", rpc.full_name().replacen("Service.", "Service/", 1));
            let (method, _) = Method::from_path(&path).expect(&path);
            let wanted = match rpc.input().get_field(1).as_ref().map(|field| field.name()) {
                Some("pod_sandbox_id") => Some(FirstId::Sandbox),
                Some("container_id") => Some(FirstId::Container),
                _ => None,
            };
            assert_eq!(method.first_id(), wanted, "{method}");
            seen += 1;
        }
        assert_eq!(seen, Method::COUNT - 1);
    }

    #[test]
    fn the_table_is_the_protocol() {
        let proto = include_str!("../proto/api.proto");
        let mut service = "";
        let mut seen = 0;
        for line in proto.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.trim_end_matches(" {");
            }
            let Some(rest) = line.strip_prefix("rpc ") else {
                continue;
            };
            let name = rest.split('(').next().unwrap_or_default();
            let path = format!("/runtime.v1.{service}/{name}");
            let (method, _) = Method::from_path(&path).expect(&path);
            assert_eq!(method.name(), name);
            assert_eq!(format!("/{}", method.full_name()), path);
            assert_eq!(
                method.is_server_streaming(),
                rest.contains("(stream "),
                "{name}"
            );
            seen += 1;
        }
        assert_eq!(seen, Method::COUNT - 1);
    }
}
