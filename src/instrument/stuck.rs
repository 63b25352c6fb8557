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
const LEVELS: [u8; 3] = [50, 90, 100];

/// Looks until dropped.
pub async fn run(in_flight: Arc<InFlight>, signals: Arc<Signals>) {
    let mut interval = tokio::time::interval(PERIOD);
    loop {
        interval.tick().await;
        for call in in_flight.calls() {
            for level in LEVELS.into_iter().filter(|level| has_used(&call, *level)) {
                if call.reaches(level) {
                    signals.stuck(&call, level.into());
                }
            }
        }
    }
}

/// Whether the call has used this share of its deadline.
fn has_used(call: &Call, percent: u8) -> bool {
    // A watch is open for as long as its caller likes.
    if call.method.class() == Class::Watch {
        return false;
    }
    call.age() >= call.deadline.unwrap_or(NO_DEADLINE) * percent.into() / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::Method;

    #[test]
    fn shares_of_the_deadline() {
        let mut call = Call::example(Method::StopContainer);
        assert!(!has_used(&call, 50), "no deadline counts as a minute");
        call.deadline = Some(Duration::ZERO);
        assert!(has_used(&call, 100));
        assert!(call.reaches(50) && call.reaches(100) && !call.reaches(100) && !call.reaches(50));

        let mut watch = Call::example(Method::GetContainerEvents);
        watch.deadline = Some(Duration::ZERO);
        assert!(!has_used(&watch, 50));
    }
}
