//! The record of a node: a Lease in the installers' namespace with the name of the node, as the kubelet has one in
//! `kube-node-lease`. It belongs to the Node, so Kubernetes deletes it together with the Node.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
#[cfg(target_os = "linux")]
use {
    super::LEASE_LABEL,
    k8s_openapi::api::core::v1::Node,
    k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    sha2::{Digest as _, Sha256},
};

use super::{COORDINATOR_LEASE, MaxParallel};

const STATE: &str = "criscope.dev/state";
const GOAL: &str = "criscope.dev/goal";
const REASON: &str = "criscope.dev/reason";
const SINCE: &str = "criscope.dev/since";
const INSTALLER: &str = "criscope.dev/installer";
const REVISION: &str = "criscope.dev/revision";
const CANARY: &str = "criscope.dev/canary";
const CANARY_SELECTOR: &str = "criscope.dev/canary-selector";
const MAX_PARALLEL: &str = "criscope.dev/max-parallel";
const INSTALLED: &str = "criscope.dev/installed";

/// Declares an enum whose values have names in annotations.
macro_rules! named_values {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$value_doc])* $value,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The name of the value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $text,)+ }
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}

named_values! {
    /// The state of a node in a rollout.
    NodeState {
        /// The installer waits for a turn.
        Waiting = "waiting",
        /// The node has a turn, which its installer has not taken yet.
        Turn = "turn",
        /// The node is changed.
        Working = "working",
        /// The node is healthy and keeps its turn for the soak time.
        Soaking = "soaking",
        /// The node is as wanted.
        Done = "done",
        /// The node is not healthy, which stops the rollout.
        Failed = "failed",
        /// The installer disappeared during its turn.
        Lost = "lost",
        /// A person has decided to go on without the node.
        Skipped = "skipped",
    }
}

impl NodeState {
    /// Returns whether the node counts as one that is worked on.
    pub const fn has_turn(self) -> bool {
        matches!(self, Self::Turn | Self::Working | Self::Soaking)
    }
}

named_values! {
    /// What a rollout does.
    Goal {
        /// Put criscope on the nodes.
        Install = "install",
        /// Restore the nodes.
        Uninstall = "uninstall",
    }
}

/// The record of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The name of the node.
    pub node: String,
    /// The state.
    pub state: NodeState,
    /// What the installer is to do.
    pub goal: Goal,
    /// Why the node is in this state; empty if there is nothing to say.
    pub reason: String,
    /// When the state began.
    pub since: Option<Timestamp>,
    /// The uid of the installer's pod.
    pub installer: String,
    /// The revision of the DaemonSet.
    pub revision: String,
    /// How many nodes may be worked on, for this node to be one of them.
    pub max_parallel: MaxParallel,
    /// The nodes that go first.
    pub canary_selector: Option<String>,
    /// Set if this node is one of them.
    pub is_canary: bool,
    /// The version of criscope that was installed by a rollout and not removed since.
    pub installed: Option<String>,
    /// The last sign of life during a turn.
    pub renewed: Option<Timestamp>,
}

impl NodeRecord {
    /// Reads a Lease. `None` if it is not the record of a node.
    pub fn from_lease(lease: &Lease) -> Option<Self> {
        let name = lease.metadata.name.as_deref()?;
        if name == COORDINATOR_LEASE {
            return None;
        }
        let annotations = lease.metadata.annotations.as_ref()?;
        let renewed = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.renew_time.as_ref());
        Some(Self {
            node: name.to_owned(),
            state: NodeState::from_name(annotations.get(STATE)?)?,
            goal: annotations
                .get(GOAL)
                .and_then(|goal| Goal::from_name(goal))
                .unwrap_or(Goal::Install),
            reason: annotations.get(REASON).cloned().unwrap_or_default(),
            since: annotations.get(SINCE).and_then(|time| time.parse().ok()),
            installer: annotations.get(INSTALLER).cloned().unwrap_or_default(),
            revision: annotations.get(REVISION).cloned().unwrap_or_default(),
            max_parallel: annotations
                .get(MAX_PARALLEL)
                .and_then(|max| max.parse().ok())
                .unwrap_or(MaxParallel::Nodes(1)),
            canary_selector: annotations.get(CANARY_SELECTOR).cloned(),
            is_canary: annotations.contains_key(CANARY),
            installed: annotations.get(INSTALLED).cloned(),
            renewed: renewed.map(|time| time.0),
        })
    }

    /// The annotations of the record, as a merge patch, which removes absent ones.
    pub fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        let since = self.since.unwrap_or_else(Timestamp::now).to_string();
        BTreeMap::from([
            (STATE, Some(self.state.name().to_owned())),
            (GOAL, Some(self.goal.name().to_owned())),
            (
                REASON,
                Some(self.reason.clone()).filter(|reason| !reason.is_empty()),
            ),
            (SINCE, Some(since)),
            (INSTALLER, Some(self.installer.clone())),
            (REVISION, Some(self.revision.clone())),
            (MAX_PARALLEL, Some(self.max_parallel.to_string())),
            (CANARY_SELECTOR, self.canary_selector.clone()),
            (CANARY, self.is_canary.then(|| "true".to_owned())),
            (INSTALLED, self.installed.clone()),
        ])
    }

    #[cfg(target_os = "linux")]
    /// A new Lease with this record, which belongs to the Node.
    pub fn new_lease(&self, owner: &Node) -> Lease {
        let annotations = self.annotations().into_iter();
        let annotations = annotations.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        Lease {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                labels: Some(BTreeMap::from([
                    (LEASE_LABEL.to_owned(), label_value(&self.node)),
                    ("app.kubernetes.io/name".to_owned(), "criscope".to_owned()),
                ])),
                annotations: Some(annotations.collect()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: self.node.clone(),
                    uid: owner.metadata.uid.clone().unwrap_or_default(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: None,
        }
    }
}

/// Sets state and reason of a record in its Lease.
pub fn set_state(lease: &mut Lease, state: NodeState, reason: &str) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(STATE.to_owned(), state.name().to_owned());
    annotations.insert(SINCE.to_owned(), Timestamp::now().to_string());
    if reason.is_empty() {
        annotations.remove(REASON);
    } else {
        annotations.insert(REASON.to_owned(), reason.to_owned());
    }
}

/// Sets the reason alone. Returns whether it was another one.
pub fn set_reason(lease: &mut Lease, reason: &str) -> bool {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    let before = annotations.insert(REASON.to_owned(), reason.to_owned());
    before.as_deref() != Some(reason)
}

/// An annotation of a Lease.
pub(super) fn annotation(lease: Option<&Lease>, name: &str) -> Option<String> {
    lease?.metadata.annotations.as_ref()?.get(name).cloned()
}

#[cfg(target_os = "linux")]
/// The value of [`LEASE_LABEL`] for a node, whose name may be longer than a label.
pub fn label_value(node: &str) -> String {
    let digest = Sha256::digest(node.as_bytes());
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
