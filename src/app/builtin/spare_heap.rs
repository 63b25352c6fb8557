//! Gives the heap back that pulls have used.

use std::time::{Duration, SystemTime};

use criscope_image::ImageStore;
use tokio::time::{MissedTickBehavior, interval};

use crate::app::heap;

/// How often is looked whether a pull has ended.
const LOOK: Duration = Duration::from_secs(10);
/// How long no pull must have ended, so that a series of pulls counts as one. The connections to the registry are closed by then.
const REST: Duration = Duration::from_secs(10);

/// A pull frees nearly all that it allocated, but what others allocated meanwhile lies between: without this, the pages stay.
pub(super) async fn trim_after_pulls(images: ImageStore) {
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trimmed_after = SystemTime::UNIX_EPOCH;
    loop {
        tick.tick().await;
        let Some(ended) = images.ended_pulls().last().map(|pull| pull.ended) else {
            continue;
        };
        let rests = ended.elapsed().is_ok_and(|since| since >= REST);
        if ended != trimmed_after && rests && images.pulls().is_empty() {
            heap::trim();
            trimmed_after = ended;
        }
    }
}
