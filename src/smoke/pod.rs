//! The objects that the smoke requests: one pod with one container, labelled so that they can be found again.

use std::collections::HashMap;
use std::path::Path;

use super::SmokeOptions;
use crate::cri::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
};

/// Name of the pod.
pub const POD_NAME: &str = "criscope-smoke";
/// Namespace of the pod.
pub const POD_NAMESPACE: &str = "criscope";
/// Name of the container.
pub const CONTAINER_NAME: &str = "smoke";
/// Log file of the container below the pod's log directory; the kubelet's layout, `CONTAINER/RESTARTS.log`.
pub const CONTAINER_LOG: &str = "smoke/0.log";

/// Label with the run's id. Not one of the kubelet's (`io.kubernetes.pod.*`): the pod is not the kubelet's.
pub const RUN_LABEL: &str = "io.criscope.smoke.run";

/// Exit code of the ExecSync command: neither 0 nor a code that a shell or a runtime returns on its own.
pub const EXEC_EXIT_CODE: i32 = 7;

/// The pod's configuration.
pub fn sandbox(options: &SmokeOptions, logs: &Path, cgroup_parent: &str) -> PodSandboxConfig {
    let host_network = options.host_network;
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: options.name.clone(),
            uid: options.run.clone(),
            namespace: POD_NAMESPACE.to_owned(),
            attempt: 0,
        }),
        // A pod in the host's network must keep the host's name.
        hostname: if host_network { "" } else { &options.name }.to_owned(),
        log_directory: logs.display().to_string(),
        labels: labels(&options.run),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: cgroup_parent.to_owned(),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(host_network)),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The container's configuration. `image` is what PullImage returned, `reference` the requested image.
pub fn container(options: &SmokeOptions, image: &str, reference: &str) -> ContainerConfig {
    let command = match &options.command {
        Some(command) => vec![command.clone()],
        None => ["sh", "-c", &script(&options.run)]
            .map(str::to_owned)
            .into(),
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: CONTAINER_NAME.to_owned(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: image.to_owned(),
            user_specified_image: reference.to_owned(),
            ..Default::default()
        }),
        command,
        labels: labels(&options.run),
        log_path: CONTAINER_LOG.to_owned(),
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(namespaces(options.host_network)),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Selects the objects of this run.
pub fn labels(run: &str) -> HashMap<String, String> {
    HashMap::from([(RUN_LABEL.to_owned(), run.to_owned())])
}

/// Writes a line to both streams, then waits for SIGTERM, for an hour at most.
fn script(run: &str) -> String {
    format!("trap 'exit 0' TERM; echo out {run}; echo err {run} >&2; sleep 3600 & wait")
}

/// The command for ExecSync: writes a line to both streams and exits with a distinct code.
pub fn exec_command(run: &str) -> Vec<String> {
    let script = format!("echo out {run}; echo err {run} >&2; exit {EXEC_EXIT_CODE}");
    ["sh", "-c", &script].map(str::to_owned).into()
}

fn namespaces(host_network: bool) -> NamespaceOption {
    let network = if host_network {
        NamespaceMode::Node
    } else {
        NamespaceMode::Pod
    };
    NamespaceOption {
        network: network.into(),
        pid: NamespaceMode::Container.into(),
        ipc: NamespaceMode::Pod.into(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_do_what_the_steps_check() {
        // The shell of this machine stands in for the container's; `wait` returns at once because there is no child.
        let script = script("r").replace("sleep 3600 &", "");
        for (command, code) in [
            (vec!["sh".to_owned(), "-c".to_owned(), script], 0),
            (exec_command("r"), EXEC_EXIT_CODE),
        ] {
            let output = std::process::Command::new(&command[0])
                .args(&command[1..])
                .output()
                .expect("a shell");
            assert_eq!(output.status.code(), Some(code));
            assert_eq!(output.stdout, b"out r\n");
            assert_eq!(output.stderr, b"err r\n");
        }
    }

    #[test]
    fn host_network_is_set_on_both_and_keeps_the_hostname() {
        for (host, network, hostname) in [
            (false, NamespaceMode::Pod, "web"),
            (true, NamespaceMode::Node, ""),
        ] {
            let options = SmokeOptions {
                host_network: host,
                ..super::super::tests::options()
            };
            let pod = sandbox(&options, Path::new("/logs"), "");
            assert_eq!(pod.hostname, hostname);
            let of_pod = pod
                .linux
                .and_then(|linux| linux.security_context?.namespace_options)
                .expect("namespaces");
            assert_eq!(of_pod.network, i32::from(network));
            let options = container(&options, "i", "i")
                .linux
                .and_then(|linux| linux.security_context?.namespace_options)
                .expect("namespaces");
            assert_eq!(options.network, i32::from(network));
        }
    }
}
