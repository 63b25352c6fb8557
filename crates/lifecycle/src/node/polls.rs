//! Polls that a backend does not answer. A runtime answers these within milliseconds, however busy it is. A runtime that is
//! stopped or locked up between two calls of a pod shows only in its polls.

use std::sync::Arc;
use std::time::Duration;

use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_cri::units::times::UnixMicros;

/// A poll in flight for this long counts as unanswered.
const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// The oldest poll that a backend does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnansweredPoll {
    pub(crate) backend: Arc<str>,
    pub(crate) method: Method,
    /// Begin of the poll.
    pub(crate) since: UnixMicros,
}

/// The unanswered polls among the calls in flight, at most one for each backend.
pub(crate) fn unanswered(calls: &[Arc<Call>]) -> Vec<UnansweredPoll> {
    let mut found = Vec::<UnansweredPoll>::new();
    let late = calls
        .iter()
        .filter(|call| is_quick(call.method) && call.age() >= POLL_TIMEOUT);
    for call in late {
        // A list that joins all backends does not tell which backend is late.
        let Some(route) = call.route.get() else {
            continue;
        };
        let poll = UnansweredPoll {
            backend: Arc::clone(&route.backend),
            method: call.method,
            since: UnixMicros::from(call.started_at),
        };
        let known = found.iter_mut();
        let known = { known }.find(|known| known.backend == poll.backend);
        match known {
            Some(known) if known.since <= poll.since => {}
            Some(known) => *known = poll,
            None => found.push(poll),
        }
    }
    found
}

/// Returns whether a healthy runtime answers this method at once, however busy it is.
const fn is_quick(method: Method) -> bool {
    matches!(
        method,
        Method::Version
            | Method::Status
            | Method::ListPodSandbox
            | Method::ListContainers
            | Method::ImageStatus
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use super::*;
    use criscope_cri::call::{Client, Peer, Route, RouteReason};
    use criscope_cri::method::ApiVersion;

    fn call(method: Method, backend: Option<&str>, age: u64) -> Arc<Call> {
        let peer = Peer {
            client: Client::Kubelet,
            pid: None,
            comm: None,
        };
        let mut call = Call::new(1, method, ApiVersion::V1, None, Arc::new(peer), None);
        let age = Duration::from_secs(age);
        call.started_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000) - age;
        call.started = Instant::now()
            .checked_sub(age)
            .expect("a machine that is up");
        if let Some(backend) = backend {
            let (backend, reason) = (backend.into(), RouteReason::Default);
            assert!(call.route.set(Route { backend, reason }).is_ok());
        }
        Arc::new(call)
    }

    #[test]
    fn the_oldest_poll_of_each_backend_counts() {
        let calls = [
            call(Method::ListContainers, Some("main"), 5),
            call(Method::ListPodSandbox, Some("main"), 7),
            call(Method::Status, Some("spare"), 1),
            call(Method::ListPodSandbox, None, 30),
            call(Method::PullImage, Some("spare"), 60),
        ];
        let expected = UnansweredPoll {
            backend: "main".into(),
            method: Method::ListPodSandbox,
            since: UnixMicros::new(993_000_000),
        };
        assert_eq!(unanswered(&calls), [expected]);
    }
}
