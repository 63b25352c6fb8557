//! Views of image pulls: the JSON of `/debug/images/pulls`.

use serde::{Deserialize, Serialize};

use super::CallView;
use criscope_cri::units::times::UnixMicros;

/// `/debug/images/pulls?format=json`: pulls in flight, the longest first, and ended pulls, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImagePullList {
    /// The time of this response.
    pub now_unix_us: UnixMicros,
    /// Pulls in flight.
    pub in_flight: Vec<ImagePullView>,
    /// Ended pulls that the recorder still holds, with the bytes that the built-in runtime fetched.
    pub recent: Vec<ImagePullView>,
}

/// Time without bytes, after which the rest of a pull cannot be estimated.
const STALLED_PULL_MS: f64 = 5e3;

/// The pull of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImagePullView {
    /// The call.
    #[serde(flatten)]
    pub call: CallView,
    /// The progress, if the runtime reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<PullProgressView>,
}

impl ImagePullView {
    /// Bytes per second on average; `None` if nothing was fetched.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn rate(&self) -> Option<u64> {
        let bytes = self.progress.as_ref().map(|progress| progress.bytes)?;
        (bytes > 0 && self.call.duration_ms > 0.0)
            .then(|| (bytes as f64 * 1e3 / self.call.duration_ms) as u64)
    }

    /// Returns whether the runtime reports its progress, and no bytes arrive.
    pub fn is_stalled(&self) -> bool {
        let progress = self.progress.as_ref();
        progress.is_some_and(|progress| progress.idle_ms >= STALLED_PULL_MS)
    }

    /// Milliseconds until all bytes are there, at the rate until now. `None` while nothing arrives, and if the bytes may be those of other
    /// pulls.
    pub fn left_ms(&self) -> Option<f64> {
        let progress = self.progress.as_ref()?;
        let left = progress.of_bytes.saturating_sub(progress.bytes);
        let is_moving = progress.shared_by == 0 && progress.idle_ms < STALLED_PULL_MS;
        (left > 0 && is_moving).then_some(left as f64 * 1e3 / self.rate()? as f64)
    }
}

impl From<CallView> for ImagePullView {
    fn from(call: CallView) -> Self {
        let progress = None;
        Self { call, progress }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Progress of a pull by the built-in runtime or by containerd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PullProgressView {
    /// The image as a full reference.
    pub image: String,
    /// Bytes of layers present so far.
    pub bytes: u64,
    /// Bytes of all layers; 0 until the sum is known.
    pub of_bytes: u64,
    /// Number of pulls to which the bytes may belong; 0 if they belong to this pull alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_by: u64,
    /// Time since the last bytes arrived.
    pub idle_ms: f64,
    /// The layers, from the bottom up.
    pub layers: Vec<LayerProgress>,
}

/// A layer that is being pulled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerProgress {
    /// The digest of its unpacked content.
    pub digest: String,
    /// `waiting`, `fetching`, `unpacking`, `done` or `failed`.
    pub phase: String,
    /// Bytes present so far.
    pub bytes: u64,
    /// Size in bytes.
    pub of_bytes: u64,
    /// Unpacked bytes.
    pub unpacked_bytes: u64,
}
