//! `criscope smoke`: a canary that runs one real pod through the CRI socket of any runtime, and shows the duration of each
//! step.
//!
//! A run needs no preparation and no network: the image is assembled from the machine's static busybox and served to the
//! runtime from a registry inside this process. Everything it creates is removed again, also after a failure or an
//! interrupt, within a separate deadline.
//!
//! [`run`] returns a [`SmokeReport`]; [`timeline`] records the steps, [`waterfall`] draws them.

pub mod busybox;
mod cgroup;
mod cleanup;
mod cri;
mod flow;
pub mod hint;
pub mod image;
pub mod logs;
pub mod pod;
pub mod registry;
mod steps;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod waterfall;

use std::fs;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use self::cri::CanaryClient;
use self::flow::CreatedObjects;
use self::hint::StepContext;
use self::timeline::{
    FailureDetail, FinishedStep, RunStopReason, StepFailed, StepProgress, StepTimeline,
    rounded_millis,
};

/// Timeout of the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the call in flight may take after an interrupt.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(10);
/// Deadline of the cleanup after a failure.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the container's lines may take to appear in its log.
const LOG_PATIENCE: Duration = Duration::from_secs(5);
/// Seconds between SIGTERM and SIGKILL of the container.
const STOP_GRACE: i64 = 5;

/// The run's parameters.
#[derive(Clone, Debug)]
pub struct SmokeOptions {
    /// The CRI socket.
    pub socket: PathBuf,
    /// Identifies this run: the pod's uid.
    pub run: String,
    /// Name of the pod.
    pub name: String,
    /// The program of the container, instead of the shell of the image. The run ends with its start.
    pub command: Option<String>,
    /// How long the registry for our own image waits before it answers a request for the tag.
    pub registry_delay: Duration,
    /// Use this image, which must contain `sh`, `echo` and `sleep`, instead of our own.
    pub image: Option<String>,
    /// The static busybox of our own image, if not the machine's.
    pub busybox: Option<PathBuf>,
    /// Runtime handler; `None` is the runtime's default.
    pub handler: Option<String>,
    /// Run in the host's network, which needs no CNI.
    pub host_network: bool,
    /// Leave the pod running and all files in place.
    pub keep: bool,
    /// Address of the registry for our own image.
    pub registry_listen: SocketAddr,
    /// Parent of the pod's log directory; the runtime must see the same directory.
    pub log_dir: PathBuf,
    /// The pod's parent cgroup, unless one that fits the runtime's cgroup driver. If it did not exist it is removed with
    /// the pod.
    pub cgroup_parent: Option<String>,
    /// Deadline of all steps.
    pub timeout: Duration,
}

/// A random uid for [`SmokeOptions::run`], from the kernel.
pub fn new_run_id() -> io::Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(uuid.trim().to_owned())
}

/// The runtime's Version response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the CRI.
    pub api_version: String,
}

/// The pod that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CanaryPodInfo {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The result. Serialized for `--json`; times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SmokeReport {
    /// Whether every step succeeded.
    pub ok: bool,
    /// The CRI socket.
    pub endpoint: String,
    /// The runtime that answered.
    pub runtime: Option<RuntimeInfo>,
    /// The pod.
    pub pod: CanaryPodInfo,
    /// From the start of the first step to the end of the last.
    pub total_ms: f64,
    /// In order.
    pub steps: Vec<FinishedStep>,
    /// Whether the remaining objects were kept on purpose.
    pub kept: bool,
    /// The remaining objects.
    pub left: Vec<LeftoverObject>,
}

/// An object that a run left behind, on purpose or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftoverObject {
    /// Its description.
    pub what: String,
    /// The command that removes it.
    pub remove: String,
}

impl SmokeReport {
    /// The first step that failed.
    pub fn failed(&self) -> Option<&FinishedStep> {
        self.steps.iter().find(|step| !step.ok())
    }
}

/// Runs every step and removes the created objects.
///
/// Each message on `interrupts` is a reason to stop. After the first, no further step begins, and the running one has
/// [`INTERRUPT_GRACE`] to finish: a runtime whose caller disconnects in the middle of a call may keep half a container that
/// cannot be removed. The second aborts the call, the third the cleanup.
pub async fn run(
    options: &SmokeOptions,
    progress: &mut dyn StepProgress,
    interrupts: &mut mpsc::Receiver<&'static str>,
) -> SmokeReport {
    let mut made = CreatedObjects::default();
    let stop = RunStopReason::new();
    let mut timeline = StepTimeline::new(progress, &stop);
    let deadline = Instant::now() + options.timeout;
    let broken_off = {
        let steps = flow::run(options, deadline, &mut made, &mut timeline);
        until_stopped(steps, options.timeout, deadline, &stop, interrupts).await
    };
    let ended = broken_off.unwrap_or_else(|failure| {
        timeline.break_off(failure);
        Err(StepFailed)
    });
    if ended.is_err() && !options.keep {
        if made.sandbox.is_some() {
            timeline.before_removal().await;
        }
        timeline.go_on();
        clean_up(options, &mut made, &mut timeline, interrupts).await;
    }
    finish(options, made, timeline.into_steps())
}

/// Runs the steps to their end or abortion.
async fn until_stopped(
    steps: impl Future<Output = Result<(), StepFailed>>,
    timeout: Duration,
    deadline: Instant,
    stop: &RunStopReason,
    interrupts: &mut mpsc::Receiver<&'static str>,
) -> Result<Result<(), StepFailed>, FailureDetail> {
    let mut steps = pin!(steps);
    let what = tokio::select! {
        biased;
        what = interrupted(interrupts) => what,
        () = sleep_until(deadline.into()) => return Err(late(timeout)),
        result = &mut steps => return Ok(result),
    };
    // This is the only place that sets it.
    let _ = stop.set(what);
    let error = tokio::select! {
        biased;
        again = interrupted(interrupts) => format!("{again} again"),
        () = sleep(INTERRUPT_GRACE) => format!("{what}, and no answer within {INTERRUPT_GRACE:?}"),
        result = &mut steps => return Ok(result),
    };
    Err(FailureDetail { error, hint: None })
}

/// Removes everything, within a separate deadline.
async fn clean_up(
    options: &SmokeOptions,
    made: &mut CreatedObjects,
    timeline: &mut StepTimeline<'_>,
    interrupts: &mut mpsc::Receiver<&'static str>,
) {
    let Some(channel) = made.channel.clone().filter(|_| made.anything()) else {
        return;
    };
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    let cri = CanaryClient::new(channel, deadline);
    let around = StepContext::default();
    let removing = cleanup::remove_all(&cri, &options.run, made);
    let broken = tokio::select! {
        biased;
        what = interrupted(interrupts) => FailureDetail { error: what.to_owned(), hint: None },
        () = sleep_until(deadline.into()) => late(CLEANUP_TIMEOUT),
        // Its own failure is in the timeline already.
        _ = timeline.step("clean up", &around, removing) => return,
    };
    timeline.break_off(broken);
}

fn finish(
    options: &SmokeOptions,
    mut made: CreatedObjects,
    steps: Vec<FinishedStep>,
) -> SmokeReport {
    // The log may explain a failure, but so does the runtime's own; it is removed unless the pod is kept.
    let in_use = options.keep || made.sandbox_asked;
    if let Some(logs) = made.log_dir.take_if(|_| !in_use)
        && fs::remove_dir_all(&logs).is_err()
    {
        made.log_dir = Some(logs);
    }
    if !in_use {
        made.cgroup.remove();
    }
    let total = steps.iter().map(|step| step.start + step.took).max();
    SmokeReport {
        ok: steps.iter().all(FinishedStep::ok),
        endpoint: format!("unix://{}", options.socket.display()),
        pod: CanaryPodInfo {
            namespace: pod::POD_NAMESPACE,
            name: options.name.clone(),
            uid: options.run.clone(),
        },
        total_ms: rounded_millis(total.unwrap_or_default()),
        steps,
        kept: options.keep,
        left: made.left(options),
        runtime: made.runtime.take(),
    }
}

fn late(timeout: Duration) -> FailureDetail {
    FailureDetail {
        error: format!("no answer within {timeout:?} of the start"),
        hint: Some("the runtime hangs at this step: see its log, or extend --timeout".to_owned()),
    }
}

/// The next interrupt; pending forever once no more can arrive.
async fn interrupted(interrupts: &mut mpsc::Receiver<&'static str>) -> &'static str {
    match interrupts.recv().await {
        Some(what) => what,
        None => pending().await,
    }
}
