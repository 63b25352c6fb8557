//! Retries that waited for the call that the kubelet had given up.

use super::remarks::{Diagnosis, Remark};
use crate::episode_store::Episode;

/// Adds that the last try of an episode joined an earlier one.
pub(super) fn add_joined(diagnosis: &mut Diagnosis<'_>, episode: &Episode) {
    let calls = episode.calls.iter();
    let mut joined = calls.filter_map(|call| call.joined);
    let retries = joined.clone().count();
    if let Some(joined) = joined.next_back() {
        diagnosis.remarks.push(Remark::RetryJoined {
            deadline: joined.deadline(),
            retries,
        });
    }
}
