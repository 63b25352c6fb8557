//! Passes the lists of runtimes to `lifecycle`, which knows no backends.

use std::sync::Arc;

use crate::cri::lists::RuntimeLists;
use crate::cri::subject::ContainerState;
use crate::lifecycle::Stories;
use crate::proxy::backend::resync::RuntimeListReceiver;

/// Gives `lifecycle` the pods that runtimes list.
pub(super) struct ListedPodsWriter(pub(super) Arc<Stories>);

impl RuntimeListReceiver for ListedPodsWriter {
    fn listed(&self, backend: &Arc<str>, lists: RuntimeLists) -> Vec<Arc<str>> {
        self.0.set_listed(backend, lists)
    }

    fn status(&self, container_id: &str, state: ContainerState) {
        self.0.note_listed_status(container_id, state);
    }
}
