//! A daemon that is killed and started again.

use std::time::{Duration, Instant};

use crate::cri::{Cri, Poll};
use crate::daemons::Daemon;
use crate::error::{Error, Result};

/// The longest time that a restart may take.
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// From the start of the new process until it lists all pods and containers.
///
/// # Errors
/// If it does not start, or loses a pod.
pub(super) async fn measure(daemon: &mut Daemon, pods: usize) -> Result<Duration> {
    let begin = Instant::now();
    daemon.restart()?;
    loop {
        if let Ok(mut cri) = daemon.reconnect().await
            && cri.poll(Poll::ListPodSandbox).await.ok() == Some(pods)
            && cri.poll(Poll::ListContainers).await.ok() == Some(pods)
        {
            let took = begin.elapsed();
            daemon.cri = cri;
            return Ok(took);
        }
        daemon.process.check()?;
        if begin.elapsed() > LIMIT {
            return Err(Error::Setup(format!("{pods} pods are not listed again")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Daemon {
    async fn reconnect(&self) -> Result<Cri> {
        self.cri.again(&self.socket).await
    }
}
