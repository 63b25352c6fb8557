//! Memory, threads and descriptors of the built-in runtime, and of a proxy in front of it, during an hour of pods, sessions, pulls,
//! lists and scrapes: what a daemon keeps of work that is over.

mod budget;
mod images;
mod load;
mod report;
mod samples;

use std::path::Path;
use std::time::Duration;

use criscope_testkit::bench::progress;
use serde::Serialize;

use self::load::{Counts, Load};
use self::samples::{Reading, Watched};
use crate::daemons::Daemon;
use crate::error::Result;
use crate::image::Image;
use crate::node::Proxy;
use crate::sides::{PROXY, RUNC};

pub(crate) use self::report::report;

/// After the load, for what the daemons have left to do: both give memory back within seconds.
const SETTLE: Duration = Duration::from_secs(15);

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) counts: Counts,
    pub(crate) sides: Vec<Side>,
}

/// One daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) before: Reading,
    /// By minute: see [`Reading::median`].
    pub(crate) minutes: Vec<Reading>,
    /// Without load.
    pub(crate) after: Reading,
    /// Of the resident memory under load, in bytes.
    pub(crate) peak: u64,
}

/// Half of the load goes to the runtime itself, half through the proxy.
///
/// # Errors
/// If a call fails, or a byte of a session differs.
pub(crate) async fn run(
    minutes: usize,
    daemon: &mut Daemon,
    image: &Image,
    criscope: &Path,
) -> Result<Results> {
    let mut proxy = Proxy::start(criscope, daemon).await?;
    let images = images::make(&image.registry)?;
    let watched = [
        Watched::new(RUNC, &daemon.process)?,
        Watched::new(PROXY, &proxy.process)?,
    ];
    progress(&format!("{minutes} minutes of load"));
    let time = Duration::from_secs(60 * minutes as u64);
    let ways = [
        (daemon.cri.clone(), daemon.metrics),
        (proxy.cri.clone(), (proxy.metrics, "/metrics")),
    ];
    let load = Load::new(time, images, &image.registry)?;
    let (counts, minutes) = tokio::try_join!(load.run(ways), samples::take(minutes, &watched))?;
    let peaks = [daemon.process.peak_rss()?, proxy.process.peak_rss()?];
    tokio::time::sleep(SETTLE).await;
    daemon.process.check()?;
    proxy.process.check()?;
    let mut sides = Vec::new();
    for ((watched, minutes), peak) in watched.into_iter().zip(minutes).zip(peaks) {
        sides.push(Side {
            name: watched.name,
            after: watched.read()?,
            before: watched.before,
            minutes,
            peak,
        });
    }
    proxy.process.terminate().await?;
    daemon.process.terminate().await?;
    Ok(Results {
        facts: Vec::new(),
        counts,
        sides,
    })
}
