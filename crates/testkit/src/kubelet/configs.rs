//! Configurations of containers and pods, and the parts of them that tests change.

use criscope::cri::v1;

use crate::daemon::IMAGE;
use crate::requests;

/// A container that runs this script in a shell.
pub fn shell(name: &str, script: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(requests::image_spec(IMAGE)),
        command: requests::shell_command(script),
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources::default()),
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: v1::NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

/// A container that runs until SIGTERM.
pub fn idle(name: &str) -> v1::ContainerConfig {
    shell(name, "trap 'exit 0' TERM; sleep 1000000 & wait")
}

/// The security context of a container.
pub fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default()
}

/// The namespaces of a container.
pub fn namespaces(config: &mut v1::ContainerConfig) -> &mut v1::NamespaceOption {
    security(config).namespace_options.get_or_insert_default()
}

/// A container in the shared PID namespace of its pod.
pub fn share_pid(mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
    config
}

/// A container in the network of the node.
pub fn share_host_network(mut config: v1::ContainerConfig) -> v1::ContainerConfig {
    namespaces(&mut config).network = v1::NamespaceMode::Node.into();
    config
}

/// A user namespace whose ids from 0 on are those of the node from `host_id` on.
pub fn user_namespace(host_id: u32, length: u32) -> v1::UserNamespace {
    let ids = v1::IdMapping {
        host_id,
        container_id: 0,
        length,
    };
    v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: vec![ids],
        gids: vec![ids],
    }
}

/// The resources of a container.
pub fn resources(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerResources {
    let linux = config.linux.get_or_insert_default();
    linux.resources.get_or_insert_default()
}

/// The security context of a pod.
pub fn pod_security(config: &mut v1::PodSandboxConfig) -> &mut v1::LinuxSandboxSecurityContext {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default()
}

/// The namespaces of a pod.
pub fn pod_namespaces(config: &mut v1::PodSandboxConfig) -> &mut v1::NamespaceOption {
    pod_security(config)
        .namespace_options
        .get_or_insert_default()
}
