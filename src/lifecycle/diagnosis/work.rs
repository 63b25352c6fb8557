//! Who worked for a call, as far as it was seen.

use crate::lifecycle::view::{Call, Detail, Episode};
use crate::units::duration;

/// The source of what the built-in runtime tells itself.
const OWN: &str = "runtime";

/// The one who worked longest of a kind, over several calls.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) name: &'a str,
    /// Whether it is a step of the built-in runtime, named in words.
    pub(super) own: bool,
    pub(super) doing: Option<&'a str>,
    /// For how long, in milliseconds; what went on at the same time counts once.
    pub(super) ms: f64,
    /// The call during which it worked longest.
    pub(super) call: &'a Call,
}

/// The longest worker of this kind (`cni`, `oci`, `runtime`) for these calls.
pub(super) fn longest<'a>(
    what: &str,
    calls: &(impl Iterator<Item = &'a Call> + Clone),
) -> Option<Worker<'a>> {
    let details = || {
        let calls = calls.clone();
        calls.flat_map(|call| call.details.iter().map(move |detail| (call, detail)))
    };
    let of_kind = || details().filter(|(_, detail)| detail.what == what);
    let mut names: Vec<&str> = of_kind().map(|(_, detail)| &*detail.name).collect();
    names.sort_unstable();
    names.dedup();
    let workers = names.into_iter().filter_map(|name| {
        let own = || of_kind().filter(|(_, detail)| detail.name == name);
        let ms = covered(own().map(|(_, detail)| detail));
        let by_length = |a: &(&Call, &Detail), b: &(&Call, &Detail)| {
            a.1.duration_ms.total_cmp(&b.1.duration_ms)
        };
        let (call, _) = own().max_by(by_length)?;
        let doing = own().filter(|(_, detail)| detail.doing.is_some());
        let doing = doing.max_by(by_length);
        Some(Worker {
            name,
            own: own().any(|(_, detail)| detail.source == OWN),
            doing: doing.and_then(|(_, detail)| detail.doing.as_deref()),
            ms,
            call,
        })
    });
    workers.max_by(|a, b| a.ms.total_cmp(&b.ms))
}

/// How much time these cover together, in milliseconds.
fn covered<'a>(details: impl Iterator<Item = &'a Detail>) -> f64 {
    let mut spans: Vec<_> = details
        .map(|d| (d.offset_ms, d.offset_ms + d.duration_ms))
        .collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut end) = (0.0, f64::MIN);
    for (from, to) in spans {
        sum += (to - from.max(end)).max(0.0);
        end = end.max(to);
    }
    sum
}

impl Worker<'_> {
    /// `the CNI plugin calico (running iptables)`, `the OCI runtime runc create`.
    pub(super) fn phrase(&self, what: &str) -> String {
        match (what, self.doing) {
            ("cni", None) => format!("the CNI plugin {}", self.name),
            ("cni", Some(doing)) => format!("the CNI plugin {} (running {doing})", self.name),
            ("oci", None) => format!("the OCI runtime {}", self.name),
            ("oci", Some(doing)) => format!("the OCI runtime {} {doing}", self.name),
            _ if self.own => self.name.to_owned(),
            _ => format!("the runtime's {}", self.name),
        }
    }
}

/// The kinds of work, those first that say most.
const KINDS: [&str; 3] = ["cni", "oci", "runtime"];

/// `9.50 s in the CNI plugin slow`, for the kind of work that took longest in these calls.
pub(super) fn most<'a>(calls: &(impl Iterator<Item = &'a Call> + Clone)) -> Option<String> {
    let workers = KINDS
        .iter()
        .filter_map(|what| Some((*what, longest(what, calls)?)));
    // Of two that took the same time the first says more.
    let most = workers.reduce(|a, b| if b.1.ms > a.1.ms { b } else { a });
    let (what, worker) = most?;
    Some(format!(
        "{} in {}",
        duration(worker.ms),
        worker.phrase(what)
    ))
}

/// How long ago something may have been seen last to count as of now, in milliseconds: the sampler looks every so often.
const NOW: f64 = 2_000.0;

/// The same for what is known exactly.
const JUST_NOW: f64 = 5.0;

/// What works for a call in flight at this moment.
pub(super) fn at_work(call: &Call) -> Option<String> {
    let now = call.offset_ms + call.duration_ms;
    KINDS.iter().find_map(|what| {
        let mut details = call.details.iter().rev();
        let detail = details.find(|d| {
            let since = now - (d.offset_ms + d.duration_ms);
            match d.source == OWN {
                true => d.what == *what && since <= JUST_NOW,
                false => d.what == *what && *what != "runtime" && since <= NOW,
            }
        })?;
        let own = std::iter::once(call);
        let worker = longest(what, &own)?;
        let name = &detail.name;
        let worker = Worker {
            name,
            own: detail.source == OWN,
            doing: detail.doing.as_deref(),
            ..worker
        };
        Some(worker.phrase(what))
    })
}

/// The calls of an episode with this method.
pub(super) fn calls_of<'a>(
    episode: &'a Episode,
    method: &'a str,
) -> impl Iterator<Item = &'a Call> + Clone {
    episode
        .calls
        .iter()
        .filter(move |call| call.method == method)
}
