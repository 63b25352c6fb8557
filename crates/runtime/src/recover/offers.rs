//! Offers objects that the previous daemon created, possibly without responding, to callers that retry.

use crate::Runtime;
use crate::container::create_fingerprint;
use crate::singleflight::fingerprint;
use crate::store::{ContainerState, Sandbox, SandboxState};

impl Runtime {
    /// Offers a sandbox without containers, and containers that were not started: their callers may not have received a response.
    pub(super) fn offer_pod(&self, sandbox: &Sandbox) {
        let record = sandbox.record();
        if record.state != SandboxState::Ready {
            return;
        }
        let containers = self.store.containers_of(&sandbox.id);
        if containers.is_empty() {
            let print = fingerprint(&(&record.config, &record.asked_handler));
            self.singleflight.offer(&record.name(), print, &sandbox.id);
        }
        for container in containers {
            let made = container.record();
            if made.state == ContainerState::Created {
                let print = create_fingerprint(&sandbox.id, made.config.clone());
                self.singleflight
                    .offer(&made.name(&record), print, &container.id);
            }
        }
    }
}
