//! The annotations of the specification.

use std::collections::HashMap;

use super::build::Request;
use crate::sections::Handler;
use criscope_cri::v1::PodSandboxConfig;

/// Annotations by which an OCI runtime changes the node rather than the container: crun writes the output of hooks to files
/// of the node, takes a seccomp filter and another handler from them, and with krun starts a program of the node; systemd takes properties of units; gVisor and Kata
/// take paths, devices and kernels. By those of CRI-O and dockershim some shims tell which pod a container belongs to. A pattern matches
/// them only if it contains the whole prefix.
const RESERVED: [&str; 9] = [
    "run.oci.",
    "krun.",
    "org.systemd.property.",
    "org.criu.",
    "dev.gvisor.",
    "io.katacontainers.",
    "io.kubernetes.cri-o.",
    "io.kubernetes.docker.",
    "io.kubernetes.sandbox.",
];
/// Annotations that the runtime sets itself, and that OCI runtimes and hooks trust.
const OWN: &str = "io.kubernetes.cri.";

/// Returns whether a list of patterns, which may end with `*`, allows a key. A pattern shorter than a reserved prefix does
/// not match keys with that prefix.
fn allowed(key: &str, list: &[String]) -> bool {
    if key.starts_with(OWN) || key.contains('\0') {
        return false;
    }
    let reserved = RESERVED.iter().find(|prefix| key.starts_with(*prefix));
    list.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => {
            let spelt = reserved.is_none_or(|reserved| prefix.starts_with(reserved));
            spelt && key.starts_with(prefix)
        }
        None => key == pattern,
    })
}

/// Returns whether the runtime sets an annotation itself.
pub(super) fn is_own(key: &str) -> bool {
    key.starts_with(OWN)
}

/// Returns whether a handler allows an annotation that an NRI plugin adds: one that changes only the container, or one that the lists of
/// the handler have.
pub(super) fn is_allowed_for(key: &str, handler: &Handler) -> bool {
    !RESERVED.iter().any(|prefix| key.starts_with(prefix))
        || allowed(key, &handler.pod_annotations)
        || allowed(key, &handler.container_annotations)
}

/// The annotations that every CRI runtime passes to its OCI runtime, and the ones that the handler allows.
pub(super) fn annotations(request: &Request<'_>) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let handler = request.handler;
    let pod = request.pod.annotations.iter();
    all.extend(pod.filter(|(key, _)| allowed(key, &handler.pod_annotations)));
    let own = request.container.annotations.iter();
    all.extend(own.filter(|(key, _)| allowed(key, &handler.container_annotations)));
    let mut all: HashMap<String, String> = all
        .into_iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut own = vec![
        ("container-type", "container"),
        ("sandbox-id", request.sandbox.id.as_str()),
    ];
    if let Some(metadata) = &request.pod.metadata {
        own.push(("sandbox-name", &metadata.name));
        own.push(("sandbox-namespace", &metadata.namespace));
        own.push(("sandbox-uid", &metadata.uid));
    }
    if let Some(metadata) = &request.container.metadata {
        own.push(("container-name", &metadata.name));
    }
    if let Some(image) = &request.container.image {
        let name = match image.user_specified_image.as_str() {
            "" => &image.image,
            name => name,
        };
        own.push(("image-name", name));
    }
    let own = own.into_iter();
    all.extend(own.map(|(key, value)| (format!("{OWN}{key}"), value.to_owned())));
    all
}

/// Makes the annotations of a container those of the sandbox container, by which shims of containerd recognise it; Kata sizes its
/// virtual machine by the resources of the pod.
pub fn sandbox_annotations(pod: &PodSandboxConfig, all: &mut HashMap<String, String>) {
    let mut own = vec![
        ("container-type", "sandbox".to_owned()),
        ("sandbox-log-directory", pod.log_directory.clone()),
    ];
    let resources = pod
        .linux
        .as_ref()
        .and_then(|linux| linux.resources.as_ref());
    if let Some(resources) = resources {
        own.extend([
            ("sandbox-cpu-period", resources.cpu_period.to_string()),
            ("sandbox-cpu-quota", resources.cpu_quota.to_string()),
            ("sandbox-cpu-shares", resources.cpu_shares.to_string()),
            (
                "sandbox-memory",
                resources.memory_limit_in_bytes.to_string(),
            ),
        ]);
    }
    let own = own.into_iter();
    all.extend(own.map(|(key, value)| (format!("{OWN}{key}"), value)));
    all.remove(&format!("{OWN}container-name"));
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{allowed, sandbox_annotations};
    use criscope_cri::v1;

    #[test]
    fn a_sandbox_container_is_recognised_by_its_annotations() {
        let pod = v1::PodSandboxConfig {
            log_directory: "/l".to_owned(),
            linux: Some(v1::LinuxPodSandboxConfig {
                resources: Some(v1::LinuxContainerResources {
                    memory_limit_in_bytes: 7,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let key = |key: &str| format!("io.kubernetes.cri.{key}");
        let mut all = HashMap::from([
            (key("container-type"), "container".to_owned()),
            (key("container-name"), String::new()),
            (key("sandbox-id"), "id".to_owned()),
        ]);
        sandbox_annotations(&pod, &mut all);
        for (name, value) in [
            ("container-type", Some("sandbox")),
            ("container-name", None),
            ("sandbox-id", Some("id")),
            ("sandbox-log-directory", Some("/l")),
            ("sandbox-memory", Some("7")),
            ("sandbox-cpu-quota", Some("0")),
        ] {
            assert_eq!(all.get(&key(name)).map(String::as_str), value, "{name}");
        }
    }

    #[test]
    fn patterns_match_prefixes() {
        let list = ["a.b/*".to_owned(), "exact".to_owned()];
        for (key, expected) in [
            ("a.b/c", true),
            ("a.b", false),
            ("exact", true),
            ("exactly", false),
        ] {
            assert_eq!(allowed(key, &list), expected, "{key}");
        }
    }

    #[test]
    fn a_star_is_not_enough_for_what_reaches_the_node() {
        let all = ["*".to_owned()];
        let some = ["run.oci.*".to_owned(), "io.kubernetes.cri.*".to_owned()];
        let one = ["run.oci.hooks.stdout".to_owned()];
        for (key, list, expected) in [
            ("example.com/a", &all[..], true),
            ("run.oci.hooks.stdout", &all, false),
            ("run.oci.seccomp_bpf_data", &all, false),
            ("org.systemd.property.Slice", &all, false),
            ("io.katacontainers.config.hypervisor.path", &all, false),
            ("krun.use_passt", &all, false),
            ("io.kubernetes.cri-o.SandboxID", &all, false),
            ("io.kubernetes.cri-o.ContainerType", &some, false),
            ("io.kubernetes.docker.type", &all, false),
            ("io.kubernetes.sandbox.id", &all, false),
            ("io.kubernetes.lxcfs.enabled", &all, true),
            ("run.oci.handler", &some, true),
            ("run.oci.hooks.stdout", &one, true),
            ("run.oci.hooks.stderr", &one, false),
            ("io.kubernetes.cri.container-type", &all, false),
            ("io.kubernetes.cri.container-type", &some, false),
        ] {
            assert_eq!(allowed(key, list), expected, "{key} {list:?}");
        }
    }
}
