//! Fields of the protocol that may be shown. Everything else is secret until it is added here, by a change that
//! a second person has reviewed: a new field of a new CRI version is secret by its absence.
//!
//! [`SHOWN`] fields are read and shown on their own. [`QUOTABLE`] ones are not read; they only may be seen where an error text
//! of a backend quotes them.

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

/// `MESSAGE.FIELD` of every string of a request, in addition to [`SHOWN`], that may be seen in an error text which quotes it:
/// paths, devices, profiles and names of the kernel. References lose user, password and query. See [`super::secrets`].
pub const QUOTABLE: &[&str] = &[
    "PodSandboxConfig.hostname",
    "PodSandboxConfig.log_directory",
    "DNSConfig.servers",
    "DNSConfig.searches",
    "DNSConfig.options",
    "PortMapping.host_ip",
    "LinuxPodSandboxConfig.cgroup_parent",
    "SysctlsEntry.key",
    "UnifiedEntry.key",
    "NamespaceOption.target_id",
    "SELinuxOption.user",
    "SELinuxOption.role",
    "SELinuxOption.type",
    "SELinuxOption.level",
    "SecurityProfile.localhost_ref",
    "LinuxSandboxSecurityContext.seccomp_profile_path",
    "LinuxContainerResources.cpuset_cpus",
    "LinuxContainerResources.cpuset_mems",
    "HugepageLimit.page_size",
    "Mount.container_path",
    "Mount.host_path",
    "Mount.image_sub_path",
    "Device.container_path",
    "Device.host_path",
    "Device.permissions",
    "CDIDevice.name",
    "Capability.add_capabilities",
    "Capability.drop_capabilities",
    "Capability.add_ambient_capabilities",
    "LinuxContainerSecurityContext.run_as_username",
    "LinuxContainerSecurityContext.apparmor_profile",
    "LinuxContainerSecurityContext.seccomp_profile_path",
    "LinuxContainerSecurityContext.masked_paths",
    "LinuxContainerSecurityContext.readonly_paths",
    // The program, which is the first word. The arguments are secrets.
    "ContainerConfig.command",
    "ExecSyncRequest.cmd",
    "ExecRequest.cmd",
    "ContainerConfig.working_dir",
    "ContainerConfig.log_path",
    "ImageSpec.user_specified_image",
    "ImageSpec.image_ref",
    "AuthConfig.server_address",
];
