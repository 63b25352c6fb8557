//! Metrics of the session proxy, in addition to those of all sessions.

use std::time::Duration;

use crate::telemetry::family::{Counters, Histograms};
use crate::telemetry::metric::{LOOK_BUCKETS, Metric, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    STREAM_URLS = Metric::counter("stream_urls_total", &[fixed("result", &["proxied", "not_loopback", "unparsable", "unread", "limit_reached", "unavailable"])],
        "Session URLs in responses of upstreams: replaced by that of the session proxy, or passed on unchanged because the address is not loopback, the URL could not be parsed, the request or the response was not read, too many sessions are open or pending, or the proxy is not available.");
    STREAM_UPSTREAM_ANSWERS = Metric::counter("stream_upstream_answers_total", &[fixed("status", &["101", "2xx", "3xx", "4xx", "5xx", "other", "none"])],
        "Responses of upstreams to the requests for proxied sessions, by HTTP status, which cannot be read under TLS; none if the upstream could not be reached or closed the connection.");
    STREAM_UPSTREAM_UPGRADE = Metric::histogram("stream_upstream_upgrade_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "Time from dialling the upstream to its 101.");
}

/// Outcomes of rewriting an upstream's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlRewriteOutcome {
    /// The URL was replaced.
    Proxied,
    /// The URL's address is not on loopback.
    NotLoopback,
    /// The URL has an unexpected form.
    Unparsable,
    /// The request or the response is not one small readable message.
    Unread,
    /// There are too many sessions, or too many unused tokens.
    LimitReached,
    /// There is no listener, port or random token for it.
    Unavailable,
}

impl UrlRewriteOutcome {
    const ALL: [Self; 6] = [
        Self::Proxied,
        Self::NotLoopback,
        Self::Unparsable,
        Self::Unread,
        Self::LimitReached,
        Self::Unavailable,
    ];
}

/// The upstream's response to the request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamAnswer {
    /// 101.
    Switching,
    /// 2xx, not a session.
    Success,
    /// 3xx.
    Redirect,
    /// 4xx.
    ClientError,
    /// 5xx.
    ServerError,
    /// No known status.
    Other,
    /// None: it could not be reached, or closed the connection.
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

    pub(super) fn from_status(status: Option<u16>) -> Self {
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

/// Metrics of the sessions of upstreams.
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
        // All series exist from the start, so that the first event counts as an increase.
        for verdict in UrlRewriteOutcome::ALL {
            metrics.urls.at([verdict as usize]);
        }
        for said in UpstreamAnswer::ALL {
            metrics.answers.at([said as usize]);
        }
        Ok(metrics)
    }

    pub(super) fn url(&self, verdict: UrlRewriteOutcome) {
        if let Some(urls) = self.urls.at([verdict as usize]) {
            urls.inc();
        }
    }

    /// The upstream has responded, this long after it was dialled.
    pub(super) fn answered(&self, said: UpstreamAnswer, after: Duration) {
        if let Some(answers) = self.answers.at([said as usize]) {
            answers.inc();
        }
        if said == UpstreamAnswer::Switching {
            self.upgrade.observe([], after.as_secs_f64(), None);
        }
    }
}

/// Creates a series of every metric of this module.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let metrics = SessionProxyMetrics::register(registry).expect("once");
    metrics.answered(UpstreamAnswer::Switching, Duration::from_millis(3));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_grouped_by_class() {
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
            assert_eq!(UpstreamAnswer::from_status(status), said, "{status:?}");
        }
    }
}
