//! The eviction of containers by plugins.

use std::sync::Arc;
use std::time::Duration;

use criscope_nri::EvictionRequest;

use crate::Runtime;
use crate::error::Result;
use crate::store::ContainerState;

/// Bytes of a plugin's reason that are kept: it becomes part of the status of the container, which the kubelet polls.
const MAX_REASON: usize = 1024;

impl Runtime {
    /// Kills a container because a plugin wants it to be gone. ContainerStatus says so: its record does before it is killed, in case
    /// the daemon ends in between. Succeeds if the container is not running or does not exist.
    ///
    /// # Errors
    /// As StopContainer.
    pub(super) async fn evict_container(
        self: &Arc<Self>,
        eviction: &EvictionRequest,
    ) -> Result<()> {
        let id = &eviction.container_id;
        let Some(container) = self.store.containers.find(id)? else {
            return Ok(());
        };
        let starting = container.op_lock.lock().await;
        if container.record().state != ContainerState::Running {
            return Ok(());
        }
        let message = message(eviction);
        container
            .update(|record| record.evicted = Some(message))
            .await?;
        drop(starting);
        let stopped = self.stop_container(id, Duration::ZERO).await;
        if stopped.is_err() {
            // The container runs on, and its later end has another reason. Only the exit shows that this is not recorded.
            let _unwritten = container.update(|record| record.evicted = None).await;
        }
        stopped
    }
}

fn message(eviction: &EvictionRequest) -> String {
    let EvictionRequest { plugin, reason, .. } = eviction;
    let reason = reason.trim();
    let end = reason.floor_char_boundary(MAX_REASON);
    match &reason[..end] {
        "" => format!("evicted by NRI plugin {plugin}"),
        reason => format!("evicted by NRI plugin {plugin}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_plugin_and_its_reason() {
        let message = |reason: &str| {
            message(&EvictionRequest {
                plugin: "10-quota".to_owned(),
                container_id: "c".to_owned(),
                reason: reason.to_owned(),
            })
        };
        assert_eq!(message(" "), "evicted by NRI plugin 10-quota");
        assert_eq!(
            message("disk full\n"),
            "evicted by NRI plugin 10-quota: disk full"
        );
        // Not cut within a character.
        let long = message(&"é".repeat(MAX_REASON));
        assert!(
            long.len() <= MAX_REASON + 40 && long.ends_with('é'),
            "{long}"
        );
    }
}
