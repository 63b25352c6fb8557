//! What is counted of relayed sessions beside what is counted of all.

use std::time::Duration;

use crate::telemetry::family::{Counters, Histograms};
use crate::telemetry::metric::{LOOK_BUCKETS, Metric, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    STREAM_URLS = Metric::counter("stream_urls_total", &[fixed("result", &["proxied", "not_loopback", "unparsable", "unread", "limit_reached", "unavailable"])],
        "URLs of sessions that upstreams gave: proxied by this program, or passed on unchanged: because the address is not loopback, because the URL was not parsed, because the request or the answer was not read, because too many sessions are open or pending, or because the proxy is not available.");
    STREAM_UPSTREAM_ANSWERS = Metric::counter("stream_upstream_answers_total", &[fixed("status", &["101", "2xx", "3xx", "4xx", "5xx", "other", "none"])],
        "Answers of upstreams to the requests for sessions that this program proxies, by HTTP status, which cannot be read under TLS; none if the upstream could not be reached or hung up.");
    STREAM_UPSTREAM_UPGRADE = Metric::histogram("stream_upstream_upgrade_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "Time from dialling the upstream to its 101.");
}

/// What becomes of a URL that an upstream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlOutcome {
    /// The session is led through this program.
    Proxied,
    /// It is not on loopback.
    NotLoopback,
    /// It is not understood.
    Unparsable,
    /// The request or the answer is not one small readable message.
    Unread,
    /// There are too many sessions, or too many that have not begun.
    LimitReached,
    /// There is nobody to lead it.
    Unavailable,
}

impl UrlOutcome {
    const ALL: [Self; 6] = [
        Self::Proxied,
        Self::NotLoopback,
        Self::Unparsable,
        Self::Unread,
        Self::LimitReached,
        Self::Unavailable,
    ];
}

/// What an upstream says to the request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamAnswer {
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

impl UpstreamAnswer {
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
pub struct SessionProxyMetrics {
    urls: Counters<1>,
    answers: Counters<1>,
    upgrade: Histograms<0>,
}

impl SessionProxyMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            urls: registry.counters(&STREAM_URLS)?,
            answers: registry.counters(&STREAM_UPSTREAM_ANSWERS)?,
            upgrade: registry.histograms(&STREAM_UPSTREAM_UPGRADE)?,
        };
        // All are shown from the start, so that the first one is seen as an increase.
        for verdict in UrlOutcome::ALL {
            metrics.urls.at([verdict as usize]);
        }
        for said in UpstreamAnswer::ALL {
            metrics.answers.at([said as usize]);
        }
        Ok(metrics)
    }

    pub(super) fn url(&self, verdict: UrlOutcome) {
        if let Some(urls) = self.urls.at([verdict as usize]) {
            urls.inc();
        }
    }

    /// The upstream has answered, so long after it was dialled.
    pub(super) fn answered(&self, said: UpstreamAnswer, after: Duration) {
        if let Some(answers) = self.answers.at([said as usize]) {
            answers.inc();
        }
        if said == UpstreamAnswer::Switching {
            self.upgrade.observe([], after.as_secs_f64(), None);
        }
    }
}

/// Shows every metric of this module once.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let metrics = SessionProxyMetrics::register(registry).expect("once");
    metrics.answered(UpstreamAnswer::Switching, Duration::from_millis(3));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_of_few() {
        for (status, said) in [
            (Some(101), UpstreamAnswer::Switching),
            (Some(100), UpstreamAnswer::Other),
            (Some(204), UpstreamAnswer::Success),
            (Some(302), UpstreamAnswer::Redirect),
            (Some(404), UpstreamAnswer::ClientError),
            (Some(503), UpstreamAnswer::ServerError),
            (Some(600), UpstreamAnswer::Other),
            (None, UpstreamAnswer::Other),
        ] {
            assert_eq!(UpstreamAnswer::of(status), said, "{status:?}");
        }
    }
}
