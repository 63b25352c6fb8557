//! Sandboxes and containers as containerd's API describes them, for cAdvisor, which asks containerd and not the CRI.
//!
//! cAdvisor takes an id from the last part of a cgroup's path and asks for the container, then for its task. It reads labels,
//! image, and the pid, whose `/proc/PID/net` it reads if the label `io.cri-containerd.kind` is `sandbox`.
//! `docs/adr/0068` says why it gets no more than that.

use std::collections::HashMap;
use std::sync::Arc;

use criscope_wire::services::{Container, Process, Status};
use criscope_wire::{Any, Timestamp};
use serde_json::json;

use super::Runtime;
use super::error::{Error, Result, What};
use super::store::{self, ContainerRecord, ContainerState, Sandbox, SandboxRecord, SandboxState};

/// The namespace of the CRI in containerd.
pub(crate) const NAMESPACE: &str = "k8s.io";

/// Length of an id.
const ID: usize = 64;

/// The label that tells sandboxes from containers.
const KIND: &str = "io.cri-containerd.kind";

/// The type of a specification.
const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// The image of a sandbox, which has none. Not empty, because dashboards drop series without an image: those of cgroups that
/// are no containers.
const SANDBOX_IMAGE: &str = "criscope-sandbox";

impl Runtime {
    /// The container or sandbox of this complete id.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Unavailable`] if its record cannot be read.
    pub(super) fn containerd_container(&self, id: &str) -> Result<Container> {
        match self.shown_container(id)? {
            Some(container) => Ok(container_of(&container.record())),
            None => Ok(sandbox_of(&self.shown_sandbox(id)?.record())),
        }
    }

    /// The process of the container or sandbox of this complete id.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such object, or it has no process; the error of the shim.
    pub(super) async fn containerd_task(&self, id: &str) -> Result<Process> {
        if let Some(container) = self.shown_container(id)? {
            return task_of(&container.record()).ok_or_else(|| no_task(id));
        }
        let sandbox = self.shown_sandbox(id)?;
        let stopped = sandbox.record().state == SandboxState::Stopped;
        let Some(shim) = sandbox.shim().filter(|_| !stopped) else {
            return Err(no_task(id));
        };
        match shim.state().await?.pid_namespace {
            0 => Err(no_task(id)),
            pid => Ok(process(id, pid, Status::Running)),
        }
    }

    fn shown_container(&self, id: &str) -> Result<Option<Arc<store::Container>>> {
        // The CRI also accepts prefixes of ids, containerd does not.
        if id.len() == ID {
            self.store.containers.find(id)
        } else {
            Err(Error::not_found(What::Container, id))
        }
    }

    /// A sandbox, also one that is being created: its cgroup may be seen already. Not one in the host network: its counters
    /// would be those of the node, which belong to no pod.
    fn shown_sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        // In this order: a sandbox leaves the first map once it is in the second.
        let found = match self.store.making.find(id)? {
            Some(sandbox) => sandbox,
            None => self.store.sandboxes.get(id)?,
        };
        if found.record().host_network() {
            Err(Error::not_found(What::Container, id))
        } else {
            Ok(found)
        }
    }
}

/// A time in nanoseconds since 1970; `None` for 0, which is no time.
fn timestamp(nanos: i64) -> Option<Timestamp> {
    const SECOND: i64 = 1_000_000_000;
    (nanos != 0).then(|| Timestamp {
        seconds: nanos.div_euclid(SECOND),
        nanos: i32::try_from(nanos.rem_euclid(SECOND)).unwrap_or_default(),
    })
}

fn no_task(id: &str) -> Error {
    Error::not_found(What::Task, id)
}

fn process(id: &str, pid: u32, status: Status) -> Process {
    Process {
        id: id.to_owned(),
        pid,
        status: status.into(),
        ..Process::default()
    }
}

/// The task of a container; `None` before the OCI runtime has created its process.
fn task_of(record: &ContainerRecord) -> Option<Process> {
    let status = match record.state {
        ContainerState::Making | ContainerState::Created => return None,
        ContainerState::Starting => Status::Created,
        ContainerState::Running => Status::Running,
        ContainerState::Exited => Status::Stopped,
    };
    if status != Status::Stopped {
        return (record.pid != 0).then(|| process(&record.id, record.pid, status));
    }
    // Without its pid, which may belong to another process by now.
    let code = record.exit.as_ref().map_or(0, |exit| exit.code);
    Some(Process {
        exit_status: u32::try_from(code).unwrap_or_default(),
        exited_at: timestamp(record.finished_at),
        ..process(&record.id, 0, status)
    })
}

fn container_of(record: &ContainerRecord) -> Container {
    Container {
        labels: labels(&record.config.labels, "container"),
        image: record.image_name.clone(),
        sandbox: record.sandbox.clone(),
        ..described(&record.id, record.created_at)
    }
}

fn sandbox_of(record: &SandboxRecord) -> Container {
    Container {
        labels: labels(&record.config.labels, "sandbox"),
        image: SANDBOX_IMAGE.to_owned(),
        ..described(&record.id, record.created_at)
    }
}

fn described(id: &str, created_at: i64) -> Container {
    Container {
        id: id.to_owned(),
        spec: Some(spec()),
        created_at: timestamp(created_at),
        updated_at: timestamp(created_at),
        ..Container::default()
    }
}

/// The labels of the kubelet, and the kind, which pods cannot set.
fn labels<'a>(
    given: impl IntoIterator<Item = (&'a String, &'a String)>,
    kind: &str,
) -> HashMap<String, String> {
    let given = given
        .into_iter()
        .map(|(key, value)| (key.clone(), value.clone()));
    given.chain([(KIND.to_owned(), kind.to_owned())]).collect()
}

/// A specification without environment, arguments and mounts, which may hold secrets. cAdvisor reads the environment alone, and
/// only with an option; it fails without a `process`.
fn spec() -> Any {
    let spec =
        json!({ "ociVersion": "1.0.2", "process": { "user": { "uid": 0, "gid": 0 }, "cwd": "/" } });
    Any {
        type_url: SPEC.to_owned(),
        value: spec.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Exit;
    use criscope_cri::v1;

    fn record(state: ContainerState) -> ContainerRecord {
        ContainerRecord {
            id: "c".into(),
            state,
            pid: 77,
            created_at: 1_500_000_000,
            finished_at: 2_500_000_001,
            exit: Some(Exit {
                code: 137,
                ..Exit::default()
            }),
            image_name: "docker.io/library/busybox:1".into(),
            config: v1::ContainerConfig {
                labels: [("io.kubernetes.pod.name", "web"), (KIND, "sandbox")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
                envs: vec![v1::KeyValue {
                    key: "TOKEN".into(),
                    value: "hunter2".into(),
                }],
                args: vec!["--password=hunter2".into()],
                ..Default::default()
            },
            ..ContainerRecord::default()
        }
    }

    #[test]
    fn a_container_has_the_labels_of_the_kubelet_and_no_secret() {
        let shown = container_of(&record(ContainerState::Running));
        assert_eq!(shown.labels["io.kubernetes.pod.name"], "web");
        assert_eq!(shown.labels[KIND], "container", "the kind cannot be forged");
        assert_eq!(shown.image, "docker.io/library/busybox:1");
        let at = shown.created_at.expect("a time");
        assert_eq!((at.seconds, at.nanos), (1, 500_000_000));
        assert!(!format!("{shown:?}").contains("hunter2"));
        let spec = shown.spec.expect("a specification");
        let value = String::from_utf8(spec.value).expect("JSON");
        assert!(!value.contains("hunter2"), "{value}");
        let spec: oci_spec::runtime::Spec = serde_json::from_str(&value).expect("valid");
        assert!(spec.process().is_some(), "cAdvisor fails without");
    }

    #[test]
    fn a_task_exists_from_the_creation_of_its_process() {
        let task = |state| task_of(&record(state));
        assert_eq!(task(ContainerState::Making), None);
        assert_eq!(task(ContainerState::Created), None);
        let starting = task(ContainerState::Starting).expect("a task");
        assert_eq!((starting.pid, starting.status()), (77, Status::Created));
        let running = task(ContainerState::Running).expect("a task");
        assert_eq!((running.pid, running.status()), (77, Status::Running));
        let early = ContainerRecord {
            pid: 0,
            ..record(ContainerState::Starting)
        };
        assert_eq!(task_of(&early), None);
    }

    #[test]
    fn a_task_that_has_ended_has_its_code_and_no_pid() {
        let ended = task_of(&record(ContainerState::Exited)).expect("a task");
        assert_eq!((ended.pid, ended.status()), (0, Status::Stopped));
        assert_eq!(ended.exit_status, 137);
        let at = ended.exited_at.expect("a time");
        assert_eq!((at.seconds, at.nanos), (2, 500_000_001));
    }
}
