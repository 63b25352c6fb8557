//! `criscope smoke`: a canary that runs one real pod through a CRI socket, any CRI socket, and shows what each step took.
//!
//! Nothing has to be prepared and no network is needed: the image is assembled from the machine's own static busybox and
//! served to the runtime from a registry inside this process. Everything that was made is removed again, also after a
//! failure or an interrupt, with a deadline of its own.
//!
//! [`run`] does it and gives a [`Report`]; [`timeline`] holds what happened, [`waterfall`] draws it.

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

use self::cri::Cri;
use self::flow::Made;
use self::hint::Surroundings;
use self::timeline::{Failure, Progress, Step, StepFailed, Stop, Timeline, millis};

/// How long the socket may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the call in flight may take after an interrupt.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(10);
/// How long removing everything may take after a failure.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the container's lines may take to get into its log.
const LOG_PATIENCE: Duration = Duration::from_secs(5);
/// Seconds that the container has between SIGTERM and SIGKILL.
const STOP_GRACE: i64 = 5;

/// What to run, where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The CRI socket.
    pub socket: PathBuf,
    /// Names this run: the pod's uid.
    pub run: String,
    /// Use this image, which needs `sh`, `echo` and `sleep`, instead of our own.
    pub image: Option<String>,
    /// The static busybox of our own image, if not the machine's.
    pub busybox: Option<PathBuf>,
    /// Runtime handler; `None` is the runtime's default.
    pub handler: Option<String>,
    /// Run in the host's network, which needs no CNI.
    pub host_network: bool,
    /// Leave the pod running and everything in place.
    pub keep: bool,
    /// Where our own image is served.
    pub registry_listen: SocketAddr,
    /// Parent of the pod's log directory; it must be the same directory to the runtime.
    pub log_dir: PathBuf,
    /// The pod's parent cgroup, if not one that fits the runtime's cgroup driver. One that was not there goes with the pod.
    pub cgroup_parent: Option<String>,
    /// For all steps together.
    pub timeout: Duration,
}

/// A random uid for [`Options::run`], from the kernel.
pub fn new_run_id() -> io::Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(uuid.trim().to_owned())
}

/// What the runtime says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuntimeInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the CRI it speaks.
    pub api_version: String,
}

/// The pod that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodInfo {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its uid.
    pub uid: String,
}

/// What came out. Serialized for `--json`; times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether every step ended as it should.
    pub ok: bool,
    /// The CRI socket.
    pub endpoint: String,
    /// What answered there.
    pub runtime: Option<RuntimeInfo>,
    /// What ran.
    pub pod: PodInfo,
    /// From the start of the first step to the end of the last.
    pub total_ms: f64,
    /// In order.
    pub steps: Vec<Step>,
    /// Whether what is left was left on purpose.
    pub kept: bool,
    /// What is still there.
    pub left: Vec<Left>,
}

/// Something that a run left, on purpose or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    /// What it is.
    pub what: String,
    /// The command that removes it.
    pub remove: String,
}

impl Report {
    /// The first step that failed.
    pub fn failed(&self) -> Option<&Step> {
        self.steps.iter().find(|step| !step.ok())
    }
}

/// Runs every step and removes what was made.
///
/// Each message on `interrupts` says why to stop. After the first one no further step begins, and the one that runs has
/// [`INTERRUPT_GRACE`] to end: a runtime whose caller goes away in the middle of a call may be left with half a
/// container that nobody can remove. The second one breaks the call off, the third one the removal.
pub async fn run(
    options: &Options,
    progress: &mut dyn Progress,
    interrupts: &mut mpsc::Receiver<&'static str>,
) -> Report {
    let mut made = Made::default();
    let stop = Stop::new();
    let mut timeline = Timeline::new(progress, &stop);
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
        timeline.go_on();
        clean_up(options, &mut made, &mut timeline, interrupts).await;
    }
    finish(options, made, timeline.into_steps())
}

/// Runs the steps to their end, or to why they were broken off.
async fn until_stopped(
    steps: impl Future<Output = Result<(), StepFailed>>,
    timeout: Duration,
    deadline: Instant,
    stop: &Stop,
    interrupts: &mut mpsc::Receiver<&'static str>,
) -> Result<Result<(), StepFailed>, Failure> {
    let mut steps = pin!(steps);
    let what = tokio::select! {
        biased;
        what = interrupted(interrupts) => what,
        () = sleep_until(deadline.into()) => return Err(late(timeout)),
        result = &mut steps => return Ok(result),
    };
    // Only set here, so it is not set yet.
    let _ = stop.set(what);
    let error = tokio::select! {
        biased;
        again = interrupted(interrupts) => format!("{again} again"),
        () = sleep(INTERRUPT_GRACE) => format!("{what}, and no answer within {INTERRUPT_GRACE:?}"),
        result = &mut steps => return Ok(result),
    };
    Err(Failure { error, hint: None })
}

/// Removes everything, with its own deadline.
async fn clean_up(
    options: &Options,
    made: &mut Made,
    timeline: &mut Timeline<'_>,
    interrupts: &mut mpsc::Receiver<&'static str>,
) {
    let Some(channel) = made.channel.clone().filter(|_| made.anything()) else {
        return;
    };
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    let cri = Cri::new(channel, deadline);
    let around = Surroundings::default();
    let removing = cleanup::remove_all(&cri, &options.run, made);
    let broken = tokio::select! {
        biased;
        what = interrupted(interrupts) => Failure { error: what.to_owned(), hint: None },
        () = sleep_until(deadline.into()) => late(CLEANUP_TIMEOUT),
        // Its own failure is in the timeline already.
        _ = timeline.step("clean up", &around, removing) => return,
    };
    timeline.break_off(broken);
}

fn finish(options: &Options, mut made: Made, steps: Vec<Step>) -> Report {
    // The log explains a failure, but then the runtime's own log does too; it goes unless the pod stays.
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
    Report {
        ok: steps.iter().all(Step::ok),
        endpoint: format!("unix://{}", options.socket.display()),
        pod: PodInfo {
            namespace: pod::NAMESPACE,
            name: pod::NAME,
            uid: options.run.clone(),
        },
        total_ms: millis(total.unwrap_or_default()),
        steps,
        kept: options.keep,
        left: made.left(options),
        runtime: made.runtime.take(),
    }
}

fn late(timeout: Duration) -> Failure {
    Failure {
        error: format!("no answer within {timeout:?} of the start"),
        hint: Some(
            "the runtime hangs at this step: see its log, or give it more with --timeout"
                .to_owned(),
        ),
    }
}

/// The next interrupt; never, if none can come any more.
async fn interrupted(interrupts: &mut mpsc::Receiver<&'static str>) -> &'static str {
    match interrupts.recv().await {
        Some(what) => what,
        None => pending().await,
    }
}
