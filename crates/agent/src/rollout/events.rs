//! Events on Nodes that tell the story of a rollout.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use tokio::time::timeout;

use super::Goal;
use crate::events::node::{NODE_EVENT_NAMESPACE, NodeEvent, node_event};
use crate::events::{API_TIMEOUT, MAX_NOTE_LEN};

/// The name under which these events are reported.
const CONTROLLER: &str = "criscope.dev/installer";

/// What has happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolloutEvent {
    /// Its turn has begun.
    Begun,
    /// It is as wanted.
    Done,
    /// It is not healthy.
    Failed,
    /// Its installer has disappeared during its turn.
    Lost,
}

impl RolloutEvent {
    const fn reason(self, goal: Goal) -> &'static str {
        match (self, goal) {
            (Self::Begun, Goal::Install) => "CriscopeInstalling",
            (Self::Done, Goal::Install) => "CriscopeInstalled",
            (Self::Failed, Goal::Install) => "CriscopeInstallFailed",
            (Self::Lost, Goal::Install) => "CriscopeInstallLost",
            (Self::Begun, Goal::Uninstall) => "CriscopeUninstalling",
            (Self::Done, Goal::Uninstall) => "CriscopeUninstalled",
            (Self::Failed, Goal::Uninstall) => "CriscopeUninstallFailed",
            (Self::Lost, Goal::Uninstall) => "CriscopeUninstallLost",
        }
    }

    const fn is_warning(self) -> bool {
        matches!(self, Self::Failed | Self::Lost)
    }
}

/// Writes an event. A failure is logged and no more: the record of the node has the same facts.
pub(crate) async fn write(
    client: kube::Client,
    node: &str,
    goal: Goal,
    event: RolloutEvent,
    note: &str,
) {
    let now = Timestamp::now();
    let reason = event.reason(goal);
    let event = node_event(&NodeEvent {
        node,
        name: &format!("{}-{:x}", reason.to_ascii_lowercase(), now.as_millisecond()),
        controller: CONTROLLER,
        at: now,
        action: match goal {
            Goal::Install => "Install",
            Goal::Uninstall => "Uninstall",
        },
        reason,
        is_warning: event.is_warning(),
        note: crate::events::report::cut(note, MAX_NOTE_LEN),
    });
    let events = Api::<Event>::namespaced(client, NODE_EVENT_NAMESPACE);
    match timeout(API_TIMEOUT, events.create(&PostParams::default(), &event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(event = "agent.rollout", node, reason, %error, "cannot write an event");
        }
        Err(_) => {
            tracing::warn!(
                event = "agent.rollout",
                node,
                reason,
                "cannot write an event in time"
            );
        }
    }
}
