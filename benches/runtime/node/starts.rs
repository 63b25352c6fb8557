//! Starts and ends of pods, ten at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::cri::{Cri, Pod};
use crate::crowd::{AT_A_TIME, all};
use crate::error::Result;

/// Pods that were started, and how long it took.
pub(super) struct Started {
    pub(super) pods: Vec<Pod>,
    took: Duration,
}

impl Started {
    /// In a second.
    pub(super) fn rate(&self) -> f64 {
        self.pods.len() as f64 / self.took.as_secs_f64()
    }
}

/// Starts pods with a container each, numbered from `first`.
///
/// # Errors
/// If a call fails; the same for [`end`].
pub(super) async fn fill(cri: &Cri, first: usize, count: usize) -> Result<Started> {
    let next = Arc::new(AtomicUsize::new(first));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (mut cri, next) = (cri.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let mut pods = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + count {
                    return Ok(pods);
                }
                let pod = cri.run(&format!("full-{number}")).await?;
                cri.start(&pod, "main").await?;
                pods.push(pod);
            }
        });
    }
    let pods = all(tasks).await?.into_iter().flatten().collect();
    Ok(Started {
        pods,
        took: begin.elapsed(),
    })
}

/// Stops and removes pods.
#[allow(clippy::missing_errors_doc)]
pub(super) async fn end(cri: &Cri, pods: Vec<Pod>) -> Result<()> {
    let pods = Arc::new(Mutex::new(pods));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (mut cri, pods) = (cri.clone(), Arc::clone(&pods));
        tasks.spawn(async move {
            loop {
                let Some(pod) = pods.lock().await.pop() else {
                    return Ok(());
                };
                cri.end(pod).await?;
            }
        });
    }
    all(tasks).await.map(|_| ())
}
