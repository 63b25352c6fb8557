//! Exec probes that failed for long before they first succeeded: a startup probe, or another one that kept a container from being ready.

use std::time::Duration;

use super::history;
use crate::episode_store::Episode;
use crate::usual::UsualDurations;
use crate::view::ProbeView;

/// A probe that failed at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LateProbe {
    pub(super) container: Box<str>,
    /// Number of failures before the first success.
    pub(super) failed: u32,
    /// From the end of StartContainer to the first success.
    pub(super) after: Duration,
}

impl LateProbe {
    /// The probe that took longest to succeed in a container that is up, if that was slow.
    pub(super) fn longest(
        probes: &[ProbeView],
        up: &[&str],
        pod: &[&Episode],
        usual: &UsualDurations,
    ) -> Option<Self> {
        let late = probes
            .iter()
            .filter(|probe| probe.failed_at_first > 0 && up.contains(&&*probe.container));
        let late = late.filter_map(|probe| {
            let mut calls = history::calls(pod);
            let start = calls.find(|call| {
                let container = call.container.as_deref();
                call.has_started_container(&probe.container)
                    && container.is_some_and(|container| container.attempt == probe.attempt)
            })?;
            let after = probe.first_success_unix_us?.since(start.ended_at());
            Some(Self {
                container: probe.container.as_str().into(),
                failed: probe.failed_at_first,
                after,
            })
        });
        let slow = late.filter(|probe| usual.is_slow(probe.after));
        slow.max_by_key(|probe| probe.after)
    }
}
