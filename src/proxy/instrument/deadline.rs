//! The latest time at which the proxy ends a call itself.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::Call;

/// How long after the caller's deadline the proxy ends the call. Caller and backend both know the deadline and normally end
/// it first.
const DEADLINE_GRACE: Duration = Duration::from_millis(500);

/// The time at which the proxy ends the call. `None` without a deadline, or with one beyond the range of the clock.
pub(super) fn last_moment(call: &Call) -> Option<Instant> {
    let deadline = call.deadline?.checked_add(DEADLINE_GRACE)?;
    Instant::from_std(call.started).checked_add(deadline)
}
