//! What is left of the last run, taken up again or taken away.
//!
//! What may be counted on:
//!
//! 1. A record is whole or the one before it is: it is replaced in one step. What its state says was true when it was
//!    written; what came after it is known by the shim, the kernel and the OCI runtime, and they are asked.
//! 2. What runs goes on running. Nothing is stopped because the daemon was.
//! 3. What never was finished being made is taken away, and its name is free. Nobody was told that it exists.
//! 4. Only what lies below our own directories, or is written down there, is ever taken away.
//! 5. One object that cannot be taken up is reported, taken away and its record put aside; it harms no other.

mod begun;
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

use self::pod::Pod;
use self::records::{Entry, Found};
use super::Runtime;
use super::error::{Result, shown};
use super::sandbox::teardown::blocking;
use super::store::{Container, ContainerState, Sandbox, SandboxState};

/// Objects that are worked on at the same time.
const AT_ONCE: usize = 16;

/// How long a start waits. What takes longer, a plugin that hangs for instance, goes on while calls are served: verbs on
/// the same object wait for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Problems that are kept. All are logged.
const MAX_PROBLEMS: usize = 256;

/// Something that could not be taken up or taken away.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Of which kind it is.
    pub what: &'static str,
    /// Where it lies.
    pub path: PathBuf,
    /// In words.
    pub reason: String,
}

/// All problems of a start.
#[derive(Debug, Default)]
pub(super) struct Problems(Mutex<Vec<Problem>>);

impl Runtime {
    /// What could not be taken up or taken away when the runtime was opened, the first 256.
    pub fn problems(&self) -> Vec<Problem> {
        let all = self.problems.0.lock();
        all.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn problem(
        &self,
        what: &'static str,
        path: &Path,
        reason: &(impl ToString + ?Sized),
    ) {
        let reason = reason.to_string();
        tracing::warn!(event = "runtime.recover", what, path = %path.display(), reason = %shown(&reason), "not taken up again");
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

    /// Takes up what is left of the last run, before anything is served.
    ///
    /// # Errors
    /// The directories of all records cannot be read. Everything else is a [`Problem`].
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        let paths = self.settings.paths.clone();
        let found = blocking(move || records::read(&paths)).await?;
        let known = Known::of(&found);
        let pods = self.take_up(found, &known);
        let limit = Arc::new(Semaphore::new(AT_ONCE));
        let mut work = JoinSet::new();
        for pod in pods {
            let (runtime, limit) = (Arc::clone(self), Arc::clone(&limit));
            work.spawn(async move {
                let _permit = limit.acquire().await;
                runtime.recover_pod(pod).await;
            });
        }
        let orphans = self.orphans(&known).await;
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
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            let still = format!("{} objects take longer than {PATIENCE:?}", work.len());
            self.problem("start", self.settings.paths.root(), &still);
            work.detach_all();
        }
        Ok(())
    }

    /// Puts what is known into memory, names and layers included: from here on nobody else can have them.
    fn take_up(&self, found: Found, known: &Known) -> Vec<Pod> {
        let mut pods = Vec::new();
        for entry in found.sandboxes {
            let Some(record) = self.valid("pod sandbox", &entry.dir, entry.record) else {
                continue;
            };
            let reserved = self.store.sandbox_names.reserve(&record.name(), &entry.id);
            let name = reserved.map_err(|error| self.problem("pod sandbox", &entry.dir, &error));
            let making = record.state == SandboxState::Making;
            let sandbox = Arc::new(Sandbox::new(entry.dir, record));
            let mut name = name.ok();
            if !making {
                name.take()
                    .into_iter()
                    .for_each(super::store::Reservation::keep);
                self.store.sandboxes.insert(&entry.id, Arc::clone(&sandbox));
            }
            pods.push(Pod { sandbox, name });
        }
        for entry in found.containers {
            let Some(record) = self.valid("container", &entry.dir, entry.record) else {
                continue;
            };
            if !known.containers.contains(&entry.id) {
                continue;
            }
            if let Ok(sandbox) = self.store.sandboxes.get(&record.sandbox) {
                let name = record.name(&sandbox.record());
                match self.store.container_names.reserve(&name, &entry.id) {
                    Ok(name) => name.keep(),
                    Err(error) => self.problem("container", &entry.dir, &error),
                }
            }
            let mut layers = Vec::new();
            if record.state != ContainerState::Exited {
                let volumes = record.image_volumes.values();
                let all = volumes.map(|volume| &volume.layers).chain([&record.layers]);
                for ids in all {
                    match self.images.hold(ids.iter().cloned()) {
                        Ok(held) => layers.push(held),
                        Err(error) => self.problem("container", &entry.dir, &error),
                    }
                }
            }
            let container = Container::new(entry.dir, record, layers);
            self.store.containers.insert(&entry.id, Arc::new(container));
        }
        pods
    }

    /// A record that can be used. One that cannot is reported; what it was of is cleared like all that has no record.
    fn valid<T>(
        &self,
        what: &'static str,
        dir: &Path,
        record: std::result::Result<T, records::Unusable>,
    ) -> Option<T> {
        match record {
            Ok(record) => Some(record),
            Err(unusable) => {
                if let records::Unusable::Damaged(reason) = unusable {
                    self.problem(what, dir, &reason);
                    let aside = records::put_aside(&self.settings.paths, dir);
                    let _reported = aside.map_err(|error| self.problem(what, dir, &error));
                }
                None
            }
        }
    }
}

/// The objects that stay. Everything else that is found is nobody's.
#[derive(Debug, Default)]
struct Known {
    /// Sandboxes, also those that are to be undone as a whole.
    pods: BTreeSet<String>,
    containers: BTreeSet<String>,
}

impl Known {
    fn of(found: &Found) -> Self {
        let usable = |entry: &Entry<_>| entry.record.is_ok();
        let sandboxes = found.sandboxes.iter().filter(|entry| usable(entry));
        let mut stay = BTreeSet::new();
        let mut known = Self::default();
        for entry in sandboxes {
            known.pods.insert(entry.id.clone());
            if let Ok(record) = &entry.record
                && record.state != SandboxState::Making
            {
                stay.insert(entry.id.clone());
            }
        }
        let containers = found.containers.iter().filter(|entry| {
            let record = entry.record.as_ref();
            // Half made, or of a pod that is none: nobody can ask for it.
            record.is_ok_and(|record| {
                record.state != ContainerState::Making && stay.contains(&record.sandbox)
            })
        });
        known.containers = containers.map(|entry| entry.id.clone()).collect();
        known
    }
}
