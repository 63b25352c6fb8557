//! The checkpoint for which a pod, or a container of it, is or was frozen.

use std::time::Duration;

use crate::episode_store::{CheckpointRecord, Episode};
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// How long a checkpoint is told after its end. Connections and leases that broke during the freeze are noticed within this time.
const CHECKPOINT_TOLD_FOR: Duration = Duration::from_secs(3600);

/// A checkpoint that is in flight, or has ended not long ago.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentCheckpoint<'a> {
    pub(super) record: &'a CheckpointRecord,
    /// Time since its end.
    pub(super) ago: Duration,
}

/// The newest checkpoint of a pod that was neither stopped nor started again since.
pub(super) fn recent_checkpoint<'a>(
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<RecentCheckpoint<'a>> {
    let all = pod.iter().flat_map(|episode| &episode.checkpoints);
    let record = all.max_by_key(|checkpoint| checkpoint.ended)?;
    let ago = now.since(record.ended);
    let is_past = pod
        .iter()
        .any(|episode| episode.kind != Kind::Restart && episode.began > record.began);
    (ago <= CHECKPOINT_TOLD_FOR && !is_past).then_some(RecentCheckpoint { record, ago })
}
