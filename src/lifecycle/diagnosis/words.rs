//! How counts and calls are said.

use crate::lifecycle::view::Call;

/// `once`, `twice`, `3 times`.
pub(super) fn times(n: usize) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// What a call does to what: `CreateContainer of app`.
pub(super) fn subject(call: &Call) -> String {
    let of = match &*call.method {
        "PullImage" => call.image.as_deref(),
        _ => call.container.as_deref(),
    };
    match of {
        Some(of) if !of.is_empty() => format!("{} of {of}", call.method),
        _ => call.method.clone(),
    }
}

/// Who set the deadline or hung up.
pub(super) fn caller(call: &Call) -> &'static str {
    match &*call.client {
        "kubelet" => "kubelet",
        "crictl" => "crictl",
        _ => "caller",
    }
}
