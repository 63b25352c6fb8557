//! Removes the objects of a failed or interrupted run. The runtime is asked for them by label: an aborted call may have
//! created some.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::cri::CanaryClient;
use super::flow::{CreatedObjects, remove_image, remove_sandbox, stop_sandbox};
use super::pod;
use super::steps::image_status;
use super::timeline::StepError;
use super::{LeftoverObject, SmokeOptions};
use crate::cri::v1::{ListPodSandboxRequest, PodSandboxFilter};

/// How long to wait for objects of a call without an answer.
const LATE_OBJECTS_WAIT: Duration = Duration::from_secs(2);
/// How long a failing removal is retried.
const REMOVAL_RETRY_TIME: Duration = Duration::from_secs(10);
/// Interval between retries.
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Removes sandboxes with their containers, then the image. Attempts all of it, and reports failures.
pub(super) async fn remove_all(
    cri: &CanaryClient,
    run: &str,
    made: &mut CreatedObjects,
) -> Result<((), String), StepError> {
    let mut removed = Vec::new();
    let mut failed = Vec::new();
    if made.sandbox_asked {
        let may_come = made.sandbox_may_come.load(Ordering::Relaxed);
        match remove_sandboxes(cri, run, may_come).await {
            Ok(0) => made.forget_sandbox(),
            Ok(count) => {
                removed.push(format!("{count} pod"));
                made.forget_sandbox();
            }
            Err(error) => failed.push(error),
        }
    }
    if let Some(reference) = made.own_image.clone() {
        let may_come = made.image_may_come.load(Ordering::Relaxed);
        match remove_own_image(cri, &reference, may_come).await {
            Ok(found) => {
                removed.extend(found.then(|| "the image".to_owned()));
                made.own_image = None;
            }
            Err(error) => failed.push(error),
        }
    }
    if let Some(first) = failed.into_iter().next() {
        return Err(first);
    }
    let word = if removed.is_empty() {
        "nothing to remove".to_owned()
    } else {
        format!("removed {}", removed.join(" and "))
    };
    Ok(((), word))
}

/// Stops and removes every sandbox of this run, and returns their number.
async fn remove_sandboxes(
    cri: &CanaryClient,
    run: &str,
    may_come: bool,
) -> Result<usize, StepError> {
    let start = Instant::now();
    let found = loop {
        let found = list(cri, run).await?;
        if !found.is_empty() || !may_come || start.elapsed() >= LATE_OBJECTS_WAIT {
            break found;
        }
        sleep(REMOVAL_RETRY_INTERVAL).await;
    };
    for sandbox in &found {
        remove_one(cri, sandbox).await?;
    }
    Ok(found.len())
}

/// Stops and removes a sandbox. Retried while there is time: an aborted call may keep the container in a state ("starting")
/// in which it cannot be removed.
async fn remove_one(cri: &CanaryClient, sandbox: &str) -> Result<(), StepError> {
    let start = Instant::now();
    loop {
        let removed = async {
            stop_sandbox(cri, sandbox).await?;
            remove_sandbox(cri, sandbox).await
        };
        match removed.await {
            Err(_) if start.elapsed() < REMOVAL_RETRY_TIME => sleep(REMOVAL_RETRY_INTERVAL).await,
            ended => return ended,
        }
    }
}

/// Removes the image if it exists, and returns whether it did. A pull that still runs may bring it back once.
async fn remove_own_image(
    cri: &CanaryClient,
    reference: &str,
    may_come: bool,
) -> Result<bool, StepError> {
    let start = Instant::now();
    let mut removed = false;
    loop {
        let (present, _) = image_status(cri, reference).await?;
        if removed && present.is_some() && start.elapsed() >= REMOVAL_RETRY_TIME {
            return Err(StepError::check(format!(
                "the runtime still has the image {reference} after its removal"
            )));
        }
        if present.is_some() {
            remove_image(cri, reference).await?;
            removed = true;
        } else if removed || !may_come || start.elapsed() >= LATE_OBJECTS_WAIT {
            return Ok(removed);
        }
        sleep(REMOVAL_RETRY_INTERVAL).await;
    }
}

async fn list(cri: &CanaryClient, run: &str) -> Result<Vec<String>, StepError> {
    let request = cri.request(ListPodSandboxRequest {
        filter: Some(PodSandboxFilter {
            label_selector: pod::labels(run),
            ..Default::default()
        }),
    });
    let answer = cri.runtime().list_pod_sandbox(request).await?.into_inner();
    Ok(answer.items.into_iter().map(|item| item.id).collect())
}

impl CreatedObjects {
    fn forget_sandbox(&mut self) {
        self.sandbox_asked = false;
        self.sandbox = None;
        self.container = None;
    }

    /// Returns whether the runtime has any object of the run.
    pub(super) fn anything(&self) -> bool {
        self.sandbox_asked || self.own_image.is_some()
    }

    /// The objects that remain.
    pub(super) fn left(&self, options: &SmokeOptions) -> Vec<LeftoverObject> {
        let run = &options.run;
        let crictl = format!(
            "crictl --runtime-endpoint unix://{}",
            options.socket.display()
        );
        let mut left = Vec::new();
        match &self.sandbox {
            Some(id) => left.push(LeftoverObject {
                what: format!("pod sandbox {id}"),
                remove: format!("{crictl} rmp -f {id}"),
            }),
            None if self.sandbox_asked => left.push(LeftoverObject {
                what: format!("perhaps a pod with the label {}={run}", pod::RUN_LABEL),
                remove: format!(
                    "{crictl} pods -q --label {}={run} | xargs -r {crictl} rmp -f",
                    pod::RUN_LABEL
                ),
            }),
            None => {}
        }
        left.extend(self.own_image.iter().map(|image| LeftoverObject {
            what: format!("image {image}"),
            remove: format!("{crictl} rmi {image}"),
        }));
        left.extend(self.log_dir.iter().map(|logs| LeftoverObject {
            what: format!("directory {}", logs.display()),
            remove: format!("rm -r {}", logs.display()),
        }));
        left.extend(self.cgroup.left());
        left
    }
}
