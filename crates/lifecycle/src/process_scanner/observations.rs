//! Observed processes, by call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

criscope_cri::named! {
    /// The worker: the kind of process that works for a call or holds it up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum WorkKind {
        /// A fault that was injected on purpose.
        Injected = "injected",
        /// A process of the runtime that cannot go on: stopped, frozen, or blocked in the kernel.
        Blocked = "blocked",
        /// A CNI plugin.
        Cni = "cni",
        /// The OCI runtime.
        Oci = "oci",
        /// Another program that the runtime started: `umount`, `mount.nfs`, `unpigz`.
        Helper = "helper",
        /// The layers of an image that is pulled, from containerd's content service.
        Layers = "layers",
        /// The runtime itself, from a span that it exported.
        Runtime = "runtime",
    }
}

impl WorkKind {
    /// The word in a sentence: "in the CNI plugin calico".
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

criscope_cri::serde_by_name!(WorkKind);

/// A process that worked for a call, from its first to its last observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The worker.
    pub work: WorkKind,
    /// Name of the program: the type of the CNI plugin, the OCI runtime.
    pub name: Arc<str>,
    /// The command of a CNI plugin: `ADD` or `DEL`.
    pub command: Option<Arc<str>>,
    /// The program that the process started, or its command: the one that most scans saw. Programs that started each other
    /// are joined by slashes. For a blocked process it is the reason: `blocked in umount of /a/b (nfs)`.
    pub activity: Option<Arc<str>>,
    /// Begin of the work: the kernel's start time of the process, or the first observation.
    pub began: SystemTime,
    /// Time of the last observation.
    pub last_seen: SystemTime,
}

impl Observation {
    /// Words for a sentence: "in the CNI plugin calico (iptables)".
    pub fn phrase(&self) -> String {
        let (location, name) = (self.work.location(), &self.name);
        match &self.activity {
            Some(held) if self.work == WorkKind::Blocked => format!("{location} {name}, {held}"),
            Some(activity) => format!("{location} {name} ({activity})"),
            None => format!("{location} {name}"),
        }
    }
}

/// Upper bound of calls with observations.
const MAX_CALLS: usize = 1024;

/// Upper bound of observations for one call.
const MAX_OBSERVATIONS: usize = 64;

/// How long an ended call is kept if its observations are not taken.
const ENDED_CALL_KEPT: Duration = Duration::from_secs(60);

/// The observations of one call.
#[derive(Debug, Default)]
struct CallObservations {
    observations: Vec<Observation>,
    /// Observations of a pull's layers.
    layers: Vec<Observation>,
    /// Time of the first check that missed the call among the calls in flight.
    gone: Option<Instant>,
}

impl CallObservations {
    fn all(&self) -> Vec<Observation> {
        self.observations
            .iter()
            .chain(&self.layers)
            .cloned()
            .collect()
    }
}

#[derive(Debug, Default)]
struct ObservationTable {
    calls: HashMap<u64, CallObservations>,
    /// Time of the last scan.
    scanned: Option<SystemTime>,
}

/// Observations of calls in flight, by the number of the call.
#[derive(Debug, Default)]
pub struct Observations {
    store: Mutex<ObservationTable>,
}

impl Observations {
    fn lock(&self) -> MutexGuard<'_, ObservationTable> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The observations of a call in flight, in the order in which they began.
    pub fn for_call(&self, seq: u64) -> Vec<Observation> {
        let store = self.lock();
        let entry = store.calls.get(&seq);
        entry.map(CallObservations::all).unwrap_or_default()
    }

    /// The current activity of a call: "in the CNI plugin calico (iptables)". `None` if the last scan found no process that
    /// works for it.
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
        observations.truncate(MAX_OBSERVATIONS);
        let mut store = self.lock();
        if store.calls.len() >= MAX_CALLS && !store.calls.contains_key(&seq) {
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
        if store.calls.len() < MAX_CALLS || store.calls.contains_key(&seq) {
            store.calls.entry(seq).or_default().layers = layers;
        }
    }

    /// Stores the time of the last scan. Work that this scan did not see has ended.
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
            now.saturating_duration_since(gone) < ENDED_CALL_KEPT
        });
        if store.calls.is_empty() && store.calls.capacity() > 0 {
            store.calls = HashMap::new();
        }
    }

    /// Returns whether no call has observations.
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
            (observations.take(1).len(), observations.for_call(1).len()),
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
        observations.retain_at(|seq| seq == 1, start + ENDED_CALL_KEPT / 2);
        assert_eq!(
            observations.for_call(2).len(),
            1,
            "it may still be asked for"
        );
        observations.retain_at(|seq| seq == 1, start + ENDED_CALL_KEPT);
        assert_eq!(
            (
                observations.for_call(1).len(),
                observations.for_call(2).len()
            ),
            (1, 0)
        );
        observations.retain_at(|_| false, start);
        observations.retain_at(|_| false, start + ENDED_CALL_KEPT);
        assert!(observations.is_empty());
    }

    #[test]
    fn there_is_an_end_to_what_is_held() {
        let observations = Observations::default();
        let many = vec![observation(WorkKind::Cni, "bridge", None, 1); 2 * MAX_OBSERVATIONS];
        for seq in 0..MAX_CALLS as u64 {
            assert!(observations.put(seq, many.clone()));
        }
        assert_eq!(observations.for_call(0).len(), MAX_OBSERVATIONS);
        assert!(!observations.put(5000, many.clone()), "all are in flight");
        observations.retain(|seq| seq != 7);
        assert!(
            observations.put(5000, many),
            "one that has ended makes room"
        );
        assert!(observations.for_call(7).is_empty());
    }
}
