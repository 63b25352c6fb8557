//! Reports of containerd outside the CRI, on its CRI socket: the progress of image pulls, from its content service, and events
//! of containers, from its events service ([`events`]).
//!
//! A task of the side thread follows pulls. While a pull is in flight for longer than `MIN_PULL_AGE`, the task asks once a
//! second; otherwise it keeps no connection. A containerd without the service is asked again after `UNSUPPORTED_PAUSE`; nothing
//! else depends on it.
//!
//! | module | content |
//! |---|---|
//! | `client` | the calls |
//! | `manifests` | finds the manifest of a pull |
//! | `pulls` | assigns bytes to pulls, and describes their progress |
//! | `events` | the subscription to events |

mod client;
pub mod events;
mod manifests;
pub mod metrics;
pub(crate) mod pulls;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use self::client::{ContainerdClient, ContainerdError};
use self::pulls::{LayerIngest, TrackedPull};
use super::process_scanner::{InFlightCalls, Observations, Upstreams};
use super::settings;
use super::view::PullProgressView;
use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_wire::Timestamp;
use criscope_wire::services::ContentInfo;

/// Age of a pull from which containerd is asked.
const MIN_PULL_AGE: Duration = Duration::from_millis(500);

/// Interval between two questions.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after an answer that the service is missing.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(600);

/// Pause after a call that failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// Upper bound of pulls that are followed at the same time.
const MAX_PULLS: usize = 64;

/// Upper bound of searches for the manifest of a pull.
const MAX_MANIFEST_SEARCHES: u32 = 10;

/// Upper bound of manifests that are compared in one search.
const MAX_MANIFEST_CANDIDATES: usize = 8;

/// The time of a message; 1970 if it is out of range.
fn time(at: Timestamp) -> SystemTime {
    at.try_into().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The progress of pulls in flight, for pages.
#[derive(Debug, Default)]
pub struct PullProgress(Mutex<Vec<PullProgressView>>);

impl PullProgress {
    /// Returns the progress of all pulls.
    pub fn read(&self) -> Vec<PullProgressView> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, all: Vec<PullProgressView>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// The task that follows pulls.
pub struct PullWatch {
    /// Settings; `pull_progress` turns the task on.
    pub settings: settings::ContainerdSettings,
    /// The calls in flight.
    pub calls: InFlightCalls,
    /// The runtimes behind the proxy.
    pub upstreams: Upstreams,
    /// Destination for stories.
    pub observations: Arc<Observations>,
    /// Destination for pages.
    pub progress: Arc<PullProgress>,
}

impl fmt::Debug for PullWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullWatch").finish_non_exhaustive()
    }
}

/// One containerd.
#[derive(Default)]
struct WatchedContainerd {
    client: Option<ContainerdClient>,
    /// End of the pause after a failure.
    pause: Option<Instant>,
    pulls: Vec<TrackedPull>,
    /// Number of searches for the manifest of each pull.
    searches: HashMap<u64, u32>,
}

impl PullWatch {
    /// Watches until dropped.
    pub async fn run(self) {
        if !self.settings.pull_progress {
            return;
        }
        let mut all: HashMap<Arc<str>, WatchedContainerd> = HashMap::new();
        loop {
            let calls = (self.calls)();
            let pulls = calls.iter().filter(|call| {
                call.method == Method::PullImage
                    && call.steps.get().is_none()
                    && call.age() >= MIN_PULL_AGE
            });
            let pulls: Vec<_> = pulls.take(MAX_PULLS).collect();
            if pulls.is_empty() {
                if !all.is_empty() {
                    all.retain(|_, watched| watched.rest());
                    self.progress.set(Vec::new());
                }
                sleep(MIN_PULL_AGE).await;
                continue;
            }
            for upstream in (self.upstreams)()
                .into_iter()
                .filter(|upstream| upstream.is_containerd)
            {
                let own = pulls.iter().copied().filter(|call| {
                    call.route
                        .get()
                        .is_some_and(|route| *route.backend == *upstream.backend)
                });
                let own: Vec<_> = own.collect();
                let watched = all.entry(Arc::clone(&upstream.backend)).or_default();
                watched.update(&upstream.socket, &own).await;
            }
            self.report(&all);
            sleep(POLL_INTERVAL).await;
        }
    }

    fn report(&self, all: &HashMap<Arc<str>, WatchedContainerd>) {
        let pulls: Vec<_> = all.values().flat_map(|watched| &watched.pulls).collect();
        let progress = pulls.iter().filter_map(|pull| pull.progress());
        self.progress.set(progress.collect());
        let in_flight = (self.calls)();
        for pull in pulls {
            let observations = pull.observations();
            // The observations of a pull that has ended meanwhile were taken.
            let goes_on = in_flight.iter().any(|call| call.seq == pull.seq);
            if goes_on && !observations.is_empty() {
                self.observations.put_layers(pull.seq, observations);
            }
        }
    }
}

impl WatchedContainerd {
    /// Ends the connection. Returns whether a pause lasts on and must be remembered.
    fn rest(&mut self) -> bool {
        (self.client, self.pulls) = (None, Vec::new());
        self.searches.clear();
        self.pause.is_some_and(|pause| pause > Instant::now())
    }

    /// Asks for the progress of these pulls.
    async fn update(&mut self, socket: &Path, calls: &[&Arc<Call>]) {
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
                    .push(TrackedPull::new(call.seq, image, call.started_at));
            }
        }
        if self.pulls.is_empty() || self.pause.is_some_and(|pause| pause > Instant::now()) {
            return;
        }
        if let Err(error) = self.ask(socket).await {
            let is_absent = matches!(error, ContainerdError::Status(tonic::Code::Unimplemented));
            tracing::debug!(
                target: "criscope::lifecycle",
                event = "containerd.content",
                error.message = %error,
                "the progress of pulls is not known"
            );
            self.client = None;
            self.pause = Some(
                Instant::now()
                    + if is_absent {
                        UNSUPPORTED_PAUSE
                    } else {
                        FAILURE_PAUSE
                    },
            );
        }
    }

    async fn ask(&mut self, socket: &Path) -> Result<(), ContainerdError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => ContainerdClient::connect(socket).await?,
        };
        let statuses = client.statuses().await?;
        let ingests: Vec<_> = statuses
            .iter()
            .filter_map(LayerIngest::from_status)
            .collect();
        self.find_manifests(&client, &ingests).await?;
        self.find_arrived(&client, &ingests).await?;
        let now = SystemTime::now();
        let only = self.pulls.len() == 1;
        let unknown = self.pulls.iter().filter(|pull| !pull.is_known()).count();
        let unattributed = ingests
            .iter()
            .filter(|layer| !self.pulls.iter().any(|pull| pull.has(&layer.digest)));
        let (bytes, sharing) = (unattributed.map(LayerIngest::bytes).sum(), unknown as u64);
        for pull in &mut self.pulls {
            if !pull.is_known() && !only {
                pull.share(bytes, sharing, now);
                continue;
            }
            let own = ingests.iter().filter(|layer| {
                if pull.is_known() {
                    pull.has(&layer.digest)
                } else {
                    pull.may_have(layer)
                }
            });
            let own: Vec<_> = own.collect();
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
    async fn find_manifests(
        &mut self,
        client: &ContainerdClient,
        ingests: &[LayerIngest],
    ) -> Result<(), ContainerdError> {
        if ingests.is_empty() {
            return Ok(());
        }
        let searches = &mut self.searches;
        let unknown = self.pulls.iter().filter(|pull| !pull.is_known());
        let mut searching: Vec<_> = unknown.map(|pull| pull.seq).collect();
        searching.retain(|seq| {
            let searches = searches.entry(*seq).or_default();
            *searches += 1;
            *searches <= MAX_MANIFEST_SEARCHES
        });
        if searching.is_empty() {
            return Ok(());
        }
        let manifests = client.list(manifests::MANIFEST_FILTER).await?;
        for seq in searching {
            let Some(pull) = self.pulls.iter().find(|pull| pull.seq == seq) else {
                continue;
            };
            let ingests = ingests.iter().filter(|layer| pull.may_have(layer));
            let ingests: Vec<_> = ingests.collect();
            let mut own = Vec::new();
            for manifest in
                manifests::with_open_layer(&manifests, &ingests).take(MAX_MANIFEST_CANDIDATES)
            {
                if self.is_only_of(client, seq, manifest).await? {
                    own.push(manifest);
                }
            }
            // Several manifests with the same layer leave it open which one is pulled.
            if let [manifest] = &own[..] {
                let text = client.read(&manifest.digest).await?;
                let pull = self.pulls.iter_mut().find(|pull| pull.seq == seq);
                pull.into_iter().for_each(|pull| pull.set_manifest(&text));
            }
        }
        Ok(())
    }

    /// Searches for the manifests of pulls without a layer that is being written: the manifest has not come, or the layers are there.
    async fn find_arrived(
        &mut self,
        client: &ContainerdClient,
        ingests: &[LayerIngest],
    ) -> Result<(), ContainerdError> {
        if !self.pulls.iter().any(|pull| pull.has_nothing(ingests)) {
            return Ok(());
        }
        let now = SystemTime::now();
        let manifests = client.list(manifests::MANIFEST_FILTER).await?;
        for number in 0..self.pulls.len() {
            let pull = &self.pulls[number];
            let same = self.pulls.iter();
            let same = same.filter(|other| other.repository == pull.repository);
            let is_only = same.count() == 1;
            let Some(repository) = pull
                .repository
                .as_ref()
                .filter(|_| pull.has_nothing(ingests))
            else {
                continue;
            };
            let arrived = manifests::arrived_since(&manifests, repository, pull.began);
            let arrived: Vec<_> = arrived.take(2).collect();
            match &arrived[..] {
                [] => self.pulls[number].awaits_manifest(now),
                [manifest] if is_only => {
                    let text = client.read(&manifest.digest).await?;
                    self.pulls[number].set_manifest(&text);
                }
                // Several manifests leave it open which one is pulled.
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether a manifest can belong to this pull only.
    async fn is_only_of(
        &self,
        client: &ContainerdClient,
        seq: u64,
        manifest: &ContentInfo,
    ) -> Result<bool, ContainerdError> {
        if let [only] = &self.pulls[..] {
            return Ok(only.seq == seq);
        }
        let Some(config) = manifests::config(manifest) else {
            return Ok(false);
        };
        let config = client.info(config).await?;
        let mut sources = self.pulls.iter().filter(|pull| {
            let parts = pull.repository.as_ref().zip(config.as_ref());
            parts.is_some_and(|(repository, config)| repository.is_source_of(config))
        });
        Ok(matches!((sources.next(), sources.next()), (Some(only), None) if only.seq == seq))
    }
}
