//! Recovery at the start: objects of the previous run are recovered or removed.
//!
//! Guarantees:
//!
//! 1. A record is replaced atomically: the file is either the complete new one or the complete old one. Its state was true
//!    when it was written; later changes are queried from the shim, the kernel and the OCI runtime.
//! 2. Running containers keep running. Stopping the daemon stops nothing.
//! 3. Objects that were not completely created are removed and their names freed. No caller knows their ids.
//! 4. Only objects below our own directories, or recorded there, are ever removed.
//! 5. An object that cannot be recovered is reported and does not affect others. If its record cannot be used, its copy in STATE
//!    is. Without a copy, an object that may run is left alone until its record can be read, and one that does not run is
//!    removed and its record moved aside.

mod again;
mod begun;
mod checkpoints;
mod containers;
mod offers;
mod orphans;
mod pod;
mod records;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::again::Unread;
use self::pod::Pod;
use self::records::{Entry, Found, Unusable};
use super::Runtime;
use super::error::{Result, shown};
use super::sandbox::teardown::blocking;
use super::store::{Container, ContainerRecord, ContainerState, Sandbox, SandboxState};
use criscope_image::LayerLease;
use criscope_telemetry::{BackgroundJob, JobSpan};

/// Maximum number of objects that are recovered concurrently.
const CONCURRENT_RECOVERIES: usize = 16;

/// How long the start waits for recovery. The rest, for instance a hanging plugin, continues while calls are served: verbs on the
/// same object wait for it.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of problems kept in memory. All are logged.
const MAX_PROBLEMS: usize = 256;

/// An object that could not be recovered or removed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind of object.
    pub what: &'static str,
    /// The path.
    pub path: PathBuf,
    /// The description of the problem.
    pub reason: String,
}

/// All problems found at start.
#[derive(Debug, Default)]
pub(super) struct Problems(Mutex<Vec<Problem>>);

impl Runtime {
    /// The first 256 objects that could not be recovered or removed at start.
    pub fn problems(&self) -> Vec<Problem> {
        let all = self.problems.0.lock();
        all.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn problem(&self, what: &'static str, path: &Path, reason: &dyn std::fmt::Display) {
        let reason = reason.to_string();
        tracing::warn!(target: "criscope::runtime::recover", event = "runtime.recover", what, file.path = %path.display(), reason = %shown(&reason), "an object could not be recovered");
        let mut all = self.problems.0.lock();
        let all = all.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        if all.len() < MAX_PROBLEMS {
            all.push(Problem {
                what,
                path: path.to_owned(),
                reason,
            });
        }
    }

    /// Removes the problems of a path.
    pub(super) fn solved(&self, path: &Path) {
        let mut all = self.problems.0.lock();
        let all = all.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        all.retain(|problem| problem.path != path);
    }

    /// Recovers the objects of the previous run, before calls are served.
    ///
    /// # Errors
    /// If a directory of records cannot be read. Everything else is a [`Problem`].
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        let job = BackgroundJob::RuntimeRecovery.begin();
        let recovered = self.recover_all(&job).await;
        if let Err(error) = &recovered {
            job.failed("unreadable", &shown(error));
        }
        job.count("criscope.problems", self.problems().len());
        recovered
    }

    async fn recover_all(self: &Arc<Self>, job: &JobSpan) -> Result<()> {
        let paths = self.settings.paths.clone();
        let found = blocking(move || records::read(&paths)).await?;
        job.count("criscope.sandboxes", found.sandboxes.len());
        job.count("criscope.containers", found.containers.len());
        let known = Known::new(&found, |_| false);
        let mut unread = Unread::default();
        let pods = self.take_up(found, &known, &mut unread);
        let limit = Arc::new(Semaphore::new(CONCURRENT_RECOVERIES));
        let mut work = JoinSet::new();
        for pod in pods {
            let (runtime, limit) = (Arc::clone(self), Arc::clone(&limit));
            work.spawn(async move {
                let _permit = limit.acquire().await;
                runtime.recover_pod(pod).await;
            });
        }
        let orphans = self.orphans(&known).await;
        job.count(
            "criscope.orphans",
            orphans.pods.len() + orphans.containers.len(),
        );
        for id in orphans.containers {
            let (runtime, limit) = (Arc::clone(self), Arc::clone(&limit));
            work.spawn(async move {
                let _permit = limit.acquire().await;
                runtime.clear_container(&id).await;
            });
        }
        for id in orphans.pods {
            let (runtime, limit) = (Arc::clone(self), Arc::clone(&limit));
            work.spawn(async move {
                let _permit = limit.acquire().await;
                runtime.clear_pod(&id).await;
            });
        }
        let all = async {
            while let Some(done) = work.join_next().await {
                if let Err(error) = done {
                    self.problem("object", self.settings.paths.root(), &error);
                }
            }
        };
        if tokio::time::timeout(RECOVERY_TIMEOUT, all).await.is_err() {
            let still = format!(
                "recovery of {} objects takes longer than {RECOVERY_TIMEOUT:?}",
                work.len()
            );
            self.problem("start", self.settings.paths.root(), &still);
            work.detach_all();
        }
        self.read_later(unread);
        Ok(())
    }

    /// Adds the objects to the store, with their names and the leases on their layers. Objects whose records cannot be read are
    /// added to `unread`.
    fn take_up(&self, found: Found, known: &Known, unread: &mut Unread) -> Vec<Pod> {
        let (paths, mut pods) = (&self.settings.paths, Vec::new());
        for entry in found.sandboxes {
            let (id, dir) = (entry.id.clone(), entry.dir.clone());
            let Some(record) = self.valid("pod sandbox", entry, |why, runs| {
                unread.sandboxes.insert(id.clone());
                self.store.sandboxes.set_unread(&id, why);
                if runs {
                    self.store.sandbox_names.set_unknown(&id);
                }
            }) else {
                continue;
            };
            let reserved = self.store.sandbox_names.take(&record.name(), &id);
            let name = reserved.map_err(|error| self.problem("pod sandbox", &dir, &error));
            let making = record.state == SandboxState::Making;
            let sandbox = Arc::new(Sandbox::new(paths, record));
            let mut name = name.ok();
            if !making {
                name.take()
                    .into_iter()
                    .for_each(super::store::Reservation::keep);
                self.store.sandboxes.insert(&id, Arc::clone(&sandbox));
                self.measure_pod_files(&sandbox);
            }
            pods.push(Pod { sandbox, name });
        }
        for entry in found.containers {
            let (id, dir) = (entry.id.clone(), entry.dir.clone());
            let Some(record) = self.valid("container", entry, |why, runs| {
                unread.containers.insert(id.clone());
                self.store.containers.set_unread(&id, why);
                if runs {
                    self.store.container_names.set_unknown(&id);
                }
            }) else {
                continue;
            };
            if !known.containers.contains(&id) {
                continue;
            }
            if unread.sandboxes.contains(&record.sandbox) {
                let why = format!("it is in pod sandbox {}", record.sandbox);
                unread.containers.insert(id.clone());
                self.store.containers.set_unread(&id, why);
                continue;
            }
            if let Ok(sandbox) = self.store.sandboxes.get(&record.sandbox) {
                let name = record.name(&sandbox.record());
                match self.store.container_names.take(&name, &id) {
                    Ok(name) => name.keep(),
                    Err(error) => self.problem("container", &dir, &error),
                }
            }
            let layers = self.hold_layers(&record, &dir);
            let container = Arc::new(Container::new(paths, record, layers));
            self.measure_container(&container);
            self.store.containers.insert(&id, container);
        }
        pods
    }

    /// Takes leases on the layers of a container that has not exited.
    fn hold_layers(&self, record: &ContainerRecord, dir: &Path) -> Vec<LayerLease> {
        let mut layers = Vec::new();
        if record.state != ContainerState::Exited {
            let volumes = record.image_volumes.values();
            let all = volumes.map(|volume| &volume.layers).chain([&record.layers]);
            for ids in all {
                match self.live().images.hold(ids.iter().cloned()) {
                    Ok(held) => layers.push(held),
                    Err(error) => self.problem("container", dir, &error),
                }
            }
        }
        layers
    }

    /// Returns a usable record. An unusable one is reported; its object is removed as an orphan, or passed to `kept`.
    fn valid<T>(
        &self,
        what: &'static str,
        entry: Entry<T>,
        kept: impl FnOnce(String, bool),
    ) -> Option<T> {
        let dir = &entry.dir;
        if let Some(why) = entry.instead {
            self.problem(what, dir, &format!("{why}; a copy is used"));
        }
        match entry.record {
            Ok(record) => return Some(record),
            Err(Unusable::Missing) => {}
            Err(Unusable::Damaged(why)) => {
                self.problem(what, dir, &why);
                let aside = records::put_aside(&self.settings.paths, dir);
                let _reported = aside.map_err(|error| self.problem(what, dir, &error));
            }
            Err(Unusable::Kept { why, runs }) => {
                self.problem(what, dir, &why);
                kept(why, runs);
            }
        }
        None
    }
}

/// The objects to keep. All others that are found are orphans.
#[derive(Debug, Default)]
struct Known {
    /// Sandboxes, including the ones that will be undone.
    pods: BTreeSet<String>,
    containers: BTreeSet<String>,
}

impl Known {
    /// `live` returns whether a pod was recovered earlier.
    fn new(found: &Found, live: impl Fn(&str) -> bool) -> Self {
        let mut stay = BTreeSet::new();
        let mut known = Self::default();
        for entry in &found.sandboxes {
            let (stays, of_a_pod) = match &entry.record {
                Ok(record) => (true, record.state != SandboxState::Making),
                Err(Unusable::Kept { .. }) => (true, true),
                Err(_) => (false, false),
            };
            if stays {
                known.pods.insert(entry.id.clone());
            }
            if of_a_pod {
                stay.insert(entry.id.clone());
            }
        }
        let containers = found.containers.iter().filter(|entry| match &entry.record {
            // An incomplete container, or one without a pod, is an orphan: no caller can refer to it.
            Ok(record) => {
                let pod = &record.sandbox;
                record.state != ContainerState::Making && (stay.contains(pod) || live(pod))
            }
            Err(unusable) => matches!(unusable, Unusable::Kept { .. }),
        });
        known.containers = containers.map(|entry| entry.id.clone()).collect();
        known
    }
}
