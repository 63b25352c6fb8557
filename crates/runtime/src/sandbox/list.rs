//! ListPodSandbox.

use std::collections::HashMap;

use super::status::state_of;
use crate::Runtime;
use criscope_cri::v1;

impl Runtime {
    /// Returns the sandboxes that match the filter; all sandboxes without one.
    pub fn list_pod_sandbox(&self, filter: Option<&v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let mut found: Vec<_> = self
            .store
            .sandboxes
            .all()
            .into_iter()
            .map(|sandbox| sandbox.record())
            .collect();
        if let Some(filter) = filter {
            found.retain(|record| {
                let state = filter.state.as_ref();
                record.id.starts_with(&filter.id)
                    && state.is_none_or(|state| state.state == state_of(record) as i32)
                    && selects(&filter.label_selector, &record.config.labels)
            });
        }
        // Newest first, the order of crictl and the kubelet.
        found.sort_by_key(|record| std::cmp::Reverse(record.created_at));
        let items = found.iter().map(|record| v1::PodSandbox {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: state_of(record) as i32,
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            runtime_handler: record.asked_handler.clone(),
        });
        items.collect()
    }
}

/// Returns whether `labels` match every entry of the selector.
pub(crate) fn selects(
    selector: &HashMap<String, String>,
    labels: &HashMap<String, String>,
) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
