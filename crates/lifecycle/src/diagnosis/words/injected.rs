//! Sentences on faults that were injected on purpose.

use std::fmt::{self, Formatter};

use super::subject;
use crate::diagnosis::cause::Cause;
use crate::episode_call::EpisodeCall;
use criscope_cri::call::FaultKind;
use criscope_cri::units::duration;

/// A cause, the call that a fault held longest, and the number of other calls with one.
pub(super) fn conditions(
    f: &mut Formatter<'_>,
    cause: &Cause<'_>,
    call: &EpisodeCall,
    more: usize,
) -> fmt::Result {
    write!(f, "{cause}")?;
    let Some(fault) = call.fault else {
        return Ok(());
    };
    let subject = subject(call);
    match fault.kind() {
        FaultKind::Fail => write!(f, "; an injected fault let {subject} fail")?,
        FaultKind::Delay | FaultKind::Hang => {
            let held = duration(f64::from(fault.held_ms()));
            write!(
                f,
                "; an injected fault ({}) held {subject} for {held}",
                fault.kind().name()
            )?;
        }
    }
    match more {
        0 => Ok(()),
        1 => f.write_str(", and 1 more call had one"),
        n => write!(f, ", and {n} more calls had one"),
    }
}
