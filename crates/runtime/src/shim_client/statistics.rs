//! Statistics of containers that a shim of containerd runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::Shim;
use super::error::Error;
use criscope_shim::protocol::{Answer, Metrics, Request, Stats};

/// The time that criscope-shim may need beyond the timeout of the containerd shim.
const MARGIN: Duration = Duration::from_secs(1);

impl Shim {
    /// Returns the metrics that the shim of containerd reports for a running container; `None` if it reports none. A shim that
    /// does not know the request, the own or that of containerd, is not asked again.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Timeout`] if the shim of containerd does not respond in this time, [`Error::Silent`] if the own
    /// one does not respond a second later, [`Error::NotFound`] if the container does not run.
    pub async fn stats(&self, id: &str, time: Duration) -> Result<Option<Metrics>, Error> {
        if self.has_no_stats() {
            return Ok(None);
        }
        let request = Request::Stats(Stats {
            id: id.to_owned(),
            timeout_ms: time.as_millis().try_into().unwrap_or(u32::MAX),
        });
        match self.call(request, time + MARGIN).await {
            Ok(Answer::Metrics(metrics)) if metrics.type_url.is_empty() => Ok(None),
            Ok(Answer::Metrics(metrics)) => Ok(Some(metrics)),
            Ok(_) => Err(self.malformed()),
            Err(Error::Unimplemented { .. }) => {
                self.set_no_stats();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Records that it reports no statistics, or no useful ones. Returns whether that is new.
    pub fn set_no_stats(&self) -> bool {
        !self.inner.has_no_stats.swap(true, Ordering::Relaxed)
    }

    /// Returns whether it is known to report no statistics.
    pub fn has_no_stats(&self) -> bool {
        self.inner.has_no_stats.load(Ordering::Relaxed)
    }
}
