//! Commands that show pages of any source.

pub mod calls;
mod duration;
pub mod explain;
mod pod_name;
pub mod pods;

use std::io;

pub use self::duration::duration;
pub use self::pod_name::{PodName, PodNameError};
use crate::source::PageError;

/// Why a command that shows pages failed.
#[derive(Debug, thiserror::Error)]
pub enum PageCommandError {
    /// A page could not be read.
    #[error(transparent)]
    Page(#[from] PageError),
    /// `explain` found no pod.
    #[error(transparent)]
    Explain(#[from] explain::Error),
    /// The arguments name no pod.
    #[error(transparent)]
    PodName(#[from] PodNameError),
    /// The output could not be written, or signals not be handled.
    #[error(transparent)]
    Io(#[from] io::Error),
}
