//! Export of images by command, for which the CRI has no method: `criscope export` connects to a socket that only root can access,
//! passes the end of a pipe, and reads the archive from the other one. So the daemon writes to no file of the user, and ends
//! when the command does.

mod client;
mod server;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use criscope_image::{ExportOptions, ExportedImage};

pub use self::client::{ExportError, export, is_served};
pub(super) use self::server::serve;

/// The images to export.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Request {
    /// References, ids, or beginnings of ids.
    pub images: Vec<String>,
    /// Exports images that came encrypted.
    #[serde(default)]
    pub allow_decrypted: bool,
}

/// An image in the archive.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Exported {
    /// The id once it is loaded.
    pub id: String,
    /// The full names.
    pub names: Vec<String>,
}

/// How far an export is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Progress {
    /// True if the archive is being written. Before, layers are read for their digests.
    pub is_writing: bool,
    /// Bytes.
    pub done: u64,
    /// Bytes in all, 0 if unknown.
    pub total: u64,
}

impl From<(bool, u64, u64)> for Progress {
    fn from((is_writing, done, total): (bool, u64, u64)) -> Self {
        Self {
            is_writing,
            done,
            total,
        }
    }
}

/// Messages of the daemon, one JSON object per line.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Progress(Progress),
    /// Success: all of the archive is in the pipe.
    Exported(Vec<Exported>),
    Failed(Failure),
}

/// Why there is no archive.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failure {
    reason: String,
    /// True if the error is that an image came encrypted.
    is_decrypted: bool,
}

impl From<criscope_image::Error> for Failure {
    fn from(error: criscope_image::Error) -> Self {
        Self {
            is_decrypted: matches!(error, criscope_image::Error::Decrypted { .. }),
            reason: error.to_string(),
        }
    }
}

impl From<Request> for ExportOptions {
    fn from(request: Request) -> Self {
        Self {
            images: request.images,
            allow_decrypted: request.allow_decrypted,
        }
    }
}

impl From<ExportedImage> for Exported {
    fn from(image: ExportedImage) -> Self {
        Self {
            id: image.exported_id.to_string(),
            names: image.names,
        }
    }
}

/// Maximum length of a request, in bytes.
const REQUEST: u64 = 4 << 20;

/// The socket of a runtime with this state directory.
#[must_use]
fn socket(state: &Path) -> PathBuf {
    state.join("load").join("export")
}
