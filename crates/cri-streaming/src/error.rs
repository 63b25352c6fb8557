//! Errors before a session starts.

use super::request::InvalidRequest;

/// Why no URL was issued for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// Too many URLs were issued within a minute and not used.
    #[error("too many sessions were requested and not begun, try again in a minute")]
    Full,
    /// The system provides no random numbers.
    #[error("no random number for a token")]
    Random,
}
