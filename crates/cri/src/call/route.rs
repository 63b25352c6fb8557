//! The backend that a call was routed to, and the reason.

use std::sync::Arc;

/// Why a call was routed to its backend. A metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RouteReason {
    /// There is one backend, or no rule applies.
    Default,
    /// A rule on the runtime handler.
    Handler,
    /// The backend that has the sandbox or container named in the call.
    Owner,
    /// The backend set for images.
    Images,
    /// The call goes to every backend and the responses are joined.
    All,
}

impl RouteReason {
    /// Every value.
    pub const ALL: [RouteReason; 5] = [
        RouteReason::Default,
        RouteReason::Handler,
        RouteReason::Owner,
        RouteReason::Images,
        RouteReason::All,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Handler => "handler",
            Self::Owner => "owner",
            Self::Images => "images",
            Self::All => "all",
        }
    }
}

/// The routing decision for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The backend's name in the configuration; the names joined by `+` when it went to several.
    pub backend: Arc<str>,
    /// The reason.
    pub reason: RouteReason,
}
