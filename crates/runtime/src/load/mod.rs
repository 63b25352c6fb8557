//! Import of image archives by command, for which the CRI has no method: `criscope load-image` connects to a socket that only
//! root can access, passes an open archive, and receives the progress and then the result.

mod client;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use criscope_image::ImportedImage;

pub use self::client::{LoadError, is_served, load};
pub(super) use self::server::serve;

/// An imported image.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Loaded {
    /// The id.
    pub id: String,
    /// The full names. Empty if the archive has none: the image is then known by its id only.
    pub names: Vec<String>,
}

impl From<ImportedImage> for Loaded {
    fn from(image: ImportedImage) -> Self {
        Self {
            id: image.id.to_string(),
            names: image.names,
        }
    }
}

/// Messages of the daemon, one JSON object per line.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// Bytes done, and the total if known.
    Progress(u64, u64),
    /// Success: all images of the archive for this platform.
    Loaded(Vec<Loaded>),
    /// Failure: the reason.
    Failed(String),
}

/// Maximum length of an archive name, and of a client's message, in bytes.
const MESSAGE: usize = 8 << 10;

/// The socket of a runtime with this state directory.
#[must_use]
pub fn socket(state: &Path) -> PathBuf {
    state.join("load").join("socket")
}
