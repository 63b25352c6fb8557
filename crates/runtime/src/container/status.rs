//! ContainerStatus.

use std::collections::HashMap;
use std::fs;

use serde_json::{Value, json};

use super::bundle::SPEC;
use super::list::state_of;
use crate::Runtime;
use crate::error::Result;
use crate::store::{Container, ContainerRecord, ContainerState};
use criscope_cri::v1;

impl Runtime {
    /// Returns the status of a container.
    ///
    /// # Errors
    /// If the container does not exist.
    pub async fn container_status(
        &self,
        request: &v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse> {
        let container = self.store.containers.get(&request.container_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            info.insert("info".to_owned(), container_info(&container).await?);
        }
        Ok(v1::ContainerStatusResponse {
            status: Some(self.container_status_of(&container)),
            info,
        })
    }

    pub(crate) fn container_status_of(&self, container: &Container) -> v1::ContainerStatus {
        let record = container.record();
        let exit = record.exit.clone().unwrap_or_default();
        let (uid, gid, groups) = record.user.clone();
        v1::ContainerStatus {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: state_of(&record) as i32,
            created_at: record.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            exit_code: exit.code,
            image: Some(image(&record)),
            image_ref: record.image_ref.clone(),
            reason: exit.reason,
            message: exit.message,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            mounts: mounts(&record),
            log_path: record.log.display().to_string(),
            resources: Some(v1::ContainerResources {
                linux: Some(record.resources.clone()),
                windows: None,
            }),
            image_id: record.image_id.clone(),
            user: Some(v1::ContainerUser {
                linux: Some(v1::LinuxContainerUser {
                    uid: uid.into(),
                    gid: gid.into(),
                    supplemental_groups: groups.into_iter().map(Into::into).collect(),
                }),
            }),
            stop_signal: signal_of(&record) as i32,
        }
    }
}

/// The process of a container, 0 if it has none: the number of one that has ended may be that of another by now.
fn live_pid(record: &ContainerRecord) -> u32 {
    match record.state {
        ContainerState::Starting | ContainerState::Running => record.pid,
        _ => 0,
    }
}

/// The requested image as every handler has it, since there is one store. If it had a handler, the kubelet with its gate
/// `RuntimeClassInImageCriApi` would not find it among those of ListImages, and take that image for unused.
pub(super) fn without_handler(record: &ContainerRecord) -> v1::ImageSpec {
    let mut image = record.config.image.clone().unwrap_or_default();
    image.runtime_handler.clear();
    image
}

/// The requested image under its display name, which the kubelet shows.
fn image(record: &ContainerRecord) -> v1::ImageSpec {
    let mut image = without_handler(record);
    if !record.image_name.is_empty() {
        image.image.clone_from(&record.image_name);
    }
    image
}

/// The requested mounts; image mounts with the image id.
fn mounts(record: &ContainerRecord) -> Vec<v1::Mount> {
    let mut mounts = record.config.mounts.clone();
    for mount in &mut mounts {
        let volume = record.image_volumes.get(&mount.container_path);
        if let (Some(volume), Some(image)) = (volume, &mut mount.image) {
            image.image_ref.clone_from(&volume.image_id);
        }
    }
    mounts
}

/// The stop signal as a value of the CRI's enum, whose numbers are not those of the kernel.
fn signal_of(record: &ContainerRecord) -> v1::Signal {
    let named = (1..=65).filter_map(|number| v1::Signal::try_from(number).ok());
    let wanted = record.stop_signal;
    let mut same = named.filter(|signal| super::stop_signal::number_of(*signal) == Some(wanted));
    same.next().unwrap_or(v1::Signal::RuntimeDefault)
}

/// The verbose info shown by `crictl inspect`, with the names of containerd and CRI-O. The kubelet's tests read `pid` and
/// `runtimeSpec`. The environment is included, as containerd and CRI-O include it: a CRI client can read it with ExecSync anyway.
async fn container_info(container: &Container) -> Result<String> {
    let record = container.record();
    let path = container.dir().join(SPEC);
    let reading = container.work(move || Ok(fs::read(path).ok()));
    let text = reading.await?;
    let spec: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
    let context = record.config.security_context();
    let info = json!({
        "sandboxID": record.sandbox,
        "pid": live_pid(&record),
        "privileged": context.is_some_and(|context| context.privileged),
        "runtimeHandler": record.handler,
        "config": record.config,
        "runtimeSpec": spec,
    });
    Ok(info.to_string())
}
