//! Images that the kubelet looked for, did not find, and has not pulled: with `imagePullPolicy: Never` it makes no other call.
//!
//! ImageStatus names no pod. A pod is told by the time: the kubelet looks for the image right after it has made the sandbox.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::call::{CallRecord, Client, Ending};
use crate::cri::Method;
use crate::cri::status::code_name;

/// Most images that are remembered.
const MOST: usize = 64;
/// The kubelet looks for the image this soon after the last call for the pod, in microseconds.
const AT_ONCE: u64 = 500_000;
/// Looks further apart than this are not for the same pod, in microseconds: twice the longest back-off of the kubelet.
const SERIES: u64 = 10 * 60 * 1_000_000;
/// Size of a response without an image, in bytes: the header of its gRPC frame.
const EMPTY: u64 = 5;

/// An image that is absent. Times in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lifecycle) struct Absent {
    pub(in crate::lifecycle) image: Arc<str>,
    pub(in crate::lifecycle) first: u64,
    pub(in crate::lifecycle) last: u64,
    /// How often the kubelet looked for it.
    pub(in crate::lifecycle) times: u32,
    /// The last error, if the runtime could not look it up.
    pub(in crate::lifecycle) error: Option<Arc<str>>,
}

/// What the kubelet found when it looked for an image.
#[derive(Clone, Debug)]
pub struct NoImage {
    image: Arc<str>,
    /// In microseconds since 1970.
    at: u64,
    error: Option<Arc<str>>,
}

impl NoImage {
    /// Of a call that has ended; `None` for other calls, and if the image is there.
    pub(in crate::lifecycle) fn of(record: &CallRecord) -> Option<Self> {
        let is_it = record.method == Method::ImageStatus && record.peer.client == Client::Kubelet;
        let failed = record.has_ended(Ending::Error);
        let is_absent = record.is_good() && record.response_bytes == EMPTY;
        let image = record
            .image
            .clone()
            .filter(|_| is_it && (failed || is_absent))?;
        let outcome = record.outcome()?;
        let error = outcome.message.as_deref().unwrap_or_default();
        let error = || format!("{} {error}", code_name(outcome.code)).into();
        Some(Self {
            image,
            at: record.end_us(),
            error: failed.then(error),
        })
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(in crate::lifecycle) struct AbsentImages(VecDeque<Absent>);

impl AbsentImages {
    /// The kubelet did not find it.
    pub(in crate::lifecycle) fn note(&mut self, found: NoImage) {
        let NoImage { image, at, error } = found;
        let known = self.0.iter_mut().find(|it| it.image == image);
        if let Some(known) = known.filter(|it| at.saturating_sub(it.last) <= SERIES) {
            known.times += 1;
            known.last = known.last.max(at);
            known.error = error;
            return;
        }
        self.forget(&image);
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Absent {
            image,
            first: at,
            last: at,
            times: 1,
            error,
        });
    }

    /// It is pulled.
    pub(in crate::lifecycle) fn forget(&mut self, image: &str) {
        self.0.retain(|it| *it.image != *image);
    }

    /// All of them.
    pub(in crate::lifecycle) fn all(&self) -> Vec<Absent> {
        self.0.iter().cloned().collect()
    }
}

/// The image that a pod waits for whose last call ended at `last`, in microseconds since 1970; `waiting` are these times of
/// all pods that wait. `None` if there is none, or if it could be that of another pod.
pub(in crate::lifecycle) fn awaited<'a>(
    absent: &'a [Absent],
    waiting: &[u64],
    last: u64,
) -> Option<&'a Absent> {
    let follows =
        |at: u64, image: &Absent| (at..=at.saturating_add(AT_ONCE)).contains(&image.first);
    let mut own = absent.iter().filter(|image| follows(last, image));
    let image = own.next().filter(|_| own.next().is_none())?;
    let pods = waiting.iter().filter(|at| follows(**at, image)).count();
    (pods <= 1).then_some(image)
}

#[cfg(test)]
impl NoImage {
    /// For tests of other modules.
    pub(in crate::lifecycle) fn new(image: &str, at: u64, error: Option<&str>) -> Self {
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

    const SECOND: u64 = 1_000_000;

    fn no_image(image: &str, at: u64) -> NoImage {
        NoImage::new(image, at, None)
    }

    #[test]
    fn an_image_that_is_pulled_is_not_absent() {
        let mut images = AbsentImages::default();
        images.note(no_image("a:1", SECOND));
        images.note(no_image("b:1", 2 * SECOND));
        images.note(no_image("a:1", 14 * SECOND));
        images.forget("b:1");
        let expected = Absent {
            image: "a:1".into(),
            first: SECOND,
            last: 14 * SECOND,
            times: 2,
            error: None,
        };
        assert_eq!(images.all(), [expected]);
        images.note(no_image("a:1", 14 * SECOND + SERIES + 1));
        assert_eq!(images.all()[0].times, 1, "another pod");
        for n in 0..2 * MOST {
            images.note(no_image(&n.to_string(), SECOND));
        }
        assert_eq!(images.all().len(), MOST);
    }

    #[test]
    fn a_pod_is_told_by_the_time_if_there_is_no_other() {
        let mut images = AbsentImages::default();
        images.note(no_image("a:1", 10 * SECOND + 1000));
        let absent = images.all();
        let of = |waiting: &[u64]| awaited(&absent, waiting, 10 * SECOND).map(|it| &*it.image);
        assert_eq!(of(&[10 * SECOND, 3 * SECOND]), Some("a:1"));
        assert_eq!(of(&[10 * SECOND, 10 * SECOND - 1000]), None, "two pods");
        assert_eq!(awaited(&absent, &[11 * SECOND], 11 * SECOND), None);
        images.note(no_image("b:1", 10 * SECOND + 2000));
        assert_eq!(awaited(&images.all(), &[], 10 * SECOND), None, "two images");
    }
}
