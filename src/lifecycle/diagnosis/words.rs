//! Counts, calls and callers as text.

use crate::call::Client;
use crate::lifecycle::episode_call::EpisodeCall;

/// `once`, `twice`, `3 times`.
pub(super) fn times(n: usize) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// A call and its target: `CreateContainer of app`.
pub(super) fn subject(call: &EpisodeCall) -> String {
    match call.target() {
        "" => call.method.name().to_owned(),
        target => format!("{} of {target}", call.method.name()),
    }
}

/// The caller, which set the deadline or cancelled.
pub(super) fn caller(call: &EpisodeCall) -> &'static str {
    match call.peer.client {
        Client::Other => "caller",
        client => client.name(),
    }
}
