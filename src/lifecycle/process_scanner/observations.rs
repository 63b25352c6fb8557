//! Observed processes, by call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Who did the work, or what holds it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A fault that was injected on purpose.
    Injected,
    /// A process of the runtime that cannot go on: stopped, frozen, or blocked in the kernel.
    Blocked,
    /// A CNI plugin.
    Cni,
    /// The OCI runtime.
    Oci,
    /// Another program that the runtime started: `umount`, `mount.nfs`, `unpigz`.
    Helper,
    /// The layers of an image that is pulled, from containerd's content service.
    Layers,
    /// The runtime itself, from a span that it exported.
    Runtime,
}

impl WorkKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Injected,
        Self::Blocked,
        Self::Cni,
        Self::Oci,
        Self::Helper,
        Self::Layers,
        Self::Runtime,
    ];

    /// The word on pages and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Blocked => "blocked",
            Self::Cni => "cni",
            Self::Oci => "oci",
            Self::Helper => "helper",
            Self::Layers => "layers",
            Self::Runtime => "runtime",
        }
    }

    /// The same in a sentence, as "in the CNI plugin calico".
    const fn location(self) -> &'static str {
        match self {
            Self::Injected | Self::Blocked => "in",
            Self::Cni => "in the CNI plugin",
            Self::Oci => "in the OCI runtime",
            Self::Helper => "in the program",
            Self::Layers => "in the layers'",
            Self::Runtime => "in the runtime:",
        }
    }
}

crate::cri::names::serde_by_name!(WorkKind);

/// A process that worked for a call, from its first to its last observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Who did the work.
    pub work: WorkKind,
    /// Name of the program: the type of the CNI plugin, the OCI runtime.
    pub name: Arc<str>,
    /// The command of a CNI plugin: `ADD` or `DEL`.
    pub command: Option<Arc<str>>,
    /// The program it started, or its command; the most frequent observation. Programs that started each other are joined
    /// by slashes. What holds up a blocked process: `blocked in umount of /a/b (nfs)`.
    pub activity: Option<Arc<str>>,
    /// When it began: the kernel's start time of the process, or the first observation.
    pub began: SystemTime,
    /// When it was last observed.
    pub last_seen: SystemTime,
}

impl Observation {
    /// As "in the CNI plugin calico (iptables)".
    pub fn phrase(&self) -> String {
        let (location, name) = (self.work.location(), &self.name);
        match &self.activity {
            Some(held) if self.work == WorkKind::Blocked => format!("{location} {name}, {held}"),
            Some(activity) => format!("{location} {name} ({activity})"),
            None => format!("{location} {name}"),
        }
    }
}

/// Most calls, and most observations of one call.
const LIMITS: (usize, usize) = (1024, 64);

/// How long an ended call is kept if its observations are not taken.
const UNASKED: Duration = Duration::from_secs(60);

/// The observations of one call.
#[derive(Debug, Default)]
struct Entry {
    observations: Vec<Observation>,
    /// Those of a pull's layers.
    layers: Vec<Observation>,
    /// When it was first missing among the calls in flight.
    gone: Option<Instant>,
}

impl Entry {
    fn all(&self) -> Vec<Observation> {
        self.observations
            .iter()
            .chain(&self.layers)
            .cloned()
            .collect()
    }
}

#[derive(Debug, Default)]
struct EpisodeStore {
    calls: HashMap<u64, Entry>,
    /// Time of the last scan.
    scanned: Option<SystemTime>,
}

/// Observations of calls in flight, by the number of the call.
#[derive(Debug, Default)]
pub struct Observations {
    store: Mutex<EpisodeStore>,
}

impl Observations {
    fn lock(&self) -> MutexGuard<'_, EpisodeStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The observations of a call in flight, in the order in which they began.
    pub fn of(&self, seq: u64) -> Vec<Observation> {
        let store = self.lock();
        let entry = store.calls.get(&seq);
        entry.map(Entry::all).unwrap_or_default()
    }

    /// The current activity of a call, as "in the CNI plugin calico (iptables)". `None` if the last scan found no process
    /// that works for it.
    pub fn now(&self, seq: u64) -> Option<String> {
        let store = self.lock();
        let seen = store.calls.get(&seq)?.observations.iter();
        let still = seen.filter(|s| store.scanned.is_none_or(|scanned| s.last_seen >= scanned));
        still.max_by_key(|s| s.began).map(Observation::phrase)
    }

    /// Removes the observations of a call that has ended, and returns them.
    pub fn take(&self, seq: u64) -> Vec<Observation> {
        let entry = self.lock().calls.remove(&seq);
        entry.map(|e| e.all()).unwrap_or_default()
    }

    /// Replaces the observations of a call. Returns false if there is no room.
    pub fn put(&self, seq: u64, mut observations: Vec<Observation>) -> bool {
        observations.truncate(LIMITS.1);
        let mut store = self.lock();
        if store.calls.len() >= LIMITS.0 && !store.calls.contains_key(&seq) {
            // An ended call makes room, a call in flight does not.
            let gone = store
                .calls
                .iter()
                .filter_map(|(seq, e)| Some((e.gone?, *seq)));
            let Some((_, oldest)) = gone.min() else {
                return false;
            };
            store.calls.remove(&oldest);
        }
        store.calls.entry(seq).or_default().observations = observations;
        true
    }

    /// Replaces the observations of a pull's layers, if there is room.
    pub fn put_layers(&self, seq: u64, layers: Vec<Observation>) {
        let mut store = self.lock();
        if store.calls.len() < LIMITS.0 || store.calls.contains_key(&seq) {
            store.calls.entry(seq).or_default().layers = layers;
        }
    }

    /// Stores the time of the last scan: work last seen before it has ended.
    pub fn scanned_at(&self, at: SystemTime) {
        self.lock().scanned = Some(at);
    }

    /// Returns whether processes were scanned after this time.
    pub fn is_scanned_since(&self, at: SystemTime) -> bool {
        self.lock().scanned.is_some_and(|scanned| scanned > at)
    }

    /// Removes calls a minute after they ended: by then the aggregator has taken their observations.
    pub fn retain(&self, in_flight: impl Fn(u64) -> bool) {
        self.retain_at(in_flight, Instant::now());
    }

    fn retain_at(&self, in_flight: impl Fn(u64) -> bool, now: Instant) {
        let mut store = self.lock();
        store.calls.retain(|seq, entry| {
            if in_flight(*seq) {
                return true;
            }
            let gone = *entry.gone.get_or_insert(now);
            now.saturating_duration_since(gone) < UNASKED
        });
        if store.calls.is_empty() && store.calls.capacity() > 0 {
            store.calls = HashMap::new();
        }
    }

    /// Returns whether it holds no call.
    pub fn is_empty(&self) -> bool {
        self.lock().calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(work: WorkKind, name: &str, activity: Option<&str>, at: u64) -> Observation {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        Observation {
            work,
            name: name.into(),
            command: None,
            activity: activity.map(Arc::from),
            began: time,
            last_seen: time,
        }
    }

    #[test]
    fn where_a_call_is_now() {
        let observations = Observations::default();
        assert_eq!(observations.now(1), None);
        let calico = observation(WorkKind::Cni, "calico", Some("iptables"), 5);
        let runc = observation(WorkKind::Oci, "runc", Some("create"), 6);
        assert!(observations.put(1, vec![calico.clone()]));
        let phrase = "in the CNI plugin calico (iptables)";
        assert_eq!(observations.now(1).as_deref(), Some(phrase));
        observations.scanned_at(SystemTime::UNIX_EPOCH + Duration::from_secs(6));
        assert_eq!(observations.now(1), None, "it has ended");
        observations.put(1, vec![calico, runc]);
        let phrase = "in the OCI runtime runc (create)";
        assert_eq!(observations.now(1).as_deref(), Some(phrase));
        assert_eq!(
            (observations.take(1).len(), observations.of(1).len()),
            (2, 0)
        );
    }

    #[test]
    fn what_is_not_asked_for_is_forgotten() {
        let observations = Observations::default();
        let start = Instant::now();
        for seq in [1, 2] {
            observations.put(seq, vec![observation(WorkKind::Cni, "bridge", None, 1)]);
        }
        observations.retain_at(|seq| seq == 1, start);
        observations.retain_at(|seq| seq == 1, start + UNASKED / 2);
        assert_eq!(observations.of(2).len(), 1, "it may still be asked for");
        observations.retain_at(|seq| seq == 1, start + UNASKED);
        assert_eq!((observations.of(1).len(), observations.of(2).len()), (1, 0));
        observations.retain_at(|_| false, start);
        observations.retain_at(|_| false, start + UNASKED);
        assert!(observations.is_empty());
    }

    #[test]
    fn there_is_an_end_to_what_is_held() {
        let observations = Observations::default();
        let many = vec![observation(WorkKind::Cni, "bridge", None, 1); 2 * LIMITS.1];
        for seq in 0..LIMITS.0 as u64 {
            assert!(observations.put(seq, many.clone()));
        }
        assert_eq!(observations.of(0).len(), LIMITS.1);
        assert!(!observations.put(5000, many.clone()), "all are in flight");
        observations.retain(|seq| seq != 7);
        assert!(
            observations.put(5000, many),
            "one that has ended makes room"
        );
        assert!(observations.of(7).is_empty());
    }
}
