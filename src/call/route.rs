//! The backend that a call was sent to, and why.

use std::sync::Arc;

/// Why a call went to its backend. A metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RouteReason {
    /// There is one backend, or nothing else applied.
    Default,
    /// A rule on the runtime handler.
    Handler,
    /// The backend that has the sandbox or container named in the call.
    Owner,
    /// The backend set for images.
    Images,
    /// The call goes to every backend and the answers are joined.
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

/// Where the router sent a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The backend's name in the configuration; the names joined by `+` when it went to several.
    pub backend: Arc<str>,
    /// Why.
    pub reason: RouteReason,
}
