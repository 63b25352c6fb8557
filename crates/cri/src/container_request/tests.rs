//! What is kept of requests for containers.

use prost::Message;

use super::volumes::{MAX_MOUNTS, is_below};
use super::*;
use crate::v1;

fn mount(path: &str, host: &str) -> v1::Mount {
    v1::Mount {
        container_path: path.into(),
        host_path: host.into(),
        ..Default::default()
    }
}

#[test]
fn mount_options_restrict_a_volume() {
    for (options, read_only, no_exec) in [
        (&["noexec"][..], false, true),
        (&["nosuid", "ro"], true, false),
        (&[], false, false),
    ] {
        let options = options.iter().map(|&option| option.to_owned());
        let mut volume = mount("/data", "/srv");
        volume.mount_options = options.collect();
        let request = read(v1::ContainerConfig {
            mounts: vec![volume],
            ..Default::default()
        });
        let found = &request.mounts[0];
        assert_eq!((found.read_only, found.no_exec), (read_only, no_exec));
    }
}

fn of_kubelet(path: &str, plugin: &str) -> v1::Mount {
    let host = format!("/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~{plugin}/secret-name");
    mount(path, &host)
}

fn read(config: v1::ContainerConfig) -> ContainerRequest {
    let request = v1::CreateContainerRequest {
        config: Some(config),
        ..Default::default()
    };
    container_request(&request.encode_to_vec()).expect("a configuration")
}

fn secured(context: v1::LinuxContainerSecurityContext, port: &str) -> ContainerRequest {
    let ports = format!("[{{\"containerPort\":{port},\"protocol\":\"TCP\"}}]");
    read(v1::ContainerConfig {
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(context),
            ..Default::default()
        }),
        annotations: [("io.kubernetes.container.ports".to_owned(), ports)].into(),
        ..Default::default()
    })
}

#[test]
fn limits_are_read() {
    let resources = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 1000,
        memory_limit_in_bytes: 24 << 20,
        ..Default::default()
    };
    let request = read(v1::ContainerConfig {
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources.clone()),
            ..Default::default()
        }),
        ..Default::default()
    });
    assert_eq!(request.cpu_limit(), Some(10));
    assert_eq!(request.memory_limit(), Some(24 << 20));
    let update = v1::UpdateContainerResourcesRequest {
        container_id: "c1".into(),
        linux: Some(v1::LinuxContainerResources {
            cpu_quota: -1,
            ..resources
        }),
        ..Default::default()
    };
    let limits = updated_limits(&update.encode_to_vec());
    assert_eq!((limits.cpu_millis, limits.memory), (0, 24 << 20));
    let mut updated = request.clone();
    updated.update(limits);
    assert_eq!(updated, request);
}

#[test]
fn a_request_without_limits_says_so() {
    let request = read(v1::ContainerConfig::default());
    assert_eq!((request.cpu_millis, request.memory), (Some(0), Some(0)));
    assert_eq!((request.cpu_limit(), request.memory_limit()), (None, None));
    assert_eq!(container_request(b"\xff\xff"), None);
}

#[test]
fn mounts_are_kept_without_names_and_sources() {
    let plain = (0..20).map(|n| of_kubelet(&format!("/data/{n}"), "csi"));
    let mut mounts: Vec<_> = plain.collect();
    mounts.extend([
        mount("/etc/hosts", "/var/lib/kubelet/pods/u-1/etc-hosts"),
        mount(
            "/dev/termination-log",
            "/var/lib/kubelet/pods/u-1/containers/app/0a",
        ),
        of_kubelet("/var/run/secrets/kubernetes.io/serviceaccount", "projected"),
        of_kubelet("/bin", "empty-dir"),
        of_kubelet("/opt/app", "configmap"),
        mount("/usr/lib/", "/srv/lib"),
    ]);
    let request = read(v1::ContainerConfig {
        command: vec!["/opt/app/run".into(), "--token=hunter2".into()],
        mounts,
        ..Default::default()
    });
    let kept: Vec<_> = request.mounts.iter().take(4).collect();
    let paths: Vec<_> = kept
        .iter()
        .map(|mount| (&*mount.path, mount.kind))
        .collect();
    assert_eq!(
        paths,
        [
            ("/bin", VolumeKind::EmptyDir),
            ("/opt/app", VolumeKind::ConfigMap),
            ("/usr/lib/", VolumeKind::HostPath),
            ("/data/0", VolumeKind::Other)
        ]
    );
    assert_eq!(request.mounts.len(), MAX_MOUNTS);
    let over = request.volume_over("/opt/app/run").expect("a volume");
    assert_eq!((&*over.path, over.holds_command), ("/opt/app", true));
    // The files of a ConfigMap are wanted where they are.
    let hiding = request.hiding_volume().expect("a volume");
    assert_eq!((&*hiding.path, hiding.holds_command), ("/bin", false));
    let json = serde_json::to_string(&request).expect("json");
    assert!(
        !json.contains("hunter2") && !json.contains("secret-name"),
        "{json}"
    );
    assert_eq!(
        serde_json::from_str::<ContainerRequest>(&json).expect("read"),
        request
    );
}

#[test]
fn a_volume_hides_what_lies_below_it_and_behind_links() {
    for (path, program, hides) in [
        ("/bin", "/bin/sh", true),
        ("/bin/", "/bin/sh", true),
        ("/bin", "/usr/bin/env", true),
        ("/usr/bin", "/bin/sh", true),
        ("/usr", "/bin/sh", true),
        ("/usr", "/opt/run", false),
        ("/app", "/app/run", true),
        ("/app", "/app", false),
        ("/app", "/apps/run", false),
        ("/bin", "/sbin/init", false),
        ("/bin", "/app/bin/run", false),
        ("/", "/bin/sh", false),
    ] {
        assert_eq!(
            is_below(program.as_bytes(), path),
            hides,
            "{path} {program}"
        );
    }
}

#[test]
fn a_low_port_needs_a_capability() {
    let capability = |add: &str, drop: &str| v1::Capability {
        add_capabilities: vec![add.into()],
        drop_capabilities: vec![drop.into()],
        ..Default::default()
    };
    let context = v1::LinuxContainerSecurityContext {
        run_as_user: Some(v1::Int64Value { value: 1000 }),
        ..Default::default()
    };
    assert_eq!(secured(context.clone(), "80").forbidden_port, Some(80));
    assert_eq!(secured(context, "8080").forbidden_port, None);
    for (add, drop, forbidden) in [
        ("", "", None),
        ("", "all", Some(443)),
        ("NET_BIND_SERVICE", "ALL", None),
        ("CHOWN", "ALL", Some(443)),
    ] {
        let context = v1::LinuxContainerSecurityContext {
            capabilities: Some(capability(add, drop)),
            ..Default::default()
        };
        let request = secured(context, "443");
        assert_eq!(request.forbidden_port, forbidden, "{add} {drop}");
        assert_eq!(request.drops_all_capabilities, !drop.is_empty());
    }
}

#[test]
fn a_damaged_request_says_nothing_and_does_not_fail() {
    let request = v1::CreateContainerRequest {
        config: Some(v1::ContainerConfig {
            command: vec!["/bin/sh".into()],
            mounts: vec![of_kubelet("/bin", "empty-dir")],
            ..Default::default()
        }),
        ..Default::default()
    };
    let whole = request.encode_to_vec();
    for end in 0..whole.len() {
        let _ = container_request(&whole[..end]);
    }
}

#[test]
fn the_limits_of_a_pod_are_in_the_request_for_its_sandbox() {
    let resources = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 1000,
        ..Default::default()
    };
    let mut request = v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            linux: Some(v1::LinuxPodSandboxConfig {
                resources: Some(resources),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let limits = sandbox_limits(&request.encode_to_vec(), 1).expect("limits");
    assert_eq!(limits.cpu_millis, 10);
    request.config = Some(v1::PodSandboxConfig::default());
    assert_eq!(sandbox_limits(&request.encode_to_vec(), 1), None);
}
