//! The load: a few pods at a time with sessions, pulls of images that are removed again, and what a kubelet and Prometheus ask.
//! Names never repeat.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope_testkit::registry::Registry;
use serde::Serialize;

use super::images::Pulled;
use crate::cri::Cri;
use crate::error::{Error, Result};
use crate::node::watch;
use crate::sessions::{CAT, Kind, Payload, listen, session};

/// Pods of one way at a time.
const PODS: usize = 3;
/// Bytes of a session in each direction.
const SESSION: usize = 1_000_000;
/// Between the ends of some pods and the starts of the next ones.
const PAUSE: Duration = Duration::from_secs(4);
/// Between pulls.
const BETWEEN_PULLS: Duration = Duration::from_secs(10);

/// A client of a daemon, and the daemon's metrics.
pub(super) type Way = (Cri, (SocketAddr, &'static str));

/// What was done.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) pods: usize,
    pub(crate) sessions: usize,
    pub(crate) pulls: u64,
}

pub(super) struct Load<'a> {
    time: Duration,
    images: Vec<Pulled>,
    registry: &'a Registry,
    payload: Arc<Payload>,
}

impl<'a> Load<'a> {
    /// A load of this duration.
    ///
    /// # Errors
    /// If the kernel has no random bytes.
    pub(super) fn new(time: Duration, images: Vec<Pulled>, registry: &'a Registry) -> Result<Self> {
        Ok(Self {
            time,
            images,
            registry,
            payload: Arc::new(Payload::make(SESSION)?),
        })
    }

    /// Runs all of it, half on each way.
    ///
    /// # Errors
    /// If a call fails, or a byte of a session differs.
    pub(super) async fn run(&self, [one, other]: [Way; 2]) -> Result<Counts> {
        let end = Instant::now() + self.time;
        let seconds = self.time.as_secs();
        let ((mut first, first_metrics), (mut second, second_metrics)) =
            (one.clone(), other.clone());
        let (pulls, ones, others, (), ()) = tokio::try_join!(
            self.pull(end, [&one.0, &other.0]),
            self.pods(end, &one.0, "direct"),
            self.pods(end, &other.0, "proxied"),
            watch(seconds, &mut first, first_metrics),
            watch(seconds, &mut second, second_metrics),
        )?;
        Ok(Counts {
            pods: ones.pods + others.pods,
            sessions: ones.sessions + others.sessions,
            pulls,
        })
    }

    /// Pulls an image after the other under a new tag, each by every way, and removes it. In between it asks for one that does not
    /// exist.
    async fn pull(&self, end: Instant, ways: [&Cri; 2]) -> Result<u64> {
        let mut pulls = 0;
        while Instant::now() < end {
            for image in &self.images {
                for cri in ways {
                    pulls += 1;
                    let mut cri = cri.clone();
                    let name = image.tag(self.registry, pulls);
                    cri.pull_image(&name).await?;
                    cri.remove_image(&name).await?;
                    tokio::time::sleep(BETWEEN_PULLS).await;
                }
            }
            for cri in ways {
                let name = self.registry.name(&format!("soak/none:{pulls}"));
                if cri.clone().pull_image(&name).await.is_ok() {
                    return Err(Error::Setup(format!("{name} does not exist")));
                }
            }
            // Its log of requests.
            self.registry.forget();
        }
        Ok(pulls)
    }

    async fn pods(&self, end: Instant, cri: &Cri, way: &str) -> Result<Counts> {
        let mut counts = Counts::default();
        while Instant::now() < end {
            let name = |number| format!("soak-{way}-{}", counts.pods + number);
            let (first, second, third) = tokio::try_join!(
                self.pod(cri.clone(), name(0), &[Kind::Exec]),
                self.pod(cri.clone(), name(1), &[Kind::ExecWebSocket]),
                self.pod(cri.clone(), name(2), &[Kind::Up, Kind::Down]),
            )?;
            counts.pods += PODS;
            counts.sessions += first + second + third;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(counts)
    }

    /// A life of a pod with a container and sessions. Returns their number.
    async fn pod(&self, mut cri: Cri, name: String, kinds: &[Kind]) -> Result<usize> {
        let pod = cri.run(&name).await?;
        let container = cri.start(&pod, "main").await?;
        let listener = Arc::new(listen(cri.pid(&container).await?).await?);
        for &kind in kinds {
            let url = match kind {
                Kind::Exec | Kind::ExecWebSocket => cri.exec(&container, &CAT).await?,
                Kind::Up | Kind::Down => cri.port_forward(&pod).await?,
            };
            session(kind, url, Arc::clone(&listener), Arc::clone(&self.payload)).await?;
        }
        cri.remove(container).await?;
        cri.end(pod).await?;
        Ok(kinds.len())
    }
}
