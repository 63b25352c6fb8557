//! Pods and containers as plugins see them: the fields that containerd fills.

use std::collections::BTreeMap;
use std::sync::Arc;

use criscope_linux::namespace::Kind;
use criscope_nri::api::{
    self, Container, Hook, Hooks, Image, LinuxContainer, LinuxDevice, LinuxDeviceCgroup,
    LinuxNamespace, LinuxNetDevice, LinuxPodSandbox, LinuxRdt, LinuxSeccomp, LinuxSeccompArg,
    LinuxSyscall, Mount, OptionalFileMode, OptionalInt, OptionalRepeatedString, OptionalString,
    OptionalUInt32, PodSandbox, PosixRlimit, SecurityProfile, User,
};
use serde_json::Value;

use super::resources::{from_cri, from_spec, list, signed, switch, text};
use crate::cri::v1::security_profile::ProfileType;
use crate::runtime::Runtime;
use crate::runtime::container::read_spec_json;
use crate::runtime::store::{self, ContainerRecord, ContainerState, SandboxRecord};

/// The namespaces of a pod by their types in specifications.
const NAMESPACES: [(Kind, &str); 5] = [
    (Kind::Net, "network"),
    (Kind::Ipc, "ipc"),
    (Kind::Uts, "uts"),
    (Kind::Pid, "pid"),
    (Kind::User, "user"),
];

impl Runtime {
    /// A pod. Looks for its pinned namespaces, which is a matter of microseconds.
    pub(super) fn nri_pod(&self, record: &SandboxRecord) -> PodSandbox {
        let metadata = record.config.metadata.clone().unwrap_or_default();
        let linux = record.config.linux.as_ref();
        let pinned = NAMESPACES.iter().filter_map(|(kind, typ)| {
            let path = self.pins.path(&record.id, *kind);
            path.exists().then(|| LinuxNamespace {
                r#type: (*typ).to_owned(),
                path: path.display().to_string(),
            })
        });
        let overhead = record.overhead.as_ref();
        let overhead = overhead.or_else(|| linux.and_then(|linux| linux.overhead.as_ref()));
        let resources = record.resources.as_ref();
        let resources = resources.or_else(|| linux.and_then(|linux| linux.resources.as_ref()));
        PodSandbox {
            id: record.id.clone(),
            name: metadata.name,
            uid: metadata.uid,
            namespace: metadata.namespace,
            labels: record.config.labels.clone().into_iter().collect(),
            annotations: record.config.annotations.clone().into_iter().collect(),
            runtime_handler: record.asked_handler.clone(),
            linux: Some(LinuxPodSandbox {
                pod_overhead: overhead.map(from_cri),
                pod_resources: resources.map(from_cri),
                cgroup_parent: record.cgroup_parent().to_owned(),
                namespaces: pinned.collect(),
                ..LinuxPodSandbox::default()
            }),
            pid: record.pid_namespace,
            ips: record
                .ip
                .iter()
                .chain(&record.additional_ips)
                .map(ToString::to_string)
                .collect(),
        }
    }

    /// A container, with the specification in its bundle if that can be read.
    pub(super) async fn nri_container(&self, container: &Arc<store::Container>) -> Container {
        let spec = read_spec_json(container).await.unwrap_or_default();
        message(&container.record(), &spec)
    }
}

/// A container with a specification.
pub(super) fn message(record: &ContainerRecord, spec: &Value) -> Container {
    let process = &spec["process"];
    let exit = record.exit.clone().unwrap_or_default();
    let mut annotations = map(&spec["annotations"]);
    annotations.extend(record.config.annotations.clone());
    let metadata = record.config.metadata.clone().unwrap_or_default();
    Container {
        id: record.id.clone(),
        pod_sandbox_id: record.sandbox.clone(),
        name: metadata.name,
        state: match record.state {
            ContainerState::Making => api::ContainerState::ContainerUnknown,
            ContainerState::Created | ContainerState::Starting => {
                api::ContainerState::ContainerCreated
            }
            ContainerState::Running => api::ContainerState::ContainerRunning,
            ContainerState::Exited => api::ContainerState::ContainerStopped,
        } as i32,
        labels: record.config.labels.clone().into_iter().collect(),
        annotations,
        args: list(&process["args"], text),
        env: list(&process["env"], text),
        mounts: list(&spec["mounts"], mount),
        hooks: hooks(&spec["hooks"]),
        linux: Some(linux(record, spec)),
        pid: record.pid,
        rlimits: list(&process["rlimits"], |one| PosixRlimit {
            r#type: text(&one["type"]),
            hard: one["hard"].as_u64().unwrap_or(0),
            soft: one["soft"].as_u64().unwrap_or(0),
        }),
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        exit_code: exit.code,
        status_reason: exit.reason,
        status_message: exit.message,
        cdi_devices: record
            .config
            .cdi_devices
            .iter()
            .map(|device| api::CdiDevice {
                name: device.name.clone(),
            })
            .collect(),
        user: Some(User {
            uid: number(&process["user"]["uid"]),
            gid: number(&process["user"]["gid"]),
            additional_gids: list(&process["user"]["additionalGids"], number),
        }),
        image: Some(Image {
            name: record.image_name.clone(),
            digest: digest(&record.image_ref),
            config_digest: record.image_id.clone(),
        }),
    }
}

/// The digest in an image reference; empty without one.
fn digest(reference: &str) -> String {
    let digest = reference.split_once('@').map(|(_, digest)| digest);
    digest.unwrap_or_default().to_owned()
}

fn linux(record: &ContainerRecord, spec: &Value) -> LinuxContainer {
    let (process, linux) = (&spec["process"], &spec["linux"]);
    LinuxContainer {
        namespaces: list(&linux["namespaces"], |one| LinuxNamespace {
            r#type: text(&one["type"]),
            path: text(&one["path"]),
        }),
        devices: list(&linux["devices"], device),
        resources: Some(from_spec(&linux["resources"])),
        oom_score_adj: process["oomScoreAdj"]
            .as_i64()
            .map(|value| OptionalInt { value }),
        cgroups_path: text(&linux["cgroupsPath"]),
        seccomp_profile: seccomp_profile(record),
        seccomp_policy: linux["seccomp"]
            .is_object()
            .then(|| seccomp_policy(&linux["seccomp"])),
        sysctl: map(&linux["sysctl"]),
        net_devices: linux["netDevices"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, one)| {
                let name = text(&one["name"]);
                (key.clone(), LinuxNetDevice { name })
            })
            .collect(),
        rdt: linux["intelRdt"].is_object().then(|| LinuxRdt {
            clos_id: linux["intelRdt"]["closID"]
                .as_str()
                .map(|value| OptionalString {
                    value: value.to_owned(),
                }),
            schemata: Some(OptionalRepeatedString {
                value: list(&linux["intelRdt"]["schemata"], text),
            }),
            enable_monitoring: switch(&linux["intelRdt"]["enableMonitoring"]),
            remove: false,
        }),
        // No request asks for these, so that only plugins can have set them.
        io_priority: None,
        scheduler: None,
    }
}

fn seccomp_profile(record: &ContainerRecord) -> Option<SecurityProfile> {
    let linux = record.config.linux.as_ref()?;
    let profile = linux.security_context.as_ref()?.seccomp.as_ref()?;
    Some(SecurityProfile {
        profile_type: match ProfileType::try_from(profile.profile_type) {
            Ok(ProfileType::Unconfined) => api::security_profile::ProfileType::Unconfined,
            Ok(ProfileType::Localhost) => api::security_profile::ProfileType::Localhost,
            _ => api::security_profile::ProfileType::RuntimeDefault,
        } as i32,
        localhost_ref: profile.localhost_ref.clone(),
    })
}

fn seccomp_policy(from: &Value) -> LinuxSeccomp {
    LinuxSeccomp {
        default_action: text(&from["defaultAction"]),
        default_errno: optional(&from["defaultErrnoRet"]),
        architectures: list(&from["architectures"], text),
        flags: list(&from["flags"], text),
        listener_path: text(&from["listenerPath"]),
        listener_metadata: text(&from["listenerMetadata"]),
        syscalls: list(&from["syscalls"], |one| LinuxSyscall {
            names: list(&one["names"], text),
            action: text(&one["action"]),
            errno_ret: optional(&one["errnoRet"]),
            args: list(&one["args"], |arg| LinuxSeccompArg {
                index: number(&arg["index"]),
                value: arg["value"].as_u64().unwrap_or(0),
                value_two: arg["valueTwo"].as_u64().unwrap_or(0),
                op: text(&arg["op"]),
            }),
        }),
    }
}

fn mount(from: &Value) -> Mount {
    Mount {
        destination: text(&from["destination"]),
        r#type: text(&from["type"]),
        source: text(&from["source"]),
        options: list(&from["options"], text),
    }
}

fn hooks(from: &Value) -> Option<Hooks> {
    from.is_object().then(|| Hooks {
        prestart: list(&from["prestart"], hook),
        create_runtime: list(&from["createRuntime"], hook),
        create_container: list(&from["createContainer"], hook),
        start_container: list(&from["startContainer"], hook),
        poststart: list(&from["poststart"], hook),
        poststop: list(&from["poststop"], hook),
    })
}

fn hook(from: &Value) -> Hook {
    Hook {
        path: text(&from["path"]),
        args: list(&from["args"], text),
        env: list(&from["env"], text),
        timeout: from["timeout"].as_i64().map(|value| OptionalInt { value }),
    }
}

fn device(from: &Value) -> LinuxDevice {
    LinuxDevice {
        path: text(&from["path"]),
        r#type: text(&from["type"]),
        major: from["major"].as_i64().unwrap_or(0),
        minor: from["minor"].as_i64().unwrap_or(0),
        file_mode: from["fileMode"].as_u64().map(|value| OptionalFileMode {
            value: value.try_into().unwrap_or(0),
        }),
        uid: optional(&from["uid"]),
        gid: optional(&from["gid"]),
    }
}

/// A rule of the devices cgroup.
pub(super) fn device_rule(from: &Value) -> LinuxDeviceCgroup {
    LinuxDeviceCgroup {
        allow: from["allow"].as_bool().unwrap_or(false),
        r#type: text(&from["type"]),
        major: signed(&from["major"]),
        minor: signed(&from["minor"]),
        access: text(&from["access"]),
    }
}

/// A map of texts.
pub(super) fn map(from: &Value) -> BTreeMap<String, String> {
    let entries = from.as_object().into_iter().flatten();
    entries
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

fn number(from: &Value) -> u32 {
    from.as_u64().and_then(|n| n.try_into().ok()).unwrap_or(0)
}

fn optional(from: &Value) -> Option<OptionalUInt32> {
    from.is_u64().then(|| OptionalUInt32 {
        value: number(from),
    })
}
