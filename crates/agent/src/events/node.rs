//! Events about a Node, as the kubelet writes them.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use super::report::cut;
use super::{MAX_INSTANCE_LEN, text};

/// Namespace of events on Nodes.
pub(crate) const NODE_EVENT_NAMESPACE: &str = "default";

/// Longest part of a node's name in the name of an event.
const MAX_NODE_NAME_LEN: usize = 200;

/// What an event says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeEvent<'a> {
    /// The Node.
    pub(crate) node: &'a str,
    /// The end of the event's name, which is the same for the same event.
    pub(crate) name: &'a str,
    /// `From` in `kubectl describe`.
    pub(crate) controller: &'a str,
    /// When it happened.
    pub(crate) at: Timestamp,
    /// What was done.
    pub(crate) action: &'a str,
    /// One word.
    pub(crate) reason: &'a str,
    /// Set for `Warning`, not `Normal`.
    pub(crate) is_warning: bool,
    /// The text.
    pub(crate) note: &'a str,
}

/// An event on a Node.
pub(crate) fn node_event(event: &NodeEvent<'_>) -> Event {
    let begin = cut(event.node, MAX_NODE_NAME_LEN).trim_end_matches(['.', '-']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{begin}.{}", event.name)),
            namespace: text(NODE_EVENT_NAMESPACE),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(event.at)),
        reporting_controller: text(event.controller),
        reporting_instance: text(cut(event.node, MAX_INSTANCE_LEN)),
        action: text(event.action),
        reason: text(event.reason),
        type_: text(if event.is_warning {
            "Warning"
        } else {
            "Normal"
        }),
        note: text(event.note),
        regarding: Some(ObjectReference {
            api_version: text("v1"),
            kind: text("Node"),
            name: text(event.node),
            // As the kubelet does, which does not know the uid of its Node.
            uid: text(event.node),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}
