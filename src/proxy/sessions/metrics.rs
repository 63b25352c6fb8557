//! What is counted of relayed sessions beside what is counted of all.

use std::time::Duration;

use crate::telemetry::catalogue;
use crate::telemetry::family::{Counters, Histograms};
use crate::telemetry::registry::{Registry, RegistryError};

/// What becomes of a URL that an upstream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The session is led through this program.
    Led,
    /// It is not on loopback.
    Remote,
    /// It is not understood.
    Odd,
    /// The request or the answer is not one small readable message.
    Unread,
    /// There are too many sessions, or too many that have not begun.
    Full,
    /// There is nobody to lead it.
    Closed,
}

impl Verdict {
    const ALL: [Self; 6] = [
        Self::Led,
        Self::Remote,
        Self::Odd,
        Self::Unread,
        Self::Full,
        Self::Closed,
    ];
}

/// What an upstream says to the request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// 101.
    Switching,
    /// 2xx, which is no session.
    Success,
    /// 3xx.
    Redirect,
    /// 4xx.
    ClientError,
    /// 5xx.
    ServerError,
    /// No status that is known.
    Other,
    /// Nothing: it could not be reached, or hung up.
    Nothing,
}

impl Said {
    const ALL: [Self; 7] = [
        Self::Switching,
        Self::Success,
        Self::Redirect,
        Self::ClientError,
        Self::ServerError,
        Self::Other,
        Self::Nothing,
    ];

    pub(super) fn of(status: Option<u16>) -> Self {
        match status {
            Some(101) => Self::Switching,
            Some(200..=299) => Self::Success,
            Some(300..=399) => Self::Redirect,
            Some(400..=499) => Self::ClientError,
            Some(500..=599) => Self::ServerError,
            _ => Self::Other,
        }
    }
}

/// Counts the sessions of upstreams.
#[derive(Debug)]
pub struct RelayMetrics {
    urls: Counters<1>,
    answers: Counters<1>,
    upgrade: Histograms<0>,
}

impl RelayMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            urls: registry.counters(&catalogue::STREAM_URLS)?,
            answers: registry.counters(&catalogue::STREAM_UPSTREAM_ANSWERS)?,
            upgrade: registry.histograms(&catalogue::STREAM_UPSTREAM_UPGRADE)?,
        };
        // All are shown from the start, so that the first one is seen as an increase.
        for verdict in Verdict::ALL {
            metrics.urls.at([verdict as usize]);
        }
        for said in Said::ALL {
            metrics.answers.at([said as usize]);
        }
        Ok(metrics)
    }

    pub(super) fn url(&self, verdict: Verdict) {
        if let Some(urls) = self.urls.at([verdict as usize]) {
            urls.inc();
        }
    }

    /// The upstream has answered, so long after it was dialled.
    pub(super) fn answered(&self, said: Said, after: Duration) {
        if let Some(answers) = self.answers.at([said as usize]) {
            answers.inc();
        }
        if said == Said::Switching {
            self.upgrade.observe([], after.as_secs_f64(), None);
        }
    }
}

/// Shows every metric of this module once.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let metrics = RelayMetrics::register(registry).expect("once");
    metrics.answered(Said::Switching, Duration::from_millis(3));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_of_few() {
        for (status, said) in [
            (Some(101), Said::Switching),
            (Some(100), Said::Other),
            (Some(204), Said::Success),
            (Some(302), Said::Redirect),
            (Some(404), Said::ClientError),
            (Some(503), Said::ServerError),
            (Some(600), Said::Other),
            (None, Said::Other),
        ] {
            assert_eq!(Said::of(status), said, "{status:?}");
        }
    }
}
