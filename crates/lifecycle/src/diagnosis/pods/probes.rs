//! Exec probes that fail, or failed for long at first.

use std::time::Duration;

use super::Diagnoser;
use crate::diagnosis::cause::Cause;
use crate::diagnosis::late_probes::LateProbe;
use crate::diagnosis::lifetimes::PodLifetime;
use crate::diagnosis::remarks::Diagnosis;
use crate::diagnosis::{history, outcome};
use crate::kubelet::hanging_probe::HangingProbe;
use crate::view::ProbeView;
use criscope_cri::Method;

/// A probe that has not run for this long says nothing any more.
const PROBE_RESULT_EXPIRES_AFTER: Duration = Duration::from_secs(5 * 60);

impl Diagnoser<'_> {
    /// An exec probe that failed for long at first, in a container that is up.
    pub(super) fn late_probe(
        &self,
        pod: &PodLifetime<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> Option<LateProbe> {
        let up = outcome::running(&pod.episodes);
        if diagnosis.is_problem() {
            return None;
        }
        LateProbe::longest(&self.probes, &up, &pod.episodes, self.node.usual)
    }

    /// The last exec probe that hung in a container that is up.
    pub(super) fn hung_probe(
        &self,
        pod: &PodLifetime<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> Option<HangingProbe> {
        if diagnosis.is_problem() {
            return None;
        }
        let up = outcome::running(&pod.episodes);
        let probes = self.probes.iter();
        let probes = probes.filter(|probe| up.contains(&&*probe.container));
        let hung = probes.filter_map(|probe| HangingProbe::from_view(probe, self.now));
        hung.min_by_key(|hung| hung.ended_ago)
    }

    /// An exec probe that keeps failing in a container that is up.
    pub(super) fn failing_probe(
        &self,
        pod: &PodLifetime<'_>,
        diagnosis: &Diagnosis<'_>,
    ) -> Option<&ProbeView> {
        // The kubelet starts no container before the startup probes of the sidecars before it have succeeded.
        let may_matter =
            !diagnosis.is_problem() || matches!(diagnosis.cause, Cause::AwaitsContainer { .. });
        if !may_matter {
            return None;
        }
        let up = outcome::running(&pod.episodes);
        let failing = self.failing_probes(pod);
        let failing = failing.filter(|probe| up.contains(&&*probe.container));
        failing.max_by_key(|probe| probe.failed_in_a_row)
    }

    /// The exec probes that keep failing.
    pub(super) fn failing_probes(&self, pod: &PodLifetime<'_>) -> impl Iterator<Item = &ProbeView> {
        let stops = history::calls(&pod.episodes)
            .filter(|call| matches!(call.method, Method::StopContainer | Method::StopPodSandbox));
        let stopped = stops.map(|call| call.began_at()).max().unwrap_or_default();
        self.probes.iter().filter(move |probe| {
            let last = probe.last_unix_us;
            let is_recent = self.now.since(last) < PROBE_RESULT_EXPIRES_AFTER;
            probe.failed_in_a_row >= 2 && is_recent && last > stopped
        })
    }
}
