//! Fields of the protocol that may be shown. Everything else is secret until someone adds it here and a second person
//! agrees: a new field of a new CRI version is secret by its absence.

/// `MESSAGE.FIELD` of every string that may reach a log, span, page or dump. Image references are shown without user,
/// password and query.
pub const SHOWN: &[&str] = &[
    // Subject.
    "PodSandboxMetadata.name",
    "PodSandboxMetadata.uid",
    "PodSandboxMetadata.namespace",
    "ContainerMetadata.name",
    // Ids made by the runtime.
    "RunPodSandboxResponse.pod_sandbox_id",
    "StopPodSandboxRequest.pod_sandbox_id",
    "RemovePodSandboxRequest.pod_sandbox_id",
    "PodSandboxStatusRequest.pod_sandbox_id",
    "PodSandboxStatsRequest.pod_sandbox_id",
    "UpdatePodSandboxResourcesRequest.pod_sandbox_id",
    "PortForwardRequest.pod_sandbox_id",
    "CreateContainerRequest.pod_sandbox_id",
    "CreateContainerResponse.container_id",
    "StartContainerRequest.container_id",
    "StopContainerRequest.container_id",
    "RemoveContainerRequest.container_id",
    "ContainerStatusRequest.container_id",
    "ContainerStatsRequest.container_id",
    "UpdateContainerResourcesRequest.container_id",
    "ReopenContainerLogRequest.container_id",
    "ExecSyncRequest.container_id",
    "ExecRequest.container_id",
    "AttachRequest.container_id",
    "CheckpointContainerRequest.container_id",
    "PodSandboxFilter.id",
    "ContainerFilter.id",
    "PodSandbox.id",
    "Container.id",
    "Container.pod_sandbox_id",
    // Image and runtime handler.
    "ImageSpec.image",
    "ImageSpec.runtime_handler",
    "RunPodSandboxRequest.runtime_handler",
    // The runtime's description of itself.
    "VersionResponse.runtime_name",
    "VersionResponse.runtime_version",
    "RuntimeCondition.type",
    "RuntimeCondition.reason",
];
