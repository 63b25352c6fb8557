//! The composition root.

use crate::config::Loaded;

/// Why `serve` ended other than by a signal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This build has no request path.
    #[error("this build cannot serve")]
    NotBuilt,
}

/// Serves until a signal ends it.
///
/// # Errors
/// Whatever kept it from starting.
#[allow(clippy::needless_pass_by_value)]
pub fn serve(_loaded: Loaded) -> Result<(), Error> {
    Err(Error::NotBuilt)
}
