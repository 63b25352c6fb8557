//! The configuration of a pod as a CreateContainer request repeats it.

use criscope_cri::v1::PodSandboxConfig;

/// The configuration that the pod was made with, updated with the fields that the kubelet may change while the pod runs: labels, annotations,
/// and whether the pod is privileged, which an ephemeral container changes (`kubectl debug --profile=sysadmin`). Names, namespaces,
/// users, the log directory and the cgroup belong to the sandbox and stay.
pub(super) fn current(
    made: &PodSandboxConfig,
    request: Option<PodSandboxConfig>,
) -> PodSandboxConfig {
    let mut current = made.clone();
    let Some(request) = request else {
        return current;
    };
    current.labels = request.labels;
    current.annotations = request.annotations;
    let context = request.linux.and_then(|linux| linux.security_context);
    if let Some(context) = context {
        let linux = current.linux.get_or_insert_default();
        linux.security_context.get_or_insert_default().privileged = context.privileged;
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1::{LinuxPodSandboxConfig, LinuxSandboxSecurityContext};

    fn config(name: &str, privileged: bool) -> PodSandboxConfig {
        PodSandboxConfig {
            hostname: name.to_owned(),
            log_directory: format!("/logs/{name}"),
            labels: [("label".to_owned(), name.to_owned())].into(),
            annotations: [("annotation".to_owned(), name.to_owned())].into(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{name}"),
                security_context: Some(LinuxSandboxSecurityContext {
                    privileged,
                    readonly_rootfs: privileged,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn only_what_the_kubelet_may_change_is_taken_from_the_request() {
        let made = config("made", false);
        let mut expected = made.clone();
        assert!(current(&made, None) == expected);
        let request = config("request", true);
        expected.labels.clone_from(&request.labels);
        expected.annotations.clone_from(&request.annotations);
        let linux = expected.linux.get_or_insert_default();
        linux.security_context.get_or_insert_default().privileged = true;
        assert!(current(&made, Some(request)) == expected);
        // Without a security context the request says nothing about it.
        let privileged = config("made", true);
        let bare = PodSandboxConfig {
            labels: privileged.labels.clone(),
            annotations: privileged.annotations.clone(),
            ..Default::default()
        };
        assert!(current(&privileged, Some(bare)) == privileged);
    }
}
