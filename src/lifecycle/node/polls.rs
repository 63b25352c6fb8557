//! Polls of a backend that are not answered: whatever else a runtime does, it answers these within milliseconds. A runtime
//! that is stopped or locked up between two calls of a pod shows only there.

use std::sync::Arc;

use crate::call::Call;
use crate::call::times::{micros_of, unix_micros};
use crate::cri::Method;

/// A poll in flight for so long is not answered, in microseconds.
const PATIENCE: u64 = 3_000_000;

/// The oldest poll that a backend does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) backend: Arc<str>,
    pub(crate) method: Method,
    /// When it was made, in microseconds since 1970.
    pub(crate) since: u64,
}

/// Those of the calls in flight, one for each backend.
pub(crate) fn unanswered(calls: &[Arc<Call>]) -> Vec<Unanswered> {
    let mut found = Vec::<Unanswered>::new();
    let late = calls
        .iter()
        .filter(|call| is_quick(call.method) && micros_of(call.age()) >= PATIENCE);
    for call in late {
        // Lists of all backends are joined: it is not known which of them is late.
        let Some(route) = call.route.get() else {
            continue;
        };
        let it = Unanswered {
            backend: Arc::clone(&route.backend),
            method: call.method,
            since: unix_micros(call.started_at),
        };
        match found.iter_mut().find(|known| known.backend == it.backend) {
            Some(known) if known.since <= it.since => {}
            Some(known) => *known = it,
            None => found.push(it),
        }
    }
    found
}

/// Returns whether a healthy runtime answers it at once, however busy it is.
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
    use crate::call::{Client, Peer, Route, RouteReason};
    use crate::cri::method::ApiVersion;

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
        let expected = Unanswered {
            backend: "main".into(),
            method: Method::ListPodSandbox,
            since: 993_000_000,
        };
        assert_eq!(unanswered(&calls), [expected]);
    }
}
