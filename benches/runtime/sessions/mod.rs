//! Throughput of exec and port-forward, and the memory of the daemon meanwhile. In each round each side has its turn with
//! each kind of session, so that comparisons are made within a round.

mod exec;
mod forward;
mod payload;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use cri_streaming::Transport;
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

pub(crate) use self::forward::listen;
pub(crate) use self::payload::{LENGTH, Payload};
use crate::cri::{Cri, Pod};
use crate::daemons::Daemon;
use crate::error::{Error, IoContext, Result};
use crate::sides::CONTAINERD;
use crate::stats::Spread;

/// The kinds of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Through the standard streams of `cat`.
    Exec,
    /// The same over WebSocket, which not every containerd speaks.
    ExecWebSocket,
    /// From the client to a port.
    Up,
    /// From a port to the client.
    Down,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Exec, Self::ExecWebSocket, Self::Up, Self::Down];

    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec of cat, in and out, SPDY",
            Self::ExecWebSocket => "exec of cat, in and out, WebSocket",
            Self::Up => "port-forward, up, SPDY",
            Self::Down => "port-forward, down, SPDY",
        }
    }

    /// Returns whether a side supports it: Debian's containerd has no WebSocket for commands with stdin.
    fn is_spoken_by(self, side: &str) -> bool {
        self != Self::ExecWebSocket || side != CONTAINERD
    }
}

/// The results.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sessions {
    pub(crate) rates: Vec<Rate>,
    pub(crate) peaks: Vec<Peak>,
}

/// Throughput of one kind of session on one side.
#[derive(Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) kind: Kind,
    pub(crate) side: &'static str,
    /// MB/s.
    pub(crate) rate: Spread,
    /// Relative to containerd in the same round.
    pub(crate) of: Option<Spread>,
}

/// Resident memory of a daemon, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Peak {
    pub(crate) side: &'static str,
    /// Before the first session.
    pub(crate) before: u64,
    /// The peak during all of them.
    pub(crate) peak: u64,
}

/// A side and its pod.
struct Stand<'a> {
    side: &'static str,
    daemon: &'a mut Daemon,
    pod: Pod,
    container: String,
    listener: Arc<TcpListener>,
    before: u64,
    /// MB/s of each kind, in the order of the rounds.
    rates: [Vec<f64>; Kind::ALL.len()],
}

/// Runs rounds of sessions, after one that is not counted.
///
/// # Errors
/// If a session fails, or a byte differs.
pub(crate) async fn run<'a>(
    daemons: impl Iterator<Item = (&'static str, &'a mut Daemon)>,
    rounds: usize,
) -> Result<Sessions> {
    let payload = Arc::new(Payload::make(LENGTH)?);
    let mut stands = Vec::new();
    for (side, daemon) in daemons {
        stands.push(Stand::new(side, daemon).await?);
    }
    for number in 0..=rounds {
        for kind in Kind::ALL {
            // The order of the sides alternates.
            let turn = number % stands.len().max(1);
            stands.rotate_left(turn);
            for stand in &mut stands {
                if kind.is_spoken_by(stand.side) {
                    let rate = stand.session(kind, &payload).await?;
                    if number > 0 {
                        stand.rates[kind as usize].push(rate);
                    }
                }
            }
            stands.rotate_right(turn);
        }
    }
    let mut peaks = Vec::new();
    for stand in &stands {
        peaks.push(Peak {
            side: stand.side,
            before: stand.before,
            peak: stand.daemon.process.peak_rss()?,
        });
    }
    let rates = Kind::ALL.iter().flat_map(|kind| rates(*kind, &stands));
    let rates = rates.collect();
    for stand in stands {
        stand.daemon.cri.end(stand.pod).await?;
    }
    Ok(Sessions { rates, peaks })
}

fn rates(kind: Kind, stands: &[Stand<'_>]) -> Vec<Rate> {
    let of = |stand: &Stand<'_>| stand.rates[kind as usize].clone();
    let theirs = stands.iter().find(|stand| stand.side == CONTAINERD);
    let theirs = theirs.map(of).filter(|rates| !rates.is_empty());
    let spoken = stands.iter().filter(|stand| !of(stand).is_empty());
    let rate = |stand: &Stand<'_>| Rate {
        kind,
        side: stand.side,
        rate: Spread::of(of(stand)),
        of: theirs.as_ref().map(|theirs| {
            let both = of(stand).into_iter().zip(theirs);
            Spread::of(both.map(|(own, theirs)| own / theirs))
        }),
    };
    spoken.map(rate).collect()
}

impl<'a> Stand<'a> {
    async fn new(side: &'static str, daemon: &'a mut Daemon) -> Result<Self> {
        let pod = daemon.cri.run("sessions").await?;
        let container = daemon.cri.start(&pod, "main").await?;
        let pid = daemon.cri.pid(&container).await?;
        let listener = Arc::new(listen(pid).await?);
        daemon.process.reset_peak()?;
        Ok(Self {
            side,
            before: daemon.process.peak_rss()?,
            daemon,
            pod,
            container,
            listener,
            rates: Default::default(),
        })
    }

    /// One session. Returns MB/s.
    async fn session(&mut self, kind: Kind, payload: &Arc<Payload>) -> Result<f64> {
        let url = self.url(kind).await?;
        let (payload, listener) = (Arc::clone(payload), Arc::clone(&self.listener));
        let took = session(kind, url, listener, payload).await?;
        Ok(LENGTH as f64 / 1e6 / took.as_secs_f64())
    }

    async fn url(&mut self, kind: Kind) -> Result<String> {
        let cri: &mut Cri = &mut self.daemon.cri;
        match kind {
            Kind::Exec | Kind::ExecWebSocket => cri.exec(&self.container, &CAT).await,
            Kind::Up | Kind::Down => cri.port_forward(&self.pod).await,
        }
    }
}

/// The command echoes its input.
pub(crate) const CAT: [&str; 2] = ["/bin/busybox", "cat"];

/// Passes the payload through one session.
///
/// # Errors
/// If it fails, or a byte differs.
pub(crate) async fn session(
    kind: Kind,
    url: String,
    listener: Arc<TcpListener>,
    payload: Arc<Payload>,
) -> Result<Duration> {
    let took = spawn_blocking(move || pass(kind, &url, listener, payload)).await;
    let took = took.map_err(|error| Error::Setup(format!("a session: {error}")))?;
    took.during(|| kind.name().to_owned())
}

/// One session, on its own threads: sending and receiving do not block each other.
fn pass(
    kind: Kind,
    url: &str,
    listener: Arc<TcpListener>,
    payload: Arc<Payload>,
) -> io::Result<Duration> {
    let threads = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    threads.block_on(async {
        match kind {
            Kind::Exec => exec::pass(url, Transport::Spdy, payload).await,
            Kind::ExecWebSocket => exec::pass(url, Transport::WebSocket, payload).await,
            Kind::Up => forward::pass(url, listener, forward::Way::Up, payload).await,
            Kind::Down => forward::pass(url, listener, forward::Way::Down, payload).await,
        }
    })
}
