//! Removes what a run left that failed or was interrupted. What was made is asked of the runtime, by label: a call that
//! broke off may have made something all the same.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::cri::Cri;
use super::flow::{Made, remove_image, remove_sandbox, stop_sandbox};
use super::pod;
use super::timeline::StepError;
use crate::cri::v1::{ListPodSandboxRequest, PodSandboxFilter};

/// How long a sandbox is waited for that was asked for by a call that broke off.
const LATE: Duration = Duration::from_secs(2);

/// Removes sandboxes with their containers, then the image. Tries all of it, and tells what is left.
pub(super) async fn remove_all(
    cri: &Cri,
    run: &str,
    made: &mut Made,
) -> Result<((), String), StepError> {
    let mut removed = Vec::new();
    let mut failed = Vec::new();
    if made.sandbox_asked {
        match remove_sandboxes(cri, run, made.sandbox.is_none()).await {
            Ok(0) => made.forget_sandbox(),
            Ok(count) => {
                removed.push(format!("{count} pod"));
                made.forget_sandbox();
            }
            Err(error) => failed.push(error),
        }
    }
    if let Some(reference) = made.own_image.clone() {
        match remove_image(cri, &reference).await {
            Ok(()) => {
                removed.push("the image".to_owned());
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

/// Stops and removes every sandbox of this run, and gives their number.
async fn remove_sandboxes(cri: &Cri, run: &str, may_be_late: bool) -> Result<usize, StepError> {
    let start = Instant::now();
    let found = loop {
        let found = list(cri, run).await?;
        if !found.is_empty() || !may_be_late || start.elapsed() >= LATE {
            break found;
        }
        sleep(Duration::from_millis(100)).await;
    };
    for sandbox in &found {
        stop_sandbox(cri, sandbox).await?;
        remove_sandbox(cri, sandbox).await?;
    }
    Ok(found.len())
}

async fn list(cri: &Cri, run: &str) -> Result<Vec<String>, StepError> {
    let request = cri.request(ListPodSandboxRequest {
        filter: Some(PodSandboxFilter {
            label_selector: pod::labels(run),
            ..Default::default()
        }),
    });
    let answer = cri.runtime().list_pod_sandbox(request).await?.into_inner();
    Ok(answer.items.into_iter().map(|item| item.id).collect())
}

impl Made {
    fn forget_sandbox(&mut self) {
        self.sandbox_asked = false;
        self.sandbox = None;
        self.container = None;
    }

    /// Whether there is anything at the runtime to be removed.
    pub(super) fn anything(&self) -> bool {
        self.sandbox_asked || self.own_image.is_some()
    }

    /// What is still there, in words.
    pub(super) fn left(&self, run: &str) -> Vec<String> {
        let mut left = Vec::new();
        match &self.sandbox {
            Some(id) => left.push(format!("pod sandbox {id}")),
            None if self.sandbox_asked => left.push(format!(
                "perhaps a pod sandbox with the label {}={run}",
                pod::RUN_LABEL
            )),
            None => {}
        }
        left.extend(self.own_image.iter().map(|image| format!("image {image}")));
        left.extend(
            self.log_dir
                .iter()
                .map(|dir| format!("directory {}", dir.display())),
        );
        left
    }
}
