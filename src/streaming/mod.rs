//! Exec, attach and port-forward for the built-in runtime: the listener in front of `cri-streaming`, and the observers of sessions
//! (metrics, audit log, traces). [`crate::proxy::sessions`] proxies the sessions of other runtimes.

mod audit;
mod bind;
mod error;
pub(crate) mod listener;
pub(crate) mod metrics;
pub mod settings;
mod tls;
mod trace;

use std::sync::Arc;

use http::Extensions;

pub use self::audit::SessionAuditLog;
pub use self::error::StreamingBindError;
pub use self::listener::StreamingListener;
pub use self::metrics::SessionMetrics;
pub use self::trace::SessionSpans;
use crate::call::Call;

/// The call that requested a session.
pub(crate) fn call(extensions: &Extensions) -> Option<&Call> {
    extensions.get::<Arc<Call>>().map(Arc::as_ref)
}
