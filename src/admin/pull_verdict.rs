//! The verdict over the image pulls: images that cannot be pulled, pulls that are stalled.

use std::collections::BTreeMap;

use super::verdict::Verdict;
use crate::lifecycle::view::{ImagePullList, ImagePullView, VerdictLevel};

/// Most images that the verdict names.
const MAX_IMAGES_NAMED: usize = 3;

/// The verdict over all pulls.
pub(super) fn verdict(pulls: &ImagePullList) -> Verdict {
    let failing = failing_images(pulls);
    let stalled = pulls.in_flight.iter().filter(|pull| pull.is_stalled());
    let stalled = stalled.count();
    let running = pulls.in_flight.len();
    let in_progress = match (running, stalled) {
        (0, _) => String::new(),
        (1, 0) => " 1 image is being pulled.".to_owned(),
        (n, 0) => format!(" {n} images are being pulled."),
        (1, _) => " The only pull in progress gets no bytes.".to_owned(),
        (n, 1) => format!(" 1 of {n} pulls in progress gets no bytes."),
        (n, stalled) => format!(" {stalled} of {n} pulls in progress get no bytes."),
    };
    match (&failing[..], stalled, running, pulls.recent.len()) {
        ([], 0, 0, 0) => Verdict::empty("No image has been pulled yet."),
        ([], 0, 0, _) => {
            Verdict::good("No image is being pulled, and the last pull of every image succeeded.")
        }
        ([], 0, ..) => Verdict::new(VerdictLevel::Busy, in_progress.trim_start()),
        ([], ..) => Verdict::warning(in_progress.trim_start()),
        ([only], ..) => Verdict::bad(format!("The image {only} cannot be pulled.{in_progress}")),
        (images, ..) => {
            let named: Vec<_> = images.iter().take(MAX_IMAGES_NAMED).copied().collect();
            let more = images.len().saturating_sub(MAX_IMAGES_NAMED);
            let more = if more == 0 {
                String::new()
            } else {
                format!(" and {more} more")
            };
            Verdict::bad(format!(
                "{} images cannot be pulled: {}{more}.{in_progress}",
                images.len(),
                named.join(", ")
            ))
        }
    }
}

/// The images whose newest pull failed, the newest first.
fn failing_images(pulls: &ImagePullList) -> Vec<&str> {
    let mut newest = BTreeMap::<&str, &ImagePullView>::new();
    for pull in &pulls.recent {
        let Some(image) = pull.call.image.as_deref().filter(|image| !image.is_empty()) else {
            continue;
        };
        let known = newest.entry(image).or_insert(pull);
        if pull.call.began_unix_us > known.call.began_unix_us {
            *known = pull;
        }
    }
    let mut failing: Vec<_> = newest
        .into_iter()
        .filter(|(_, pull)| pull.call.is_failed())
        .collect();
    failing.sort_by_key(|(_, pull)| std::cmp::Reverse(pull.call.began_unix_us));
    failing.into_iter().map(|(image, _)| image).collect()
}

#[cfg(test)]
mod tests {
    use maud::Render as _;

    use super::*;
    use crate::lifecycle::view::{CallView, PullProgressView};
    use crate::units::times::UnixMicros;

    fn pull(image: &str, at: u64, outcome: &str) -> ImagePullView {
        ImagePullView::from(CallView {
            image: Some(image.to_owned()),
            outcome: outcome.to_owned(),
            began_unix_us: UnixMicros::new(at),
            ..CallView::default()
        })
    }

    fn said(in_flight: Vec<ImagePullView>, recent: Vec<ImagePullView>) -> String {
        let list = ImagePullList {
            in_flight,
            recent,
            ..ImagePullList::default()
        };
        verdict(&list).render().into_string()
    }

    #[test]
    fn an_image_whose_last_pull_failed_is_told() {
        let none = said(Vec::new(), Vec::new());
        assert!(none.contains("No image has been pulled yet."), "{none}");
        let mended = said(Vec::new(), vec![pull("a", 2, "ok"), pull("a", 1, "error")]);
        assert!(mended.contains("class=\"verdict good\""), "{mended}");
        let failing = said(
            vec![pull("c", 9, CallView::IN_FLIGHT)],
            vec![
                pull("<b>", 3, "error"),
                pull("a", 2, "error"),
                pull("a", 1, "ok"),
            ],
        );
        assert!(
            failing.contains("2 images cannot be pulled: &lt;b&gt;, a. 1 image is being pulled."),
            "{failing}"
        );
    }

    #[test]
    fn a_pull_without_bytes_is_stalled() {
        let mut stalled = pull("a", 1, CallView::IN_FLIGHT);
        stalled.progress = Some(PullProgressView {
            idle_ms: 9e3,
            ..PullProgressView::default()
        });
        let html = said(vec![stalled], Vec::new());
        assert!(
            html.contains("The only pull in progress gets no bytes."),
            "{html}"
        );
    }
}
