//! Leases that are kept up to date by a watch. Nothing is sent while nothing changes, except for a new watch every five minutes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::random_part;

/// Longest delay before the next try after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A watch that ends sooner than this is not begun again at once.
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);

/// Leases by name.
pub type Leases = BTreeMap<String, Lease>;

/// Leases with a label, kept up to date until the last copy of this is dropped.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    leases: Arc<Mutex<Leases>>,
    changes: watch::Receiver<u64>,
    _task: Arc<WatchTask>,
}

#[derive(Debug)]
struct WatchTask(JoinHandle<()>);

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LeaseWatch {
    /// Watches the Leases that a label selector chooses.
    pub fn start(api: Api<Lease>, selector: &str) -> Self {
        let leases = Arc::new(Mutex::new(Leases::new()));
        let (sender, changes) = watch::channel(0);
        let kept = Kept {
            api,
            selector: selector.to_owned(),
            leases: Arc::clone(&leases),
            sender,
        };
        Self {
            leases,
            changes,
            _task: Arc::new(WatchTask(tokio::spawn(kept.run()))),
        }
    }

    /// Waits until the Leases have changed since the last call. The first call waits until they are known.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The task has panicked.
            std::future::pending::<()>().await;
        }
    }

    /// Calls a function with the Leases.
    pub fn read<T>(&self, read: impl FnOnce(&Leases) -> T) -> T {
        read(&lock(&self.leases))
    }

    /// A Lease.
    pub fn get(&self, name: &str) -> Option<Lease> {
        self.read(|leases| leases.get(name).cloned())
    }

    /// Takes over an answer of the API server, which the watch may not have reported yet.
    pub fn put(&self, lease: Lease) {
        let mut leases = lock(&self.leases);
        if let Some(name) = lease.metadata.name.clone()
            && leases.contains_key(&name)
        {
            update(&mut leases, name, lease);
        }
    }
}

fn lock(leases: &Mutex<Leases>) -> MutexGuard<'_, Leases> {
    leases.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces a Lease, unless a newer version is known. Versions of an object are numbers that grow.
fn update(leases: &mut Leases, name: String, lease: Lease) {
    let known = leases.get(&name).and_then(version);
    if known.is_none() || version(&lease) >= known {
        leases.insert(name, lease);
    }
}

fn version(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

struct Kept {
    api: Api<Lease>,
    selector: String,
    leases: Arc<Mutex<Leases>>,
    sender: watch::Sender<u64>,
}

impl Kept {
    async fn run(self) {
        let mut delay = Duration::from_millis(500);
        loop {
            match self.list_and_watch().await {
                // The API server no longer has the version from which the watch would go on.
                Ok(()) => delay = Duration::from_millis(500),
                Err(error) => {
                    tracing::warn!(event = "agent.rollout", %error, "cannot watch Leases");
                    delay = (delay * 2).min(MAX_RETRY_DELAY);
                }
            }
            sleep(delay / 2 + random_part(delay / 2)).await;
        }
    }

    async fn list_and_watch(&self) -> kube::Result<()> {
        let list = self
            .api
            .list(&ListParams::default().labels(&self.selector))
            .await?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let named = list.items.into_iter();
        let named = named.filter_map(|lease| Some((lease.metadata.name.clone()?, lease)));
        let listed: Leases = named.collect();
        self.change(|leases| *leases = listed);
        let params = WatchParams::default().labels(&self.selector);
        loop {
            let begin = Instant::now();
            let mut events = self.api.watch(&params, &version).await?.boxed();
            while let Some(event) = events.next().await {
                let (lease, is_deleted) = match event? {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (lease, false),
                    WatchEvent::Deleted(lease) => (lease, true),
                    WatchEvent::Bookmark(bookmark) => {
                        version = bookmark.metadata.resource_version;
                        continue;
                    }
                    WatchEvent::Error(_) => return Ok(()),
                };
                version = lease.metadata.resource_version.clone().unwrap_or(version);
                let name = lease.metadata.name.clone().unwrap_or_default();
                self.change(|leases| {
                    if is_deleted {
                        leases.remove(&name);
                    } else {
                        update(leases, name, lease);
                    }
                });
            }
            if begin.elapsed() < MIN_WATCH_TIME {
                sleep(random_part(MIN_WATCH_TIME)).await;
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Leases)) {
        change(&mut lock(&self.leases));
        self.sender.send_modify(|changes| *changes += 1);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    #[test]
    fn an_older_version_replaces_no_newer_one() {
        let mut leases = Leases::new();
        for (version, expected) in [("9", "9"), ("11", "11"), ("10", "11"), ("12", "12")] {
            let lease = Lease {
                metadata: ObjectMeta {
                    resource_version: Some(version.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: None,
            };
            update(&mut leases, "a".to_owned(), lease);
            let known = leases["a"].metadata.resource_version.as_deref();
            assert_eq!(known, Some(expected));
        }
    }
}
