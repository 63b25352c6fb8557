//! Images that the kubelet looked for. One that it did not find and has not pulled may have `imagePullPolicy: Never`; one that it found
//! needs no pull.
//!
//! ImageStatus names no pod. The time shows which pod it is for: the kubelet looks for the image right after it has made the sandbox. A
//! lookup that could be for either of two pods counts for neither.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use criscope_cri::Method;
use criscope_cri::call::{CallRecord, Ending};
use criscope_cri::status::code_name;
use criscope_cri::units::times::UnixMicros;

/// Number of images that are remembered.
const MAX_MISSING_IMAGES: usize = 64;
/// The kubelet looks for the image this soon after it has made the sandbox, or stopped the container before.
pub(crate) const LOOKUP_FOLLOWS_WITHIN: Duration = Duration::from_millis(500);
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

/// A lookup of an image by the kubelet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageLookup {
    image: Arc<str>,
    /// End of the lookup.
    pub(crate) at: UnixMicros,
    result: LookupResult,
}

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LookupResult {
    Found,
    Missing,
    /// The runtime could not look it up.
    Failed(Arc<str>),
}

impl ImageLookup {
    /// The lookup that this ended call made; `None` for other calls.
    pub(crate) fn from_record(record: &CallRecord) -> Option<Self> {
        let is_lookup = record.method == Method::ImageStatus && record.peer.is_kubelet();
        let image = record.image.clone().filter(|_| is_lookup)?;
        let outcome = record.outcome()?;
        let result = if record.has_ended(Ending::Error) {
            let message = outcome.message.as_deref().filter(|text| !text.is_empty());
            LookupResult::Failed(message.unwrap_or(code_name(outcome.code)).into())
        } else if !record.is_good() {
            return None;
        } else if record.response_bytes == EMPTY_RESPONSE_BYTES {
            LookupResult::Missing
        } else {
            LookupResult::Found
        };
        Some(Self {
            image,
            at: record.ended_at(),
            result,
        })
    }
}

/// An image that the kubelet found for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundImage {
    pub(crate) image: Arc<str>,
    /// The number of the episode of the pod.
    pub(crate) episode: u64,
}

/// The images that the kubelet looked for, by the episode that needs them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AwaitedImages {
    missing: VecDeque<MissingImage>,
    found: VecDeque<FoundImage>,
}

impl AwaitedImages {
    /// Notes a lookup. `episode`: the episode that it is for, if it is known. Returns whether an episode waits for the image.
    pub(crate) fn note(&mut self, lookup: ImageLookup, episode: Option<u64>) -> bool {
        let ImageLookup { image, at, result } = lookup;
        let error = match result {
            LookupResult::Found => {
                self.note_found(image, episode);
                return episode.is_some();
            }
            LookupResult::Missing => None,
            LookupResult::Failed(error) => Some(error),
        };
        let (mut is_new, mut is_awaited) = (true, episode.is_some());
        for known in self.missing.iter_mut().filter(|known| known.image == image) {
            is_new &= Some(known.episode) != episode;
            is_awaited = true;
            known.times += 1;
            known.last = known.last.max(at);
            known.error.clone_from(&error);
        }
        let Some(episode) = episode.filter(|_| is_new) else {
            return is_awaited;
        };
        if self.missing.len() >= MAX_MISSING_IMAGES {
            self.missing.pop_front();
        }
        self.missing.push_back(MissingImage {
            image,
            episode,
            first: at,
            last: at,
            times: 1,
            error,
        });
        true
    }

    fn note_found(&mut self, image: Arc<str>, episode: Option<u64>) {
        let Some(episode) = episode else { return };
        if self.found.len() >= MAX_MISSING_IMAGES {
            self.found.pop_front();
        }
        self.found.push_back(FoundImage { image, episode });
    }

    /// Forgets an image that is pulled.
    pub(crate) fn forget(&mut self, image: &str) {
        self.missing.retain(|missing| *missing.image != *image);
    }

    /// All missing images.
    pub(crate) fn missing(&self) -> Vec<MissingImage> {
        self.missing.iter().cloned().collect()
    }

    /// All images that were found.
    pub(crate) fn found(&self) -> Vec<FoundImage> {
        self.found.iter().cloned().collect()
    }
}

#[cfg(test)]
impl ImageLookup {
    /// For tests of other modules.
    pub(crate) fn new(image: &str, at: UnixMicros, result: LookupResult) -> Self {
        Self {
            image: image.into(),
            at,
            result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> UnixMicros {
        UnixMicros::new(seconds * 1_000_000)
    }

    fn no_image(image: &str, at: UnixMicros) -> ImageLookup {
        ImageLookup::new(image, at, LookupResult::Missing)
    }

    #[test]
    fn an_image_that_is_pulled_is_not_absent() {
        let mut images = AwaitedImages::default();
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
        assert_eq!(images.missing(), [expected]);
        for n in 0..2 * MAX_MISSING_IMAGES {
            images.note(no_image(&n.to_string(), at(1)), Some(9));
        }
        assert_eq!(images.missing().len(), MAX_MISSING_IMAGES);
    }

    #[test]
    fn each_pod_that_waits_for_an_image_is_known() {
        let mut images = AwaitedImages::default();
        images.note(no_image("a:1", at(1)), Some(7));
        images.note(no_image("a:1", at(100)), Some(8));
        let known: Vec<_> = images
            .missing()
            .iter()
            .map(|missing| (missing.episode, missing.first))
            .collect();
        assert_eq!(known, [(7, at(1)), (8, at(100))]);
    }
}
