//! What was seen so far, by the call it was seen for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Whose work was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A CNI plugin.
    Cni,
    /// The OCI runtime.
    Oci,
    /// The runtime itself, by a span that it reported.
    Runtime,
}

impl Work {
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

/// A process that worked for a call, from the first to the last time it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whose work it was.
    pub work: Work,
    /// Name of the program: the CNI plugin's type, the OCI runtime.
    pub name: Arc<str>,
    /// The program it had started, or its command; what was seen most often. Programs that started each other are joined
    /// by slashes.
    pub doing: Option<Arc<str>>,
    /// When it began: its start as the kernel tells it, or when it was first seen.
    pub began: SystemTime,
    /// When it was last seen.
    pub last_seen: SystemTime,
}

impl Observation {
    /// In a few words: "in the CNI plugin calico (iptables)".
    pub fn phrase(&self) -> String {
        let (place, name) = (self.work.place(), &self.name);
        match &self.doing {
            Some(doing) => format!("{place} {name} ({doing})"),
            None => format!("{place} {name}"),
        }
    }
}

/// Most calls, and most sightings of one call, that are held.
const LIMITS: (usize, usize) = (1024, 64);

/// How long after its end a call is held that nobody asks for.
const UNASKED: Duration = Duration::from_secs(60);

/// What was seen for one call.
#[derive(Debug, Default)]
struct Entry {
    sightings: Vec<Observation>,
    /// Since when it is no longer in flight.
    gone: Option<Instant>,
}

#[derive(Debug, Default)]
struct EpisodeStore {
    calls: HashMap<u64, Entry>,
    /// When the last look was made.
    looked: Option<SystemTime>,
}

/// The sightings of calls in flight, by the number of the call.
#[derive(Debug, Default)]
pub struct Observations {
    book: Mutex<EpisodeStore>,
}

impl Observations {
    fn lock(&self) -> MutexGuard<'_, EpisodeStore> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen for a call that is in flight, in the order in which it began.
    pub fn of(&self, seq: u64) -> Vec<Observation> {
        let book = self.lock();
        let entry = book.calls.get(&seq);
        entry.map(|e| e.sightings.clone()).unwrap_or_default()
    }

    /// Where a call is now, in a few words: "in the CNI plugin calico (iptables)". `None` if the last look found nothing
    /// that works for it.
    pub fn now(&self, seq: u64) -> Option<String> {
        let book = self.lock();
        let seen = book.calls.get(&seq)?.sightings.iter();
        let still = seen.filter(|s| book.looked.is_none_or(|looked| s.last_seen >= looked));
        still.max_by_key(|s| s.began).map(Observation::phrase)
    }

    /// The same for a call that has ended, which is then forgotten.
    pub fn take(&self, seq: u64) -> Vec<Observation> {
        let entry = self.lock().calls.remove(&seq);
        entry.map(|e| e.sightings).unwrap_or_default()
    }

    /// Replaces what was seen for a call. False if there is no room.
    pub fn put(&self, seq: u64, mut sightings: Vec<Observation>) -> bool {
        sightings.truncate(LIMITS.1);
        let mut book = self.lock();
        if book.calls.len() >= LIMITS.0 && !book.calls.contains_key(&seq) {
            // A call that has ended makes room, but not one in flight.
            let gone = book
                .calls
                .iter()
                .filter_map(|(seq, e)| Some((e.gone?, *seq)));
            let Some((_, oldest)) = gone.min() else {
                return false;
            };
            book.calls.remove(&oldest);
        }
        book.calls.entry(seq).or_default().sightings = sightings;
        true
    }

    /// Notes when the last look was made: what was last seen before it has ended.
    pub fn looked_at(&self, at: SystemTime) {
        self.lock().looked = Some(at);
    }

    /// Forgets calls that are no longer in flight, a minute after they ended: by then whoever wants to know has asked.
    pub fn retain(&self, in_flight: impl Fn(u64) -> bool) {
        self.retain_at(in_flight, Instant::now());
    }

    fn retain_at(&self, in_flight: impl Fn(u64) -> bool, now: Instant) {
        let mut book = self.lock();
        book.calls.retain(|seq, entry| {
            if in_flight(*seq) {
                return true;
            }
            let gone = *entry.gone.get_or_insert(now);
            now.saturating_duration_since(gone) < UNASKED
        });
        if book.calls.is_empty() && book.calls.capacity() > 0 {
            book.calls = HashMap::new();
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

    fn sighting(work: Work, name: &str, doing: Option<&str>, at: u64) -> Observation {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        Observation {
            work,
            name: name.into(),
            doing: doing.map(Arc::from),
            began: time,
            last_seen: time,
        }
    }

    #[test]
    fn where_a_call_is_now() {
        let sightings = Observations::default();
        assert_eq!(sightings.now(1), None);
        let calico = sighting(Work::Cni, "calico", Some("iptables"), 5);
        let runc = sighting(Work::Oci, "runc", Some("create"), 6);
        assert!(sightings.put(1, vec![calico.clone()]));
        let phrase = "in the CNI plugin calico (iptables)";
        assert_eq!(sightings.now(1).as_deref(), Some(phrase));
        sightings.looked_at(SystemTime::UNIX_EPOCH + Duration::from_secs(6));
        assert_eq!(sightings.now(1), None, "it has ended");
        sightings.put(1, vec![calico, runc]);
        let phrase = "in the OCI runtime runc (create)";
        assert_eq!(sightings.now(1).as_deref(), Some(phrase));
        assert_eq!((sightings.take(1).len(), sightings.of(1).len()), (2, 0));
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let sightings = Observations::default();
        let start = Instant::now();
        for seq in [1, 2] {
            sightings.put(seq, vec![sighting(Work::Cni, "bridge", None, 1)]);
        }
        sightings.retain_at(|seq| seq == 1, start);
        sightings.retain_at(|seq| seq == 1, start + UNASKED / 2);
        assert_eq!(sightings.of(2).len(), 1, "it may still be asked for");
        sightings.retain_at(|seq| seq == 1, start + UNASKED);
        assert_eq!((sightings.of(1).len(), sightings.of(2).len()), (1, 0));
        sightings.retain_at(|_| false, start);
        sightings.retain_at(|_| false, start + UNASKED);
        assert!(sightings.is_empty());
    }

    #[test]
    fn there_is_an_end_to_what_is_held() {
        let sightings = Observations::default();
        let many = vec![sighting(Work::Cni, "bridge", None, 1); 2 * LIMITS.1];
        for seq in 0..LIMITS.0 as u64 {
            assert!(sightings.put(seq, many.clone()));
        }
        assert_eq!(sightings.of(0).len(), LIMITS.1);
        assert!(!sightings.put(5000, many.clone()), "all are in flight");
        sightings.retain(|seq| seq != 7);
        assert!(sightings.put(5000, many), "one that has ended makes room");
        assert!(sightings.of(7).is_empty());
    }
}
