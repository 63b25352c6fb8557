//! All stories of this node, for those who read them.

use std::sync::Arc;

use super::view::{PodStory, Recent};
use crate::cri::Call;

/// The episodes that are remembered. Shared by the keeper, who writes, and the pages, who read; both live on the side
/// thread.
#[derive(Debug, Default)]
pub struct Stories {}

impl Stories {
    /// Recent episodes, the newest first, without their calls. Calls in flight count to the episodes they belong to.
    pub fn recent(&self, _in_flight: &[Arc<Call>]) -> Recent {
        Recent::default()
    }

    /// All that is remembered of the pods of this name; `None` if there is nothing.
    pub fn of_pod(
        &self,
        _namespace: &str,
        _name: &str,
        _in_flight: &[Arc<Call>],
    ) -> Option<PodStory> {
        None
    }
}
