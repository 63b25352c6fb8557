//! The backend that a call was routed to, and the reason.

use std::sync::Arc;

crate::named! {
    /// Why a call was routed to its backend. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum RouteReason {
        /// There is one backend, or no rule applies.
        Default = "default",
        /// A rule on the runtime handler.
        Handler = "handler",
        /// The backend that has the sandbox or container named in the call.
        Owner = "owner",
        /// The backend set for images.
        Images = "images",
        /// The call goes to every backend and the responses are joined.
        All = "all",
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
