//! What containerd reports besides the CRI, on its CRI socket: how far image pulls are, from its content service, and what
//! happens to containers, from its events service ([`events`]).
//!
//! Of pulls: a task of the side thread with a connection of its own. While a pull is in flight for longer than `AFTER`, it asks once a
//! second; otherwise there is no connection. Without the service it asks again after `ABSENT`, and nothing else changes.
//!
//! | module | what |
//! |---|---|
//! | `client`, `messages` | the calls |
//! | `manifests` | which manifest a pull is about |
//! | `pulls` | whose the bytes are, and what is said of them |
//! | `events` | the subscription to events |

mod client;
pub mod events;
mod manifests;
mod messages;
pub(crate) mod metrics;
mod pulls;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use self::client::{Client, Error};
use self::messages::Info;
use self::pulls::{Ingest, Pulled};
use super::process_scanner::{InFlightCalls, Observations, Upstreams};
use super::settings;
use super::view::Progress;
use crate::call::Call;
use crate::cri::Method;

/// How old a pull must be before containerd is asked.
const AFTER: Duration = Duration::from_millis(500);

/// Interval between two questions.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a containerd without the service, or that did not answer, is not asked again.
const ABSENT: Duration = Duration::from_secs(600);
const FAILED: Duration = Duration::from_secs(10);

/// Most pulls that are followed at a time.
const PULLS: usize = 64;

/// How often a manifest is searched for, and how many are looked at each time.
const SEARCHES: u32 = 10;
const CANDIDATES: usize = 8;

/// The progress of pulls in flight, for pages.
#[derive(Debug, Default)]
pub struct PullProgress(Mutex<Vec<Progress>>);

impl PullProgress {
    /// All of them.
    pub fn read(&self) -> Vec<Progress> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, all: Vec<Progress>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// The task.
pub struct PullWatch {
    /// Whether it runs.
    pub settings: settings::ContainerdSettings,
    /// The calls in flight.
    pub calls: InFlightCalls,
    /// The runtimes behind the proxy.
    pub upstreams: Upstreams,
    /// Destination of what is seen for stories.
    pub observations: Arc<Observations>,
    /// Destination of what is seen for pages.
    pub progress: Arc<PullProgress>,
}

impl fmt::Debug for PullWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullWatch").finish_non_exhaustive()
    }
}

/// One containerd.
#[derive(Default)]
struct Watched {
    client: Option<Client>,
    /// Not before this time.
    pause: Option<Instant>,
    pulls: Vec<Pulled>,
    /// Searches for the manifest of a pull.
    searches: HashMap<u64, u32>,
}

impl PullWatch {
    /// Watches until dropped.
    pub async fn run(self) {
        if !self.settings.pull_progress {
            return;
        }
        let mut all: HashMap<Arc<str>, Watched> = HashMap::new();
        loop {
            let calls = (self.calls)();
            let pulls = calls.iter().filter(|call| {
                call.method == Method::PullImage
                    && call.steps.get().is_none()
                    && call.age() >= AFTER
            });
            let pulls: Vec<_> = pulls.take(PULLS).collect();
            if pulls.is_empty() {
                if !all.is_empty() {
                    all.retain(|_, watched| watched.rest());
                    self.progress.set(Vec::new());
                }
                sleep(AFTER).await;
                continue;
            }
            for upstream in (self.upstreams)().into_iter().filter(|it| it.is_containerd) {
                let is_its = |call: &&&Arc<Call>| {
                    call.route
                        .get()
                        .is_some_and(|route| *route.backend == *upstream.backend)
                };
                let own: Vec<_> = pulls.iter().filter(is_its).copied().collect();
                let watched = all.entry(Arc::clone(&upstream.backend)).or_default();
                watched.look(&upstream.socket, &own).await;
            }
            self.report(&all);
            sleep(PERIOD).await;
        }
    }

    fn report(&self, all: &HashMap<Arc<str>, Watched>) {
        let pulls = || all.values().flat_map(|watched| &watched.pulls);
        self.progress
            .set(pulls().filter_map(Pulled::progress).collect());
        let in_flight = (self.calls)();
        for pull in pulls() {
            let observations = pull.observations();
            // It may have ended meanwhile; then its observations were taken.
            let goes_on = in_flight.iter().any(|call| call.seq == pull.seq);
            if goes_on && !observations.is_empty() {
                self.observations.put_layers(pull.seq, observations);
            }
        }
    }
}

impl Watched {
    /// Ends the connection; returns whether it must be remembered when to ask again.
    fn rest(&mut self) -> bool {
        (self.client, self.pulls) = (None, Vec::new());
        self.searches.clear();
        self.pause.is_some_and(|pause| pause > Instant::now())
    }

    /// Asks how far these pulls are.
    async fn look(&mut self, socket: &Path, calls: &[&Arc<Call>]) {
        self.pulls
            .retain(|pull| calls.iter().any(|call| call.seq == pull.seq));
        self.searches
            .retain(|seq, _| calls.iter().any(|call| call.seq == *seq));
        for call in calls {
            let image = call.subject.get().and_then(|subject| subject.image.clone());
            if let Some(image) = image
                && !self.pulls.iter().any(|pull| pull.seq == call.seq)
            {
                self.pulls
                    .push(Pulled::new(call.seq, image, call.started_at));
            }
        }
        if self.pulls.is_empty() || self.pause.is_some_and(|pause| pause > Instant::now()) {
            return;
        }
        if let Err(error) = self.ask(socket).await {
            let is_absent = matches!(error, Error::Status(tonic::Code::Unimplemented));
            tracing::debug!(
                target: "criscope::lifecycle",
                event = "containerd.content",
                error.message = %error,
                "the progress of pulls is not known"
            );
            self.client = None;
            self.pause = Some(Instant::now() + if is_absent { ABSENT } else { FAILED });
        }
    }

    async fn ask(&mut self, socket: &Path) -> Result<(), Error> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(socket).await?,
        };
        let statuses = client.statuses().await?;
        let ingests: Vec<_> = statuses.iter().filter_map(Ingest::of).collect();
        self.find_manifests(&client, &ingests).await?;
        let now = SystemTime::now();
        let only = self.pulls.len() == 1;
        let unknown = self.pulls.iter().filter(|pull| !pull.is_known()).count();
        let unattributed = ingests
            .iter()
            .filter(|it| !self.pulls.iter().any(|pull| pull.has(&it.digest)));
        let (bytes, sharing) = (unattributed.map(Ingest::bytes).sum(), unknown as u64);
        for pull in &mut self.pulls {
            if !pull.is_known() && !only {
                pull.share(bytes, sharing, now);
                continue;
            }
            let own = |it: &&Ingest| match pull.is_known() {
                true => pull.has(&it.digest),
                false => pull.may_have(it),
            };
            let own: Vec<_> = ingests.iter().filter(own).collect();
            let mut complete = Vec::new();
            for digest in pull.unsure(&ingests) {
                if let Some(info) = client.info(&digest).await? {
                    complete.push((digest, info.size.try_into().unwrap_or_default()));
                }
            }
            pull.update(&own, &complete, now);
        }
        self.client = Some(client);
        Ok(())
    }

    /// Searches for the manifests of pulls. Two pulls of one repository cannot be told apart.
    async fn find_manifests(&mut self, client: &Client, ingests: &[Ingest]) -> Result<(), Error> {
        if ingests.is_empty() {
            return Ok(());
        }
        let searches = &mut self.searches;
        let unknown = self.pulls.iter().filter(|pull| !pull.is_known());
        let mut searching: Vec<_> = unknown.map(|pull| pull.seq).collect();
        searching.retain(|seq| {
            let searches = searches.entry(*seq).or_default();
            *searches += 1;
            *searches <= SEARCHES
        });
        if searching.is_empty() {
            return Ok(());
        }
        let manifests = client.list(manifests::MANIFESTS).await?;
        for seq in searching {
            let Some(pull) = self.pulls.iter().find(|pull| pull.seq == seq) else {
                continue;
            };
            let ingests: Vec<_> = ingests.iter().filter(|it| pull.may_have(it)).collect();
            let mut own = Vec::new();
            for manifest in manifests::fitting(&manifests, &ingests).take(CANDIDATES) {
                if self.is_only_of(client, seq, manifest).await? {
                    own.push(manifest);
                }
            }
            // Several with the same layer say different things.
            if let [manifest] = &own[..] {
                let text = client.read(&manifest.digest).await?;
                let pull = self.pulls.iter_mut().find(|pull| pull.seq == seq);
                pull.into_iter().for_each(|pull| pull.know(&text));
            }
        }
        Ok(())
    }

    /// Whether a manifest can be that of this pull only.
    async fn is_only_of(&self, client: &Client, seq: u64, manifest: &Info) -> Result<bool, Error> {
        if let [only] = &self.pulls[..] {
            return Ok(only.seq == seq);
        }
        let Some(config) = manifests::config(manifest) else {
            return Ok(false);
        };
        let config = client.info(config).await?;
        let from = |pull: &&Pulled| {
            let repository = pull.repository.as_ref();
            repository.is_some_and(|it| config.as_ref().is_some_and(|config| it.has(config)))
        };
        let mut all = self.pulls.iter().filter(from);
        Ok(matches!((all.next(), all.next()), (Some(only), None) if only.seq == seq))
    }
}
