//! What was seen so far, by the call it was seen for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Whose work was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A CNI plugin.
    Cni,
    /// The OCI runtime.
    Oci,
    /// The runtime itself, by a span that it reported.
    Runtime,
}

impl WorkKind {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Cni, Self::Oci, Self::Runtime];

    /// A word for pages and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cni => "cni",
            Self::Oci => "oci",
            Self::Runtime => "runtime",
        }
    }

    /// The same in a sentence: "in the CNI plugin calico".
    const fn place(self) -> &'static str {
        match self {
            Self::Cni => "in the CNI plugin",
            Self::Oci => "in the OCI runtime",
            Self::Runtime => "in the runtime:",
        }
    }
}

crate::cri::names::serde_by_name!(WorkKind);

/// A process that worked for a call, from the first to the last time it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whose work it was.
    pub work: WorkKind,
    /// Name of the program: the CNI plugin's type, the OCI runtime.
    pub name: Arc<str>,
    /// The program it had started, or its command; what was seen most often. Programs that started each other are joined
    /// by slashes.
    pub activity: Option<Arc<str>>,
    /// When it began: its start as the kernel tells it, or when it was first seen.
    pub began: SystemTime,
    /// When it was last seen.
    pub last_seen: SystemTime,
}

impl Observation {
    /// In a few words: "in the CNI plugin calico (iptables)".
    pub fn phrase(&self) -> String {
        let (place, name) = (self.work.place(), &self.name);
        match &self.activity {
            Some(activity) => format!("{place} {name} ({activity})"),
            None => format!("{place} {name}"),
        }
    }
}

/// Most calls, and most observations of one call, that are held.
const LIMITS: (usize, usize) = (1024, 64);

/// How long after its end a call is held that nobody asks for.
const UNASKED: Duration = Duration::from_secs(60);

/// What was seen for one call.
#[derive(Debug, Default)]
struct Entry {
    observations: Vec<Observation>,
    /// Since when it is no longer in flight.
    gone: Option<Instant>,
}

#[derive(Debug, Default)]
struct EpisodeStore {
    calls: HashMap<u64, Entry>,
    /// When the last scan was made.
    scanned: Option<SystemTime>,
}

/// The observations of calls in flight, by the number of the call.
#[derive(Debug, Default)]
pub struct Observations {
    store: Mutex<EpisodeStore>,
}

impl Observations {
    fn lock(&self) -> MutexGuard<'_, EpisodeStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen for a call that is in flight, in the order in which it began.
    pub fn of(&self, seq: u64) -> Vec<Observation> {
        let store = self.lock();
        let entry = store.calls.get(&seq);
        entry.map(|e| e.observations.clone()).unwrap_or_default()
    }

    /// Where a call is now, in a few words: "in the CNI plugin calico (iptables)". `None` if the last scan found nothing
    /// that works for it.
    pub fn now(&self, seq: u64) -> Option<String> {
        let store = self.lock();
        let seen = store.calls.get(&seq)?.observations.iter();
        let still = seen.filter(|s| store.scanned.is_none_or(|scanned| s.last_seen >= scanned));
        still.max_by_key(|s| s.began).map(Observation::phrase)
    }

    /// The same for a call that has ended, which is then forgotten.
    pub fn take(&self, seq: u64) -> Vec<Observation> {
        let entry = self.lock().calls.remove(&seq);
        entry.map(|e| e.observations).unwrap_or_default()
    }

    /// Replaces what was seen for a call. False if there is no room.
    pub fn put(&self, seq: u64, mut observations: Vec<Observation>) -> bool {
        observations.truncate(LIMITS.1);
        let mut store = self.lock();
        if store.calls.len() >= LIMITS.0 && !store.calls.contains_key(&seq) {
            // A call that has ended makes room, but not one in flight.
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

    /// Notes when the last scan was made: what was last seen before it has ended.
    pub fn scanned_at(&self, at: SystemTime) {
        self.lock().scanned = Some(at);
    }

    /// Forgets calls that are no longer in flight, a minute after they ended: by then whoever wants to know has asked.
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

    /// Whether nothing is held.
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
    fn what_nobody_asks_for_is_forgotten() {
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
