//! Exec probes that hang in the runtime: an ExecSync that is still in flight long after its own timeout. The kubelet runs one probe of
//! a container at a time and waits for its end, so the container is not probed meanwhile.

use std::time::Duration;

use super::execs;
use crate::episode_call::EpisodeCall;

/// A runtime may end a command this long after the timeout of the probe: it kills the command and waits for its output.
const MAX_KILL_TIME: Duration = Duration::from_secs(2);

/// A probe that hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HangingProbe {
    pub(crate) container: Box<str>,
    /// The timeout of the probe.
    pub(crate) timeout: Duration,
    /// Since the begin of the call.
    pub(crate) took: Duration,
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
        })
    }
}
