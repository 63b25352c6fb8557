//! Metrics of the session proxy, in addition to those of all sessions.

use std::time::Duration;

use crate::telemetry::family::{Counters, Histograms};
use crate::telemetry::metric::{LOOK_BUCKETS, Metric, Unit, label, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    STREAM_URLS = Metric::counter("stream_urls_total", &[label::<UrlRewriteOutcome>("result")],
        "Session URLs in responses of upstreams: replaced by that of the session proxy, or passed on unchanged because the address is not loopback, the URL could not be parsed, the request or the response was not read, too many sessions are open or pending, or the proxy is not available.");
    STREAM_UPSTREAM_ANSWERS = Metric::counter("stream_upstream_answers_total", &[label::<UpstreamAnswer>("status")],
        "Responses of upstreams to the requests for proxied sessions, by HTTP status, which cannot be read under TLS; none if the upstream could not be reached or closed the connection.");
    STREAM_UPSTREAM_UPGRADE = Metric::histogram("stream_upstream_upgrade_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "Time from dialling the upstream to its 101.");
}

crate::cri::named! {
    /// Outcomes of rewriting an upstream's URL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum UrlRewriteOutcome {
        /// The URL was replaced.
        Proxied = "proxied",
        /// The URL's address is not on loopback.
        NotLoopback = "not_loopback",
        /// The URL has an unexpected form.
        Unparsable = "unparsable",
        /// The request or the response is not one small readable message.
        Unread = "unread",
        /// There are too many sessions, or too many unused tokens.
        LimitReached = "limit_reached",
        /// There is no listener, port or random token for it.
        Unavailable = "unavailable",
    }
}

crate::cri::named! {
    /// The upstream's response to the request for a session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum UpstreamAnswer {
        /// A session.
        Switching = "101",
        /// Not a session.
        Success = "2xx",
        Redirect = "3xx",
        ClientError = "4xx",
        ServerError = "5xx",
        /// No known status.
        Other = "other",
        /// None: it could not be reached, or closed the connection.
        Nothing = "none",
    }
}

impl UpstreamAnswer {
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
    urls: Counters<UrlRewriteOutcome>,
    answers: Counters<UpstreamAnswer>,
    upgrade: Histograms,
}

impl SessionProxyMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            urls: registry.counters(&STREAM_URLS)?.with_all_series(),
            answers: registry
                .counters(&STREAM_UPSTREAM_ANSWERS)?
                .with_all_series(),
            upgrade: registry.histograms(&STREAM_UPSTREAM_UPGRADE)?,
        })
    }

    pub(super) fn url(&self, verdict: UrlRewriteOutcome) {
        self.urls.inc(verdict);
    }

    /// The upstream has responded, this long after it was dialled.
    pub(super) fn answered(&self, said: UpstreamAnswer, after: Duration) {
        self.answers.inc(said);
        if said == UpstreamAnswer::Switching {
            self.upgrade.observe((), after.as_secs_f64());
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
