//! Events on pods, as `kubectl describe pod` shows them.
//!
//! This module polls episodes from the daemon; [`report`] decides which of them are events; this module writes each event once,
//! also across restarts of the agent.

pub mod bucket;
mod bypass;
pub(crate) mod node;
pub mod report;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use criscope::lifecycle::view::RecentEpisodes;
use criscope::units::times::UnixMicros;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use self::bucket::TokenBucket;
use self::bypass::BypassReporter;
use self::node::NODE_EVENT_NAMESPACE;
pub(crate) use self::report::MAX_NOTE_LEN;
use self::report::{EpisodeReport, reports};
use crate::daemon::DaemonClient;

/// The name under which events are reported: `From` in `kubectl describe`.
pub const CONTROLLER: &str = "criscope.dev/agent";

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two updates of a series. An update also keeps the API server from forgetting the event.
const SERIES_UPDATE_INTERVAL: Duration = Duration::from_secs(300);

/// Timeout of a request to the API server.
pub(crate) const API_TIMEOUT: Duration = Duration::from_secs(10);

/// The page of episodes, the newest first.
const EPISODES_PAGE: &str = "/debug/pods?format=json&limit=1000";

/// The longest name of an instance and of an object, in bytes.
const MAX_INSTANCE_LEN: usize = 128;

/// The state of a report that was written.
#[derive(Clone, Copy, Debug)]
struct WrittenEvent {
    /// The count that was written.
    count: u32,
    /// Time of writing.
    at: Instant,
    /// Set if the API server refused the event: it is not tried again.
    refused: bool,
}

/// Writes events.
#[derive(Debug)]
pub struct EventWriter {
    client: KubeClient,
    node: String,
    slow: Duration,
    written: HashMap<String, WrittenEvent>,
    bucket: TokenBucket,
}

/// `kube::Client`, which has no `Debug`.
struct KubeClient(kube::Client);

impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl EventWriter {
    /// A writer for this node. Starts and stops that took at least `slow` are events.
    pub fn new(client: kube::Client, node: &str, slow: Duration) -> Self {
        Self {
            client: KubeClient(client),
            node: node.to_owned(),
            slow,
            written: HashMap::new(),
            bucket: TokenBucket::new(Instant::now()),
        }
    }

    /// Polls the daemon and writes events until `stop`.
    pub async fn run(mut self, daemon: DaemonClient, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut is_away = false;
        let mut bypass = BypassReporter::new(daemon.bypass_files());
        loop {
            self.report_bypass(&mut bypass).await;
            match daemon.json::<RecentEpisodes>(EPISODES_PAGE).await {
                Ok(recent) => {
                    self.write(&recent).await;
                    is_away = false;
                }
                Err(error) if !is_away => {
                    tracing::warn!(event = "agent.daemon", %error, "cannot read episodes");
                    is_away = true;
                }
                Err(_) => {}
            }
            tokio::select! {
                () = &mut stop => return,
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Writes an event if criscope is bypassed, which does not answer then. After a failure the next round tries again.
    async fn report_bypass(&self, bypass: &mut BypassReporter) {
        let Some(since) = bypass.unreported() else {
            return;
        };
        let api = Api::<Event>::namespaced(self.client.0.clone(), NODE_EVENT_NAMESPACE);
        let event = bypass::event(&self.node, since);
        match timeout(API_TIMEOUT, api.create(&PostParams::default(), &event)).await {
            // Other answers are final; 409: it was written before a restart of this agent.
            Ok(Err(kube::Error::Api(status)))
                if (400..500).contains(&status.code) && status.code != 429 =>
            {
                bypass.note_reported(since);
            }
            Ok(Ok(_)) => bypass.note_reported(since),
            Ok(Err(error)) => {
                tracing::warn!(event = "agent.events", %error, "the API server is not available");
            }
            Err(_) => {}
        }
    }

    /// Writes the new events in a list of episodes.
    pub async fn write(&mut self, recent: &RecentEpisodes) {
        let reports = reports(recent, self.slow);
        let keys: Vec<_> = reports.iter().map(EpisodeReport::name).collect();
        self.written.retain(|key, _| keys.contains(key));
        for (name, report) in keys.into_iter().zip(&reports) {
            let before = self.written.get(&name).copied();
            let now = Instant::now();
            let is_due = before.is_none_or(|written| {
                !written.refused
                    && report.count > written.count
                    && now.duration_since(written.at) >= SERIES_UPDATE_INTERVAL
            });
            if !is_due {
                continue;
            }
            if !self.bucket.take(now) {
                tracing::info!(event = "agent.events", "too many events: the others wait");
                return;
            }
            match timeout(API_TIMEOUT, self.post(&name, report, before.is_some())).await {
                Ok(Ok(refused)) => {
                    let count = report.count;
                    let written = WrittenEvent {
                        count,
                        at: now,
                        refused,
                    };
                    self.written.insert(name, written);
                }
                // The next round tries again, as long as the report is not too old.
                Ok(Err(error)) => {
                    tracing::warn!(event = "agent.events", %error, "the API server is not available");
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Creates the event or updates its series. Returns whether the API server refused it for good.
    async fn post(
        &self,
        name: &str,
        report: &EpisodeReport,
        is_update: bool,
    ) -> kube::Result<bool> {
        let api = Api::<Event>::namespaced(self.client.0.clone(), &report.namespace);
        if is_update {
            let series = Patch::Merge(json!({"series": series(report)}));
            match api.patch(name, &PatchParams::default(), &series).await {
                // The API server has dropped the event meanwhile, so it is created once more.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return refused(report, other.map(drop)),
            }
        }
        let event = event(name, report, &self.node);
        match api.create(&PostParams::default(), &event).await {
            // The event was written before a restart of this agent.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            other => refused(report, other.map(drop)),
        }
    }
}

/// Returns whether the API server refused the event for good. Other errors may pass.
fn refused(report: &EpisodeReport, result: kube::Result<()>) -> kube::Result<bool> {
    match result {
        Ok(()) => Ok(false),
        Err(kube::Error::Api(status))
            if (400..500).contains(&status.code) && status.code != 429 =>
        {
            tracing::warn!(
                event = "agent.events",
                namespace = report.namespace,
                pod = report.pod,
                reason = report.reason,
                code = status.code,
                error = status.message,
                "the API server refused an event"
            );
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

fn event(name: &str, report: &EpisodeReport, node: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: text(name),
            namespace: text(&report.namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(time(report.began_unix_us))),
        reporting_controller: text(CONTROLLER),
        reporting_instance: text(report::cut(node, MAX_INSTANCE_LEN)),
        action: text(report.action),
        reason: text(report.reason),
        type_: text(if report.warning { "Warning" } else { "Normal" }),
        note: text(&report.note),
        regarding: Some(ObjectReference {
            api_version: text("v1"),
            kind: text("Pod"),
            namespace: text(&report.namespace),
            name: text(&report.pod),
            uid: text(&report.uid),
            ..ObjectReference::default()
        }),
        series: (report.count > 1).then(|| series(report)),
        ..Event::default()
    }
}

/// The series of a repeated event. The count is at least 2, since an update means a repetition.
fn series(report: &EpisodeReport) -> EventSeries {
    EventSeries {
        count: i32::try_from(report.count.max(2)).unwrap_or(i32::MAX),
        last_observed_time: MicroTime(time(report.last_unix_us)),
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn time(time: UnixMicros) -> Timestamp {
    let us = i64::try_from(time.as_micros()).unwrap_or_default();
    Timestamp::from_microsecond(us).unwrap_or_default()
}
