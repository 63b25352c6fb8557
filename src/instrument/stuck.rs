//! Notices calls that use up their deadline, before the caller gives up.

use std::sync::Arc;
use std::time::Duration;

use super::InFlight;
use super::signals::Signals;
use crate::cri::Call;
use crate::cri::method::Class;

/// How often the calls in flight are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// What counts as the deadline of a call that has none.
const NO_DEADLINE: Duration = Duration::from_secs(60);

/// Shares of the deadline that are worth a word, in percent.
const LEVELS: [u8; 3] = [100, 90, 50];

/// Looks until dropped.
pub async fn run(in_flight: Arc<InFlight>, signals: Arc<Signals>) {
    let mut interval = tokio::time::interval(PERIOD);
    loop {
        interval.tick().await;
        for call in in_flight.calls() {
            if let Some(level) = level(&call) {
                signals.stuck(&call, level.into());
            }
        }
    }
}

/// The level that the call has reached since the last look.
fn level(call: &Call) -> Option<u8> {
    // A watch is open for as long as its caller likes.
    if call.method.class() == Class::Watch {
        return None;
    }
    let deadline = call.deadline.unwrap_or(NO_DEADLINE).max(Duration::from_millis(1));
    let percent = call.age().as_secs_f64() / deadline.as_secs_f64() * 100.0;
    let level = LEVELS.into_iter().find(|level| percent >= f64::from(*level))?;
    call.reaches(level).then_some(level)
}
