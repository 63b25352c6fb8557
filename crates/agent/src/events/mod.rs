//! Events on pods, as `kubectl describe pod` shows them.
//!
//! Episodes are polled from the daemon; [`report`] decides which of them are events; this module writes them, each once, also
//! across restarts of the agent.

pub mod bucket;
pub mod report;

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use criscope::lifecycle::view::RecentEpisodes;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use self::bucket::Bucket;
use self::report::{Report, reports};
use crate::daemon::Daemon;

/// The name under which events are reported: `From` in `kubectl describe`.
pub const CONTROLLER: &str = "criscope.dev/agent";

/// Time between two polls.
const PERIOD: Duration = Duration::from_secs(5);

/// Time between two updates of a series. An update also keeps the API server from forgetting the event.
const SERIES: Duration = Duration::from_secs(300);

/// Timeout of a request to the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The page of episodes, the newest first.
const EPISODES: &str = "/debug/pods?format=json&limit=1000";

/// The longest name of an instance and of an object, in bytes.
const INSTANCE: usize = 128;

/// What has been written of a report.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// How often it had happened then.
    count: u32,
    /// When.
    at: Instant,
    /// Whether the API server refused it; then it is not tried again.
    refused: bool,
}

/// Writes events.
#[derive(Debug)]
pub struct Events {
    client: Client,
    node: String,
    slow: Duration,
    written: HashMap<String, Written>,
    bucket: Bucket,
}

/// `kube::Client`, which has no `Debug`.
struct Client(kube::Client);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Events {
    /// Events of this node; starts and stops that took at least `slow` are some.
    pub fn new(client: kube::Client, node: &str, slow: Duration) -> Self {
        Self {
            client: Client(client),
            node: node.to_owned(),
            slow,
            written: HashMap::new(),
            bucket: Bucket::new(Instant::now()),
        }
    }

    /// Polls the daemon and writes events until `stop`.
    pub async fn run(mut self, daemon: Daemon, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut is_away = false;
        loop {
            match daemon.json::<RecentEpisodes>(EPISODES).await {
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
                () = sleep(PERIOD) => {}
            }
        }
    }

    /// Writes what is new in a list of episodes.
    pub async fn write(&mut self, recent: &RecentEpisodes) {
        let reports = reports(recent, self.slow);
        let keys: Vec<_> = reports.iter().map(Report::name).collect();
        self.written.retain(|key, _| keys.contains(key));
        for (name, report) in keys.into_iter().zip(&reports) {
            let before = self.written.get(&name).copied();
            let now = Instant::now();
            let is_due = before.is_none_or(|it| {
                !it.refused && report.count > it.count && now.duration_since(it.at) >= SERIES
            });
            if !is_due {
                continue;
            }
            if !self.bucket.take(now) {
                tracing::info!(event = "agent.events", "too many events: the others wait");
                return;
            }
            match timeout(PATIENCE, self.post(&name, report, before.is_some())).await {
                Ok(Ok(refused)) => {
                    let count = report.count;
                    let written = Written {
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

    /// Creates the event or updates its series; returns whether it was refused for good.
    async fn post(&self, name: &str, report: &Report, is_update: bool) -> kube::Result<bool> {
        let api = Api::<Event>::namespaced(self.client.0.clone(), &report.namespace);
        if is_update {
            let series = Patch::Merge(json!({"series": series(report)}));
            match api.patch(name, &PatchParams::default(), &series).await {
                // Forgotten meanwhile, and it still happens: once more.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return refused(report, other.map(drop)),
            }
        }
        let event = event(name, report, &self.node);
        match api.create(&PostParams::default(), &event).await {
            // Written before a restart of this agent.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            other => refused(report, other.map(drop)),
        }
    }
}

/// A refusal is final; anything else may pass.
fn refused(report: &Report, result: kube::Result<()>) -> kube::Result<bool> {
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

fn event(name: &str, report: &Report, node: &str) -> Event {
    let text = |text: &str| Some(text.to_owned());
    Event {
        metadata: ObjectMeta {
            name: text(name),
            namespace: text(&report.namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(time(report.began_unix_us))),
        reporting_controller: text(CONTROLLER),
        reporting_instance: text(report::cut(node, INSTANCE)),
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

/// At least two: what is updated has happened again.
fn series(report: &Report) -> EventSeries {
    EventSeries {
        count: i32::try_from(report.count.max(2)).unwrap_or(i32::MAX),
        last_observed_time: MicroTime(time(report.last_unix_us)),
    }
}

fn time(unix_us: u64) -> Timestamp {
    let us = i64::try_from(unix_us).unwrap_or_default();
    Timestamp::from_microsecond(us).unwrap_or_default()
}
