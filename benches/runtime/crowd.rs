//! Many pods, ten concurrently, each from its first call to its last.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::bare::{Bare, Prepared};
use crate::cri::Cri;
use crate::error::{Error, Result};
use crate::process::adopt_orphans;
use crate::rounds::Side;
use crate::stats::Spread;

/// Concurrent pods.
pub(crate) const AT_A_TIME: usize = 10;

/// Duration of one side.
#[derive(Debug, Serialize)]
pub(crate) struct Crowd {
    pub(crate) side: &'static str,
    /// Of all pods, in seconds.
    pub(crate) seconds: Spread,
    /// Relative to the bare calls in the same round.
    pub(crate) factor: Spread,
}

/// The name of the bare calls.
pub(crate) const BARE: &str = "bare calls";

/// Runs rounds in which each side starts and stops many pods.
///
/// # Errors
/// If a call fails.
pub(crate) async fn run(
    bare: &Arc<Bare>,
    sides: &[Side],
    cgroup: &str,
    rounds: usize,
    pods: usize,
) -> Result<Vec<Crowd>> {
    let mut seen: Vec<Vec<f64>> = Vec::new();
    for number in 0..rounds {
        let name = format!("crowd-{number}");
        let mut took = vec![bare_crowd(bare, &name, cgroup, pods).await?];
        for side in sides {
            took.push(crowd(&side.cri, &name, pods).await?);
        }
        seen.push(took.iter().map(Duration::as_secs_f64).collect());
    }
    let names = [BARE].into_iter().chain(sides.iter().map(|side| side.name));
    Ok(names
        .enumerate()
        .map(|(at, side)| Crowd {
            side,
            seconds: Spread::of(seen.iter().map(|took| took[at])),
            factor: Spread::of(seen.iter().map(|took| took[at] / took[0])),
        })
        .collect())
}

/// Lives of many pods.
///
/// # Errors
/// If a call fails; the same for the bare calls.
pub(crate) async fn crowd(cri: &Cri, name: &str, pods: usize) -> Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (mut cri, next, name) = (cri.clone(), Arc::clone(&next), name.to_owned());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= pods {
                    return Ok(());
                }
                let pod = cri.run(&format!("{name}-{number}")).await?;
                let container = cri.start(&pod, "main").await?;
                cri.remove(container).await?;
                cri.end(pod).await?;
            }
        });
    }
    all(tasks).await?;
    Ok(begin.elapsed())
}

/// The bare calls of as many.
#[allow(clippy::missing_errors_doc)]
pub(crate) async fn bare_crowd(
    bare: &Arc<Bare>,
    name: &str,
    cgroup: &str,
    pods: usize,
) -> Result<Duration> {
    let mut ready = Vec::new();
    for number in 0..pods {
        ready.push(bare.prepare(&format!("{name}-{number}"), cgroup).await?);
    }
    let ready: Arc<Vec<Prepared>> = Arc::new(ready);
    adopt_orphans(true)?;
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (bare, ready, next) = (Arc::clone(bare), Arc::clone(&ready), Arc::clone(&next));
        tasks.spawn_blocking(move || {
            while let Some(pod) = ready.get(next.fetch_add(1, Ordering::Relaxed)) {
                bare.live(pod)?;
            }
            Ok(())
        });
    }
    let done = all(tasks).await;
    let took = begin.elapsed();
    adopt_orphans(false)?;
    for pod in Arc::into_inner(ready).into_iter().flatten() {
        bare.clear(pod).await?;
    }
    done.map(|_| took)
}

/// What all tasks return.
///
/// # Errors
/// That of the first that fails.
pub(crate) async fn all<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut done = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let failed = |error| Error::Setup(format!("a task of the benchmark: {error}"));
        done.push(task.map_err(failed)??);
    }
    Ok(done)
}
