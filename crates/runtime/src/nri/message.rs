//! Pods and containers as plugins see them: the fields that containerd fills.

use std::collections::BTreeMap;
use std::sync::Arc;

use criscope_linux::namespace::Kind;
use criscope_nri::api::{
    self, Container, Image, LinuxContainer, LinuxNamespace, LinuxPodSandbox, OptionalInt,
    PodSandbox, SecurityProfile,
};
use serde::Deserialize;
use serde_json::Value;

use super::resources::from_cri;
use crate::Runtime;
use crate::container::read_spec_json;
use crate::store::{self, ContainerRecord, ContainerState, SandboxRecord};
use criscope_cri::v1::security_profile::ProfileType;

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
    let mut annotations: BTreeMap<_, _> = read(&spec["annotations"]);
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
        args: read(&process["args"]),
        env: read(&process["env"]),
        mounts: read(&spec["mounts"]),
        hooks: read(&spec["hooks"]),
        linux: Some(linux(record, spec)),
        pid: record.pid,
        rlimits: read(&process["rlimits"]),
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
        user: Some(read(&process["user"])),
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

/// Reads a part of a specification; one that is not there is empty.
fn read<T: for<'a> Deserialize<'a> + Default>(part: &Value) -> T {
    T::deserialize(part).unwrap_or_default()
}

fn linux(record: &ContainerRecord, spec: &Value) -> LinuxContainer {
    // No request asks for a priority of input and output or a scheduler, so that only plugins can have set them.
    let mut linux: LinuxContainer = read(&spec["linux"]);
    linux.resources.get_or_insert_default();
    if let Some(rdt) = &mut linux.rdt {
        rdt.schemata.get_or_insert_default();
    }
    let score = spec["process"]["oomScoreAdj"].as_i64();
    linux.oom_score_adj = score.map(|value| OptionalInt { value });
    linux.seccomp_profile = seccomp_profile(record);
    linux
}

fn seccomp_profile(record: &ContainerRecord) -> Option<SecurityProfile> {
    let profile = record.config.security_context()?.seccomp.as_ref()?;
    Some(SecurityProfile {
        profile_type: match ProfileType::try_from(profile.profile_type) {
            Ok(ProfileType::Unconfined) => api::security_profile::ProfileType::Unconfined,
            Ok(ProfileType::Localhost) => api::security_profile::ProfileType::Localhost,
            _ => api::security_profile::ProfileType::RuntimeDefault,
        } as i32,
        localhost_ref: profile.localhost_ref.clone(),
    })
}
