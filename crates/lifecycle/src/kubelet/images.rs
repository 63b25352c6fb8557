//! Images that the kubelet looked for, did not find, and has not pulled: with `imagePullPolicy: Never` it makes no other call.
//!
//! ImageStatus names no pod. The time shows which pod it is for: the kubelet looks for the image right after it has made the sandbox. A
//! lookup that could be for either of two pods counts for neither.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use criscope_cri::Method;
use criscope_cri::call::{CallRecord, Ending};
use criscope_cri::status::code_name;
use criscope_cri::units::times::UnixMicros;

/// Number of images that are remembered.
const MAX_MISSING_IMAGES: usize = 64;
/// The kubelet looks for the image this soon after the last call for the pod.
pub(crate) const LOOKUP_FOLLOWS_SANDBOX_WITHIN: Duration = Duration::from_millis(500);
/// Size of a response without an image, in bytes: the header of its gRPC frame.
const EMPTY_RESPONSE_BYTES: u64 = 5;

/// An image that the kubelet did not find and has not pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingImage {
    pub(crate) image: Arc<str>,
    /// The number of the episode of the pod that waits for it.
    pub(crate) episode: u64,
    pub(crate) first: UnixMicros,
    pub(crate) last: UnixMicros,
    /// Number of lookups by the kubelet.
    pub(crate) times: u32,
    /// The last error, if the runtime could not look it up.
    pub(crate) error: Option<Arc<str>>,
}

/// A lookup of the kubelet that found no image.
#[derive(Clone, Debug)]
pub struct FailedImageLookup {
    image: Arc<str>,
    /// End of the lookup.
    pub(crate) at: UnixMicros,
    error: Option<Arc<str>>,
}

impl FailedImageLookup {
    /// The lookup that this ended call made; `None` for other calls, and if the image is there.
    pub(crate) fn from_record(record: &CallRecord) -> Option<Self> {
        let is_lookup = record.method == Method::ImageStatus && record.peer.is_kubelet();
        let failed = record.has_ended(Ending::Error);
        let is_absent = record.is_good() && record.response_bytes == EMPTY_RESPONSE_BYTES;
        let image = record
            .image
            .clone()
            .filter(|_| is_lookup && (failed || is_absent))?;
        let outcome = record.outcome()?;
        let message = outcome.message.as_deref().unwrap_or_default();
        let error = failed.then(|| format!("{} {message}", code_name(outcome.code)).into());
        Some(Self {
            image,
            at: record.ended_at(),
            error,
        })
    }
}

/// The images that the kubelet did not find, by the episode that waits for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct MissingImages(VecDeque<MissingImage>);

impl MissingImages {
    /// Notes a lookup without an image. `episode`: the start whose sandbox the kubelet had just made.
    pub(crate) fn note(&mut self, found: FailedImageLookup, episode: Option<u64>) {
        let FailedImageLookup { image, at, error } = found;
        let mut is_new = true;
        for known in self.0.iter_mut().filter(|known| known.image == image) {
            is_new &= Some(known.episode) != episode;
            known.times += 1;
            known.last = known.last.max(at);
            known.error.clone_from(&error);
        }
        let Some(episode) = episode.filter(|_| is_new) else {
            return;
        };
        if self.0.len() >= MAX_MISSING_IMAGES {
            self.0.pop_front();
        }
        self.0.push_back(MissingImage {
            image,
            episode,
            first: at,
            last: at,
            times: 1,
            error,
        });
    }

    /// Forgets an image that is pulled.
    pub(crate) fn forget(&mut self, image: &str) {
        self.0.retain(|missing| *missing.image != *image);
    }

    /// All missing images.
    pub(crate) fn all(&self) -> Vec<MissingImage> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
impl FailedImageLookup {
    /// For tests of other modules.
    pub(crate) fn new(image: &str, at: UnixMicros, error: Option<&str>) -> Self {
        Self {
            image: image.into(),
            at,
            error: error.map(Arc::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> UnixMicros {
        UnixMicros::new(seconds * 1_000_000)
    }

    fn no_image(image: &str, at: UnixMicros) -> FailedImageLookup {
        FailedImageLookup::new(image, at, None)
    }

    #[test]
    fn an_image_that_is_pulled_is_not_absent() {
        let mut images = MissingImages::default();
        images.note(no_image("a:1", at(1)), Some(7));
        images.note(no_image("b:1", at(2)), Some(8));
        images.note(no_image("c:1", at(2)), None);
        images.note(no_image("a:1", at(14)), None);
        images.forget("b:1");
        let expected = MissingImage {
            image: "a:1".into(),
            episode: 7,
            first: at(1),
            last: at(14),
            times: 2,
            error: None,
        };
        assert_eq!(images.all(), [expected]);
        for n in 0..2 * MAX_MISSING_IMAGES {
            images.note(no_image(&n.to_string(), at(1)), Some(9));
        }
        assert_eq!(images.all().len(), MAX_MISSING_IMAGES);
    }

    #[test]
    fn each_pod_that_waits_for_an_image_is_known() {
        let mut images = MissingImages::default();
        images.note(no_image("a:1", at(1)), Some(7));
        images.note(no_image("a:1", at(100)), Some(8));
        let known: Vec<_> = images
            .all()
            .iter()
            .map(|missing| (missing.episode, missing.first))
            .collect();
        assert_eq!(known, [(7, at(1)), (8, at(100))]);
    }
}
