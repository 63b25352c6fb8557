//! Records of calls, for tests.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use criscope_cri::Method;
use criscope_cri::call::{Call, CallRecord, Ending, Outcome, Route, RouteReason, Source};
use criscope_cri::status::Code;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};

/// A StartContainer of `shop/web-N`, with one second between successive numbers, that took 10 ms, 9 of them in the
/// backend.
pub fn record(seq: u64) -> CallRecord {
    let mut record = plain(seq, Method::StartContainer);
    record.pod = Some(pod(&format!("web-{seq}")));
    record.container = Some(Arc::new(ContainerIdentity {
        name: "app".into(),
        attempt: 0,
    }));
    record.backend_time = Some((Duration::from_micros(500), Duration::from_millis(9)));
    record.route = Some(Route {
        backend: "main".into(),
        reason: RouteReason::Default,
    });
    record
}

/// A pod of the namespace shop.
pub fn pod(name: &str) -> Arc<PodIdentity> {
    Arc::new(PodIdentity {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        attempt: 0,
    })
}

/// A call of this method without a pod.
pub fn plain(seq: u64, method: Method) -> CallRecord {
    let outcome = Outcome {
        ending: Ending::Ok,
        code: Code::Ok,
        source: Source::Backend,
        message: None,
        elapsed: Duration::from_millis(10),
    };
    let mut record = CallRecord::ended(&Call::example(method), &outcome);
    record.seq = seq;
    record.began = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seq);
    record
}
