//! Maps ids to pods and backends: most calls carry only the id of a sandbox or container.
//!
//! The index is filled from the calls that pass, and from the backends' lists at startup, after each reconnect, and when a call
//! names an unknown id. It is bounded: the least recently used entry is evicted.

pub(crate) mod metrics;
pub mod settings;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use crate::cri::lists::{ListedContainer, ListedSandbox};
use crate::cri::subject::{ContainerIdentity, PodIdentity, Subject};

/// A sandbox.
#[derive(Clone, Debug)]
pub struct SandboxEntry {
    /// The pod.
    pub pod: Arc<PodIdentity>,
    /// The backend that has it.
    pub backend: Arc<str>,
}

/// A container.
#[derive(Clone, Debug)]
pub struct ContainerEntry {
    /// The container within its pod.
    pub container: Arc<ContainerIdentity>,
    /// The sandbox it is in.
    pub sandbox_id: Arc<str>,
    /// The backend that has it.
    pub backend: Arc<str>,
}

/// Pods, containers and backends by the ids of sandboxes and containers.
#[derive(Debug)]
pub struct PodIndex {
    tables: Mutex<IndexTables>,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Notified when a call names an unknown id.
    unknown: tokio::sync::Notify,
}

#[derive(Debug)]
struct IndexTables {
    sandboxes: IndexTable<SandboxEntry>,
    containers: IndexTable<ContainerEntry>,
}

/// How many removed objects of each kind are kept: the kubelet asks for some once more.
const MAX_REMOVED_KEPT: usize = 128;

/// Objects of one kind.
#[derive(Debug)]
struct IndexTable<V> {
    entries: LruCache<Arc<str>, V>,
    limit: usize,
    removed: VecDeque<Arc<str>>,
}

impl<V> IndexTable<V> {
    fn new(limit: usize) -> Self {
        Self {
            // Grows with its contents; a preallocated one would take all its memory at once.
            entries: LruCache::unbounded(),
            limit: limit.max(1),
            removed: VecDeque::new(),
        }
    }

    fn insert(&mut self, id: Arc<str>, entry: V) {
        self.entries.put(id, entry);
        if self.entries.len() > self.limit {
            self.entries.pop_lru();
        }
    }

    fn find(&mut self, id: &str) -> Option<(Arc<str>, &V)> {
        if self.entries.contains(id) {
            let found = self.entries.get_key_value(id);
            return found.map(|(k, v)| (Arc::clone(k), v));
        }
        if id.len() >= FULL_ID_LENGTH {
            return None;
        }
        // Like containerd, accept a prefix if it is unique.
        let mut matches = self.entries.iter().filter(|(k, _)| k.starts_with(id));
        match (matches.next(), matches.next()) {
            (Some((k, v)), None) => Some((Arc::clone(k), v)),
            _ => None,
        }
    }

    /// Moves an object to the removed ones, and drops the one removed longest ago.
    fn retire(&mut self, id: &str) {
        let Some((id, _)) = self.find(id) else {
            return;
        };
        // Removal is idempotent in the CRI.
        if self.removed.contains(&id) {
            return;
        }
        self.removed.push_back(id);
        if self.removed.len() > MAX_REMOVED_KEPT
            && let Some(oldest) = self.removed.pop_front()
        {
            self.entries.pop(&oldest);
        }
    }
}

/// Full ids have 64 characters; people may type a prefix.
const FULL_ID_LENGTH: usize = 64;

/// Replaces an id by the equal one of the table, so that records of many calls share it.
fn share(id: &mut Option<Arc<str>>, known: Arc<str>) {
    if id.as_deref() == Some(&*known) {
        *id = Some(known);
    }
}

impl PodIndex {
    /// An empty index with these limits.
    pub fn new(sandboxes: usize, containers: usize) -> Self {
        let tables = IndexTables {
            sandboxes: IndexTable::new(sandboxes),
            containers: IndexTable::new(containers),
        };
        Self {
            tables: Mutex::new(tables),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            unknown: tokio::sync::Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, IndexTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes a subject from its ids, container to sandbox to pod, and shares them.
    pub fn complete(&self, subject: &mut Subject) {
        if subject.container_id.is_none() && subject.sandbox_id.is_none() {
            return;
        }
        let mut tables = self.lock();
        let mut known = true;
        if let Some(id) = &subject.container_id {
            match tables.containers.find(id) {
                Some((id, entry)) => {
                    subject
                        .container
                        .get_or_insert_with(|| Arc::clone(&entry.container));
                    subject
                        .sandbox_id
                        .get_or_insert_with(|| Arc::clone(&entry.sandbox_id));
                    share(&mut subject.container_id, id);
                }
                None => known = false,
            }
        }
        if let Some(id) = &subject.sandbox_id {
            match tables.sandboxes.find(id) {
                Some((id, entry)) => {
                    subject.pod.get_or_insert_with(|| Arc::clone(&entry.pod));
                    share(&mut subject.sandbox_id, id);
                }
                None => known = false,
            }
        }
        drop(tables);
        let counter = if known { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        if !known {
            self.unknown.notify_one();
        }
    }

    /// The pod and container of a full id, for events of a runtime. Unlike the look-up of a call, an unknown id
    /// does not make criscope ask the runtimes for it.
    pub fn subject_of(&self, id: &str) -> Option<Subject> {
        let mut tables = self.lock();
        let of_container = tables.containers.entries.get_key_value(id);
        let mut subject = match of_container {
            Some((id, entry)) => Subject {
                container_id: Some(Arc::clone(id)),
                container: Some(Arc::clone(&entry.container)),
                sandbox_id: Some(Arc::clone(&entry.sandbox_id)),
                ..Subject::default()
            },
            None => Subject {
                sandbox_id: Some(id.into()),
                ..Subject::default()
            },
        };
        let sandbox = tables
            .sandboxes
            .entries
            .get(subject.sandbox_id.as_deref()?)?;
        subject.pod = Some(Arc::clone(&sandbox.pod));
        Some(subject)
    }

    /// The backend that has the sandbox or container of a subject.
    pub fn owner(&self, subject: &Subject) -> Option<Arc<str>> {
        let mut tables = self.lock();
        if let Some(id) = &subject.container_id
            && let Some((_, entry)) = tables.containers.find(id)
        {
            return Some(Arc::clone(&entry.backend));
        }
        let (_, entry) = tables.sandboxes.find(subject.sandbox_id.as_ref()?)?;
        Some(Arc::clone(&entry.backend))
    }

    /// The backend that has a pod of this uid.
    pub fn owner_of_pod(&self, uid: &str) -> Option<Arc<str>> {
        let tables = self.lock();
        let mut sandboxes = tables.sandboxes.entries.iter();
        let (_, entry) = sandboxes.find(|(_, entry)| &*entry.pod.uid == uid)?;
        Some(Arc::clone(&entry.backend))
    }

    /// Adds a sandbox.
    pub fn insert_sandbox(&self, id: Arc<str>, entry: SandboxEntry) {
        self.lock().sandboxes.insert(id, entry);
    }

    /// Adds a container.
    pub fn insert_container(&self, id: Arc<str>, entry: ContainerEntry) {
        self.lock().containers.insert(id, entry);
    }

    /// Adds a sandbox from a backend's list.
    pub fn insert_listed_sandbox(&self, sandbox: &ListedSandbox, backend: &Arc<str>) {
        let entry = SandboxEntry {
            pod: Arc::clone(&sandbox.pod),
            backend: Arc::clone(backend),
        };
        self.insert_sandbox(Arc::clone(&sandbox.id), entry);
    }

    /// Adds a container from a backend's list.
    pub fn insert_listed_container(&self, container: &ListedContainer, backend: &Arc<str>) {
        let entry = ContainerEntry {
            container: Arc::clone(&container.container),
            sandbox_id: Arc::clone(&container.sandbox_id),
            backend: Arc::clone(backend),
        };
        self.insert_container(Arc::clone(&container.id), entry);
    }

    /// Marks a sandbox as removed. It is kept for a while, for late calls.
    pub fn sandbox_removed(&self, id: &str) {
        self.lock().sandboxes.retire(id);
    }

    /// Marks a container as removed. It is kept for a while, for late calls.
    pub fn container_removed(&self, id: &str) {
        self.lock().containers.retire(id);
    }

    /// Numbers of sandboxes and containers.
    pub fn len(&self) -> (usize, usize) {
        let tables = self.lock();
        (
            tables.sandboxes.entries.len(),
            tables.containers.entries.len(),
        )
    }

    /// Numbers of complete and of incomplete lookups.
    pub fn lookups(&self) -> (u64, u64) {
        (
            self.hits.load(Ordering::Relaxed),
            self.misses.load(Ordering::Relaxed),
        )
    }

    /// Resolves when a call names an unknown id.
    pub async fn unknown_id(&self) {
        self.unknown.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_with(sandboxes: usize) -> PodIndex {
        let index = PodIndex::new(1000, 1000);
        for i in 0..sandboxes {
            let pod = PodIdentity {
                name: format!("pod-{i}").into(),
                uid: format!("uid-{i}").into(),
                ..PodIdentity::default()
            };
            let entry = SandboxEntry {
                pod: Arc::new(pod),
                backend: "a".into(),
            };
            index.insert_sandbox(format!("{i:064}").into(), entry);
        }
        index
    }

    fn container_of(index: &PodIndex, id: &str, sandbox: &str) {
        let entry = ContainerEntry {
            container: Arc::default(),
            sandbox_id: sandbox.into(),
            backend: "a".into(),
        };
        index.insert_container(id.into(), entry);
    }

    fn pod_of(index: &PodIndex, container: &str) -> Option<String> {
        let mut subject = Subject {
            container_id: Some(container.into()),
            ..Subject::default()
        };
        index.complete(&mut subject);
        Some(subject.pod?.name.to_string())
    }

    #[test]
    fn a_container_leads_to_its_pod() {
        let index = index_with(3);
        container_of(&index, "c1", &format!("{:064}", 2));
        assert_eq!(pod_of(&index, "c1").as_deref(), Some("pod-2"));
        assert_eq!(pod_of(&index, "other"), None);
        assert_eq!(index.lookups(), (1, 1));
    }

    #[test]
    fn the_ids_of_calls_are_those_of_the_index() {
        let index = index_with(1);
        container_of(&index, "c1", &format!("{:064}", 0));
        let subject_of = |container: Option<&str>, sandbox: Option<&str>| {
            let mut subject = Subject {
                container_id: container.map(Arc::from),
                sandbox_id: sandbox.map(Arc::from),
                ..Subject::default()
            };
            index.complete(&mut subject);
            (subject.container_id, subject.sandbox_id)
        };
        let shared = |one: Option<Arc<str>>, other: Option<Arc<str>>| {
            Arc::ptr_eq(&one.expect("an id"), &other.expect("an id"))
        };
        let (first, second) = (subject_of(Some("c1"), None), subject_of(Some("c1"), None));
        assert!(shared(first.0, second.0));
        let id = format!("{:064}", 0);
        let (first, second) = (subject_of(None, Some(&id)), subject_of(None, Some(&id)));
        assert!(shared(first.1, second.1));
        // What was typed stays as it was.
        assert_eq!(subject_of(Some("c"), None).0.as_deref(), Some("c"));
    }

    #[test]
    fn a_prefix_counts_if_it_is_unique() {
        let index = index_with(1);
        container_of(&index, "abc1", &format!("{:064}", 0));
        assert_eq!(pod_of(&index, "abc").as_deref(), Some("pod-0"));
        container_of(&index, "abc2", &format!("{:064}", 0));
        assert_eq!(pod_of(&index, "abc"), None);
    }

    #[test]
    fn removed_objects_stay_known_for_a_while_and_no_longer() {
        let index = index_with(500);
        for i in 0..500 {
            let id = format!("{i:064}");
            index.sandbox_removed(&id);
            index.sandbox_removed(&id);
        }
        assert_eq!(index.len().0, MAX_REMOVED_KEPT);
        assert!(index.owner_of_pod("uid-499").is_some());
        assert!(index.owner_of_pod("uid-0").is_none());
    }

    #[test]
    fn the_index_is_bounded() {
        assert_eq!(index_with(5000).len().0, 1000);
    }
}
