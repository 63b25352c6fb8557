//! The kubelet's relist (PLEG), rebuilt from its calls.
//!
//! The kubelet lists all sandboxes and then all containers, asks for the status of what has changed, waits a second and
//! begins anew; all in sequence. It declares itself not ready (`PLEG is not healthy`) three minutes after the begin of the
//! last relist whose lists succeeded. Only that loop lists sandboxes without a filter, or with an empty one, and containers with
//! an empty one right after; the image garbage collector does the same once in some minutes, and is told apart by its rhythm. The end of a relist
//! is not a call: it is taken to be a second before the next begins.
//!
//! A kubelet with evented PLEG, which holds GetContainerEvents open, lists every five minutes and is not judged.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use criscope_cri::Method;
use criscope_cri::call::CallRecord;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units;
use criscope_cri::units::times::{UnixMicros, millis};

/// Pause between two relists.
const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// The kubelet is not ready when its last relist began longer ago.
pub(crate) const RELIST_LIMIT: Duration = Duration::from_secs(180);
/// A relist that takes longer is reported.
const SLOW_RELIST: Duration = Duration::from_secs(60);
/// A relist within this time needs no second look.
const USUAL_RELIST: Duration = Duration::from_secs(3);
/// Two pairs of lists within this time belong to relists: garbage collection makes one pair in some minutes.
const NEXT_LISTS_WITHIN: Duration = Duration::from_secs(15);
/// A kubelet that has made no call for this long is not judged: it may be stopped.
const KUBELET_GONE_AFTER: Duration = Duration::from_secs(30);
/// Size of a request without a field, in bytes, with the header of its gRPC frame.
const EMPTY_REQUEST_BYTES: u64 = 5;
/// Size of a request with an empty filter, in bytes, with the header of its gRPC frame.
const EMPTY_FILTER_BYTES: u64 = 7;

/// A call of the kubelet that may be part of a relist.
#[derive(Clone, Debug)]
pub struct KubeletPoll {
    method: Method,
    began: UnixMicros,
    /// The end of the call; now for one in flight.
    ended: UnixMicros,
    unfiltered: bool,
    good: bool,
    pod: Option<Arc<PodIdentity>>,
    container: Option<Arc<ContainerIdentity>>,
}

impl KubeletPoll {
    /// A call of the kubelet; `None` for any other.
    pub fn from_record(record: &CallRecord) -> Option<Self> {
        (record.peer.is_kubelet() && is_poll(record.method)).then(|| Self {
            method: record.method,
            began: record.began_at(),
            ended: record.ended_at(),
            unfiltered: (EMPTY_REQUEST_BYTES..=EMPTY_FILTER_BYTES).contains(&record.request_bytes),
            good: record.is_good(),
            pod: record.pod.clone(),
            container: record.container.clone(),
        })
    }

    fn took(&self) -> Duration {
        self.ended.since(self.began)
    }
}

impl fmt::Display for KubeletPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method.name())?;
        if let Some(container) = &self.container {
            write!(f, " of {}", container.name)?;
        }
        match &self.pod {
            Some(pod) => write!(f, " of {}/{}", pod.namespace, pod.name),
            None => Ok(()),
        }
    }
}

/// Returns whether calls of this method may be part of a relist.
pub(crate) const fn is_poll(method: Method) -> bool {
    lists_sandboxes(method)
        || lists_containers(method)
        || matches!(
            method,
            Method::PodSandboxStatus | Method::ContainerStatus | Method::GetContainerEvents
        )
}

const fn lists_sandboxes(method: Method) -> bool {
    matches!(method, Method::ListPodSandbox | Method::StreamPodSandboxes)
}

const fn lists_containers(method: Method) -> bool {
    matches!(method, Method::ListContainers | Method::StreamContainers)
}

/// The lists that begin a relist.
#[derive(Clone, Copy, Debug)]
struct RelistLists {
    began: UnixMicros,
    ended: UnixMicros,
    good: bool,
}

/// The relist in progress, or the pause after it.
#[derive(Clone, Debug)]
struct CurrentRelist {
    lists: RelistLists,
    /// The longest call since its begin.
    slowest: Option<KubeletPoll>,
}

/// The kubelet's relists, rebuilt from its calls.
#[derive(Debug, Default)]
pub(crate) struct RelistTracker {
    /// A list of all sandboxes that may begin a relist.
    sandboxes: Option<KubeletPoll>,
    current: Option<CurrentRelist>,
    /// Lists of the next relist, or of a garbage collection.
    candidate: Option<RelistLists>,
    /// The begin of the last relist whose lists succeeded.
    good_began: UnixMicros,
    /// The last list that failed, with none that succeeded after it.
    failed: Option<KubeletPoll>,
    /// Calls in flight.
    in_flight: Vec<KubeletPoll>,
    last_call: UnixMicros,
    reported: u8,
}

/// The state of the relist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelistState {
    /// Time since the begin of the last relist whose lists succeeded; after three minutes the kubelet is not ready.
    pub since: Duration,
    /// The call that took most of that time, in words.
    pub blame: Option<String>,
}

impl RelistState {
    /// Returns whether the relist takes unusually long.
    pub fn is_slow(&self) -> bool {
        self.since >= SLOW_RELIST
    }

    /// Returns whether the kubelet reports `PLEG is not healthy`.
    pub fn is_unhealthy(&self) -> bool {
        self.since > RELIST_LIMIT
    }
}

impl fmt::Display for RelistState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = units::duration(millis(self.since));
        write!(f, "the kubelet's relist (PLEG) began {since} ago")?;
        if self.is_unhealthy() {
            write!(f, ", over its limit of 3 min: the node is not ready")?;
        } else if self.is_slow() {
            write!(f, "; the node is not ready after 3 min")?;
        }
        match &self.blame {
            Some(blame) => write!(f, ": {blame}"),
            None if self.is_slow() => write!(f, ": none of its calls is in flight"),
            None => Ok(()),
        }
    }
}

impl RelistTracker {
    /// Notes a call that has ended. Returns the duration of the relist that this call shows to have ended.
    pub(crate) fn note(&mut self, poll: KubeletPoll) -> Option<Duration> {
        self.last_call = self.last_call.max(poll.ended);
        if poll.method == Method::GetContainerEvents {
            return None;
        }
        if let Some(current) = &mut self.current
            && poll.began >= current.lists.began
            && current
                .slowest
                .as_ref()
                .is_none_or(|slowest| slowest.took() < poll.took())
        {
            current.slowest = Some(poll.clone());
        }
        if lists_sandboxes(poll.method) && poll.unfiltered {
            self.failed = (!poll.good).then(|| poll.clone());
            self.sandboxes = poll.good.then_some(poll);
            return None;
        }
        if !lists_containers(poll.method) || !poll.unfiltered {
            return None;
        }
        let sandboxes = self.sandboxes.take()?;
        let follows =
            poll.began >= sandboxes.ended && poll.began.since(sandboxes.ended) < RELIST_PERIOD / 2;
        let lists = RelistLists {
            began: sandboxes.began,
            ended: poll.ended,
            good: poll.good,
        };
        if !poll.good {
            self.failed = Some(poll);
        }
        follows.then(|| self.note_lists(lists)).flatten()
    }

    /// Notes lists that may begin a relist.
    fn note_lists(&mut self, lists: RelistLists) -> Option<Duration> {
        let Some(current) = &self.current else {
            self.set(lists);
            return None;
        };
        let pause = lists.began.since(current.lists.ended);
        if pause < RELIST_PERIOD * 9 / 10 {
            // The relist waits for a second, so another part of the kubelet made these lists.
            return None;
        }
        let began = current.lists.began;
        if lists.began.since(began) <= USUAL_RELIST + RELIST_PERIOD || !self.is_busy(lists.began) {
            self.set(lists);
            return Some(lists.began.since(began + RELIST_PERIOD));
        }
        match self.candidate.take() {
            Some(first) if lists.began.since(first.began) <= NEXT_LISTS_WITHIN => {
                self.set(lists);
                Some(first.began.since(began + RELIST_PERIOD))
            }
            _ => {
                self.candidate = Some(lists);
                None
            }
        }
    }

    /// Returns whether a call that may belong to the current relist had not ended at this time.
    fn is_busy(&self, at: UnixMicros) -> bool {
        let Some(current) = &self.current else {
            return false;
        };
        let slowest = current.slowest.iter().filter(|poll| poll.ended > at);
        let mut all = slowest.chain(&self.in_flight);
        all.any(|poll| (current.lists.began..at).contains(&poll.began))
    }

    fn set(&mut self, lists: RelistLists) {
        self.candidate = None;
        if lists.good {
            self.good_began = lists.began;
            self.failed = None;
            self.reported = 0;
        }
        let slowest = None;
        self.current = Some(CurrentRelist { lists, slowest });
    }

    /// Notes the calls in flight at `now`. Returns the state if it is to be reported.
    pub(crate) fn tick(
        &mut self,
        now: UnixMicros,
        in_flight: Vec<KubeletPoll>,
    ) -> Option<RelistState> {
        let mut methods = in_flight.iter().map(|poll| poll.method);
        if methods.any(|method| method == Method::GetContainerEvents) {
            *self = Self::default();
            return None;
        }
        self.in_flight = in_flight;
        let state = self.state(now)?;
        let level = u8::from(state.is_slow()) + u8::from(state.is_unhealthy());
        let is_new = level > self.reported;
        self.reported = self.reported.max(level);
        is_new.then_some(state)
    }

    /// Begins a relist now.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn listed_now(&mut self) {
        let now = UnixMicros::now();
        self.last_call = now;
        self.set(RelistLists {
            began: now,
            ended: now,
            good: true,
        });
    }

    /// The end of the kubelet's last poll; `None` while no relist is known.
    pub(crate) fn last_call(&self) -> Option<UnixMicros> {
        self.current.as_ref().map(|_| self.last_call)
    }

    /// The state of the relist; `None` if no relist is known, or no kubelet is at work.
    pub(crate) fn state(&self, now: UnixMicros) -> Option<RelistState> {
        let current = self
            .current
            .as_ref()
            .filter(|_| self.good_began > UnixMicros::EPOCH)?;
        let is_there = !self.in_flight.is_empty() || now.since(self.last_call) < KUBELET_GONE_AFTER;
        let since = now.since(self.good_began);
        let began = current.lists.began;
        let flying = self.in_flight.iter().filter(|poll| poll.began >= began);
        let flying = flying.min_by_key(|poll| poll.began).map(|poll| {
            let took = now.since(poll.began);
            (took, format!("{poll} has taken {}", words(took)))
        });
        let failed = self.failed.as_ref();
        let failed = failed.map(|poll| (since, format!("{poll} fails")));
        let slowest = current.slowest.as_ref();
        let slowest =
            slowest.map(|poll| (poll.took(), format!("{poll} took {}", words(poll.took()))));
        let blame = flying.or(failed).or(slowest);
        is_there.then(|| RelistState {
            since,
            blame: blame
                .filter(|(took, _)| since >= USUAL_RELIST && *took >= since / 2)
                .map(|(_, blame)| blame),
        })
    }
}

fn words(time: Duration) -> String {
    units::duration(millis(time))
}
