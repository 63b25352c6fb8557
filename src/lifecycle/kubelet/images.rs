//! Images that the kubelet looked for, did not find, and has not pulled: with `imagePullPolicy: Never` it makes no other call.
//!
//! ImageStatus names no pod. A pod is told by the time: the kubelet looks for the image right after it has made the sandbox.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::call::{CallRecord, Client};
use crate::cri::Method;

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
}

/// The image that a call has found to be absent, and when.
pub(in crate::lifecycle) fn found_absent(record: &CallRecord) -> Option<(Arc<str>, u64)> {
    let is_it = record.method == Method::ImageStatus
        && record.peer.client == Client::Kubelet
        && record.is_good()
        && record.response_bytes == EMPTY;
    let image = record.image.clone().filter(|_| is_it)?;
    Some((image, record.end_us()))
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(in crate::lifecycle) struct AbsentImages(VecDeque<Absent>);

impl AbsentImages {
    /// The kubelet did not find it.
    pub(in crate::lifecycle) fn note(&mut self, image: Arc<str>, at: u64) {
        let known = self.0.iter_mut().find(|it| it.image == image);
        if let Some(known) = known.filter(|it| at.saturating_sub(it.last) <= SERIES) {
            known.times += 1;
            known.last = known.last.max(at);
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
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn an_image_that_is_pulled_is_not_absent() {
        let mut images = AbsentImages::default();
        images.note("a:1".into(), SECOND);
        images.note("b:1".into(), 2 * SECOND);
        images.note("a:1".into(), 14 * SECOND);
        images.forget("b:1");
        let expected = Absent {
            image: "a:1".into(),
            first: SECOND,
            last: 14 * SECOND,
            times: 2,
        };
        assert_eq!(images.all(), [expected]);
        images.note("a:1".into(), 14 * SECOND + SERIES + 1);
        assert_eq!(images.all()[0].times, 1, "another pod");
        for n in 0..2 * MOST {
            images.note(n.to_string().into(), SECOND);
        }
        assert_eq!(images.all().len(), MOST);
    }

    #[test]
    fn a_pod_is_told_by_the_time_if_there_is_no_other() {
        let mut images = AbsentImages::default();
        images.note("a:1".into(), 10 * SECOND + 1000);
        let absent = images.all();
        let of = |waiting: &[u64]| awaited(&absent, waiting, 10 * SECOND).map(|it| &*it.image);
        assert_eq!(of(&[10 * SECOND, 3 * SECOND]), Some("a:1"));
        assert_eq!(of(&[10 * SECOND, 10 * SECOND - 1000]), None, "two pods");
        assert_eq!(awaited(&absent, &[11 * SECOND], 11 * SECOND), None);
        images.note("b:1".into(), 10 * SECOND + 2000);
        assert_eq!(awaited(&images.all(), &[], 10 * SECOND), None, "two images");
    }
}
