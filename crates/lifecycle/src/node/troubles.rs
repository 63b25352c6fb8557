//! Trouble of the node itself, for the verdict over it: what holds now and keeps pods from starting.

use super::unknown::with_consequence;
use super::{NodeFact, NodeFactKind};
use crate::Stories;
use crate::kubelet::relist::RelistState;
use crate::view::NodeTrouble;

impl Stories {
    /// Trouble of the node that holds now, the worst first: the runtime, then the kubelet, then the disk.
    pub(crate) fn node_troubles(&self) -> Vec<NodeTrouble> {
        let now = self.now();
        let mut facts = self.store().facts();
        facts.sort_by_key(|fact| (rank(fact), fact.from));
        let facts = facts.iter().map(|fact| NodeTrouble {
            cause: fact.name().to_owned(),
            text: with_consequence(fact, now),
        });
        let relist = self.relist().filter(RelistState::is_slow);
        let relist = relist.map(|state| NodeTrouble {
            cause: "kubelet_relist_slow".to_owned(),
            text: state.to_string(),
        });
        facts.chain(relist).collect()
    }
}

fn rank(fact: &NodeFact) -> u8 {
    match fact.kind {
        NodeFactKind::BackendDown { .. } | NodeFactKind::BackendHangs { .. } => 0,
        NodeFactKind::NotReady { .. } => 1,
        NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent => 2,
        NodeFactKind::ImageFsFull { .. } => 3,
        NodeFactKind::CriscopeDown
        | NodeFactKind::CriscopeBypassed
        | NodeFactKind::NodeRestarted { .. }
        | NodeFactKind::CriscopeStalled => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stories::tests::stories;
    use criscope_cri::units::times::UnixMicros;

    #[test]
    fn the_runtime_comes_before_the_kubelet() {
        let stories = stories([]);
        assert_eq!(stories.node_troubles(), []);
        let began = UnixMicros::now();
        let not_ready = NodeFactKind::NotReady {
            backend: "containerd".to_owned(),
            condition: "NetworkReady".to_owned(),
        };
        for kind in [NodeFactKind::NoKubelet, not_ready] {
            stories.store().note_fact(NodeFact::new(kind, began, ""));
        }
        let troubles = stories.node_troubles();
        let causes: Vec<_> = troubles.iter().map(|trouble| &*trouble.cause).collect();
        assert_eq!(causes, ["backend_not_ready", "no_kubelet"]);
        assert!(troubles[0].text.contains("hostNetwork"), "{troubles:?}");
    }
}
