//! Processor time of a node on which nothing happens: a kubelet polls, and Prometheus scrapes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use criscope_testkit::bench::admin::{free_port, scrape};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::cri::{Cri, Poll};
use crate::daemons::Daemon;
use crate::error::{Error, IoContext, Result};
use crate::held::helpers;
use crate::process::Process;

/// The calls of a kubelet, and how many seconds apart: PLEG, the runtime's state, statistics of pods, garbage collection.
const POLLS: [(Poll, u64); 6] = [
    (Poll::ListPodSandbox, 1),
    (Poll::ListContainers, 1),
    (Poll::Status, 5),
    (Poll::ListPodSandboxStats, 10),
    (Poll::ImageFsInfo, 10),
    (Poll::ListImages, 30),
];
/// Seconds between scrapes.
const SCRAPE: u64 = 15;
/// Before the first measurement, for what the starts have left to do.
const SETTLE: Duration = Duration::from_secs(12);

/// Milliseconds of processor time in a minute.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Idle {
    /// The daemon, and the children that it has waited for.
    pub(crate) daemon: f64,
    /// Its shims, or nothing for a proxy.
    pub(crate) beside: f64,
}

/// criscope in front of a runtime.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    pub(crate) cri: Cri,
    pub(crate) metrics: SocketAddr,
}

impl Proxy {
    /// Starts it with its defaults.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn start(criscope: &Path, daemon: &Daemon) -> Result<Self> {
        let (socket, metrics) = (daemon.state.join("proxy.sock"), free_port()?);
        let mut command = Command::new(criscope);
        command
            .args(["serve", "--listen"])
            .arg(format!("unix://{}", socket.display()))
            .arg("--upstream")
            .arg(format!("unix://{}", daemon.socket.display()))
            .args(["--admin", &metrics.to_string()]);
        let log = daemon.state.join("proxy.log");
        let mut process = Process::spawn_bound("criscope", &command, log)?;
        process.wait_for_socket(&socket).await?;
        let cri = daemon.cri.again(&socket).await?;
        Ok(Self {
            process,
            cri,
            metrics,
        })
    }
}

/// Processes whose time is measured.
pub(super) struct Watched {
    daemon: Pid,
    shims: Vec<Pid>,
    metrics: (SocketAddr, &'static str),
}

impl Proxy {
    pub(super) fn watched(&self) -> Watched {
        Watched {
            daemon: Pid::from_raw(self.process.pid().cast_signed()),
            shims: Vec::new(),
            metrics: (self.metrics, "/metrics"),
        }
    }
}

impl Daemon {
    pub(super) fn watched(&self) -> Watched {
        let daemon = Pid::from_raw(self.process.pid().cast_signed());
        Watched {
            daemon,
            shims: helpers(&self.state, daemon),
            metrics: self.metrics,
        }
    }
}

/// Polls as a kubelet does for some seconds.
///
/// # Errors
/// If a call fails.
pub(super) async fn measure(seconds: u64, cri: &mut Cri, watched: Watched) -> Result<Idle> {
    let Watched {
        daemon,
        shims,
        metrics,
    } = watched;
    tokio::time::sleep(SETTLE).await;
    let before = [cpu(daemon)?, threads(&shims)?];
    watch(seconds, cri, metrics).await?;
    let after = [cpu(daemon)?, threads(&shims)?];
    let [daemon, beside] = [0, 1].map(|at| after[at].saturating_sub(before[at]));
    let a_minute = |time: Duration| time.as_secs_f64() * 1e3 * 60.0 / seconds as f64;
    Ok(Idle {
        daemon: a_minute(daemon),
        beside: a_minute(beside),
    })
}

/// Polls as a kubelet does for some seconds, and scrapes as Prometheus does.
///
/// # Errors
/// If a call fails.
pub(crate) async fn watch(
    seconds: u64,
    cri: &mut Cri,
    metrics: (SocketAddr, &'static str),
) -> Result<()> {
    let mut clock = interval(Duration::from_secs(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for second in 0..seconds {
        clock.tick().await;
        for (poll, every) in POLLS {
            if second.is_multiple_of(every) {
                cri.poll(poll).await?;
            }
        }
        if second.is_multiple_of(SCRAPE) {
            scrape(metrics.0, metrics.1).await?;
        }
    }
    clock.tick().await;
    Ok(())
}

/// User and system time of a process and of the children that it has waited for (proc(5), `stat`), in steps of 10 ms.
fn cpu(pid: Pid) -> Result<Duration> {
    /// Clock ticks, `USER_HZ`.
    const TICK: Duration = Duration::from_millis(10);
    let file = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&file).during(|| format!("reading {file}"))?;
    // The name of the program may have blanks.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times: Vec<u32> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    match times.len() {
        4 => Ok(TICK * times.iter().sum()),
        _ => Err(Error::Setup(format!("{file}: {text}"))),
    }
}

/// Time that the living threads of processes have run (proc(5), `schedstat`), in nanoseconds.
fn threads(pids: &[Pid]) -> Result<Duration> {
    let mut all = 0;
    for pid in pids {
        let folder = format!("/proc/{pid}/task");
        let tasks = fs::read_dir(&folder).during(|| format!("reading {folder}"))?;
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let first = text.split_whitespace().next();
            all += first.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(all))
}
