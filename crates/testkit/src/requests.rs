//! The requests of the CRI, with the fields that tests set.

use criscope::cri::v1;

/// Splits a command into its words.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The command that runs a script in a shell.
pub fn shell_command(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

/// An image by its name or id.
pub fn image_spec(name: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: name.to_owned(),
        ..Default::default()
    }
}

pub fn run_pod(config: v1::PodSandboxConfig, handler: &str) -> v1::RunPodSandboxRequest {
    v1::RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: handler.to_owned(),
    }
}

pub fn stop_pod(id: &str) -> v1::StopPodSandboxRequest {
    v1::StopPodSandboxRequest {
        pod_sandbox_id: id.to_owned(),
    }
}

pub fn remove_pod(id: &str) -> v1::RemovePodSandboxRequest {
    v1::RemovePodSandboxRequest {
        pod_sandbox_id: id.to_owned(),
    }
}

pub fn pod_status(id: &str, verbose: bool) -> v1::PodSandboxStatusRequest {
    v1::PodSandboxStatusRequest {
        pod_sandbox_id: id.to_owned(),
        verbose,
    }
}

pub fn pod_stats(id: &str) -> v1::PodSandboxStatsRequest {
    v1::PodSandboxStatsRequest {
        pod_sandbox_id: id.to_owned(),
    }
}

pub fn forward(id: &str) -> v1::PortForwardRequest {
    v1::PortForwardRequest {
        pod_sandbox_id: id.to_owned(),
        port: vec![],
    }
}

pub fn create(
    pod: &str,
    config: v1::ContainerConfig,
    sandbox: v1::PodSandboxConfig,
) -> v1::CreateContainerRequest {
    v1::CreateContainerRequest {
        pod_sandbox_id: pod.to_owned(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    }
}

pub fn start(id: &str) -> v1::StartContainerRequest {
    v1::StartContainerRequest {
        container_id: id.to_owned(),
    }
}

/// A stop with a grace period in seconds.
pub fn stop(id: &str, timeout: i64) -> v1::StopContainerRequest {
    v1::StopContainerRequest {
        container_id: id.to_owned(),
        timeout,
    }
}

pub fn remove(id: &str) -> v1::RemoveContainerRequest {
    v1::RemoveContainerRequest {
        container_id: id.to_owned(),
    }
}

pub fn status(id: &str, verbose: bool) -> v1::ContainerStatusRequest {
    v1::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose,
    }
}

pub fn stats(id: &str) -> v1::ContainerStatsRequest {
    v1::ContainerStatsRequest {
        container_id: id.to_owned(),
    }
}

pub fn reopen_log(id: &str) -> v1::ReopenContainerLogRequest {
    v1::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    }
}

/// A command with a time limit in seconds; 0 means none.
pub fn exec_sync(id: &str, cmd: Vec<String>, timeout: i64) -> v1::ExecSyncRequest {
    v1::ExecSyncRequest {
        container_id: id.to_owned(),
        cmd,
        timeout,
    }
}

/// An exec session. Each letter of `streams` is one of its streams: `i`, `o`, `e`, or `t` for a terminal.
pub fn exec(id: &str, cmd: Vec<String>, streams: &str) -> v1::ExecRequest {
    v1::ExecRequest {
        container_id: id.to_owned(),
        cmd,
        tty: streams.contains('t'),
        stdin: streams.contains('i'),
        stdout: streams.contains('o'),
        stderr: streams.contains('e'),
    }
}

/// An attach session, with streams as in [`exec`].
pub fn attach(id: &str, streams: &str) -> v1::AttachRequest {
    v1::AttachRequest {
        container_id: id.to_owned(),
        tty: streams.contains('t'),
        stdin: streams.contains('i'),
        stdout: streams.contains('o'),
        stderr: streams.contains('e'),
    }
}

pub fn pull(name: &str) -> v1::PullImageRequest {
    v1::PullImageRequest {
        image: Some(image_spec(name)),
        ..Default::default()
    }
}

/// A pull for a pod.
pub fn pull_for(name: &str, sandbox: v1::PodSandboxConfig) -> v1::PullImageRequest {
    v1::PullImageRequest {
        sandbox_config: Some(sandbox),
        ..pull(name)
    }
}

pub fn image_status(name: &str) -> v1::ImageStatusRequest {
    v1::ImageStatusRequest {
        image: Some(image_spec(name)),
        verbose: false,
    }
}

pub fn remove_image(name: &str) -> v1::RemoveImageRequest {
    v1::RemoveImageRequest {
        image: Some(image_spec(name)),
    }
}
