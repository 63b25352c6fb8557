//! Exec probes that hang in the runtime: an ExecSync that is still in flight long after its own timeout. The kubelet runs one probe of
//! a container at a time and waits for its end, so the container is not probed meanwhile.

use std::time::Duration;

use super::execs;
use crate::episode_call::EpisodeCall;
use crate::view::ProbeView;
use criscope_cri::units::times::UnixMicros;

/// A runtime may end a command this long after the timeout of the probe: it kills the command and waits for its output.
const MAX_KILL_TIME: Duration = Duration::from_secs(2);

/// A probe that hangs, or hung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HangingProbe {
    pub(crate) container: Box<str>,
    /// The timeout of the probe.
    pub(crate) timeout: Duration,
    /// Since the begin of the call, or its duration.
    pub(crate) took: Duration,
    /// How long ago the call ended; `None` while it hangs.
    pub(crate) ended_ago: Option<Duration>,
}

/// A run that was this much longer than its timeout cost the container probes: the default period of a probe in the kubelet. A shorter one
/// is common where a container's CPU is limited.
const MISSED_PERIOD: Duration = Duration::from_secs(10);

/// Returns whether the runtime hung in a run of a probe that is over.
pub(super) fn has_hung(took: Duration, timeout: Duration) -> bool {
    took > timeout + MISSED_PERIOD
}

impl HangingProbe {
    /// The probe of a call in flight, if it hangs.
    pub(crate) fn from_call(call: &EpisodeCall) -> Option<Self> {
        if !call.is_in_flight() || !execs::is_probe(call) {
            return None;
        }
        let timeout = Duration::from_secs(execs::timeout(call)?.into());
        let took = call.took();
        (took > timeout + MAX_KILL_TIME).then(|| Self {
            container: call.container_name().unwrap_or("a container").into(),
            timeout,
            took,
            ended_ago: None,
        })
    }

    /// The last run of a probe that hung.
    pub(crate) fn from_view(probe: &ProbeView, now: UnixMicros) -> Option<Self> {
        let hung = probe.last_hung.as_ref()?;
        Some(Self {
            container: probe.container.as_str().into(),
            timeout: Duration::from_secs(probe.timeout_s.into()),
            took: hung.ended_unix_us.since(hung.began_unix_us),
            ended_ago: Some(now.since(hung.ended_unix_us)),
        })
    }
}
