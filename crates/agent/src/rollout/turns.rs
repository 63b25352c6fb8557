//! How the coordinator gives turns: it looks at the records of all nodes, takes turns from nodes that are gone, and gives new ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams};
use tokio::time::Instant;

use super::coordinator::Coordinator;
use super::events::{self, RolloutEvent};
use super::lease_watch::LeaseWatch;
use super::plan::{CanaryNode, Situation};
use super::record::{self, NodeRecord, NodeState, annotation};
use super::{COORDINATOR_LEASE, PAUSED_ANNOTATION, STOPPED_ANNOTATION};

/// What the coordinator remembers of the records.
#[derive(Default)]
pub(super) struct Memory {
    /// The last sign of life of each node, and when it was seen: the clocks of other nodes are not compared with this one.
    seen: HashMap<String, (NodeState, Option<Timestamp>, Instant)>,
    /// Nodes that get no turn until then.
    passed_over: HashMap<String, Instant>,
    /// Nodes that should go first, by selector, and when they were listed.
    canaries: BTreeMap<String, (Instant, Vec<CanaryNode>)>,
    /// When nodes without progress were looked up.
    looked_up: Option<Instant>,
}

impl Coordinator {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Looks at all records once.
    pub(super) async fn step(
        &self,
        all: &LeaseWatch,
        memory: &mut Memory,
        own: &mut Lease,
    ) -> kube::Result<()> {
        let (records, paused) = all.read(|leases| {
            let records: Vec<_> = leases.values().filter_map(NodeRecord::from_lease).collect();
            let coordinator = leases.get(COORDINATOR_LEASE);
            (records, annotation(coordinator, PAUSED_ANNOTATION))
        });
        let now = Instant::now();
        memory.note(&records, now);
        for record in &records {
            self.check_life(all, memory, record, now).await?;
        }
        if memory
            .looked_up
            .is_none_or(|then| now - then >= self.timing.pass_over)
        {
            memory.looked_up = Some(now);
            let stuck = [NodeState::Failed, NodeState::Lost, NodeState::Skipped];
            for record in records
                .iter()
                .filter(|record| stuck.contains(&record.state))
            {
                self.reachable(all, &record.node).await?;
            }
        }
        memory.passed_over.retain(|_, until| *until > now);
        let mut situation = Situation {
            records,
            own_node: &self.node,
            paused,
            passed_over: memory.passed_over.keys().cloned().collect(),
            canaries: BTreeMap::new(),
        };
        let selectors: BTreeSet<_> = situation.canary_selectors();
        let selectors: Vec<_> = selectors.into_iter().map(str::to_owned).collect();
        for selector in selectors {
            if let Some(canaries) = self.canaries(memory, &selector, now).await {
                situation.canaries.insert(selector, canaries);
            }
        }
        let decision = situation.decide();
        for node in &decision.turns {
            self.give_turn(all, memory, node, now).await?;
        }
        let told = annotation(all.get(COORDINATOR_LEASE).as_ref(), STOPPED_ANNOTATION);
        if told != decision.stopped && self.tell(own, decision.stopped.as_deref()).await? {
            all.put(own.clone());
        }
        Ok(())
    }

    /// Takes the turn from a node whose installer shows no sign of life.
    async fn check_life(
        &self,
        all: &LeaseWatch,
        memory: &mut Memory,
        record: &NodeRecord,
        now: Instant,
    ) -> kube::Result<()> {
        let is_overdue = memory
            .seen
            .get(&record.node)
            .is_some_and(|(_, _, seen)| now.saturating_duration_since(*seen) >= self.timing.lease);
        if !record.state.has_turn() || !is_overdue {
            return Ok(());
        }
        let Some(is_reachable) = self.reachable(all, &record.node).await? else {
            return Ok(());
        };
        let kubelet = if is_reachable {
            ""
        } else {
            ", and neither does its kubelet"
        };
        if record.state == NodeState::Turn {
            let reason = format!("its installer did not answer when it was its turn{kubelet}");
            let until = now + self.timing.pass_over;
            memory.passed_over.insert(record.node.clone(), until);
            return self
                .set_state(all, &record.node, NodeState::Waiting, &reason)
                .await;
        }
        let reason = format!(
            "its installer has not answered for {} s during its turn{kubelet}",
            self.timing.lease.as_secs()
        );
        tracing::warn!(
            event = "agent.rollout",
            node = record.node,
            reason,
            "a node is lost"
        );
        self.set_state(all, &record.node, NodeState::Lost, &reason)
            .await?;
        let client = self.client.clone();
        events::write(
            client,
            &record.node,
            record.goal,
            RolloutEvent::Lost,
            &reason,
        )
        .await;
        Ok(())
    }

    async fn give_turn(
        &self,
        all: &LeaseWatch,
        memory: &mut Memory,
        node: &str,
        now: Instant,
    ) -> kube::Result<()> {
        match self.reachable(all, node).await? {
            None => Ok(()),
            Some(true) => self.set_state(all, node, NodeState::Turn, "").await,
            Some(false) => {
                memory
                    .passed_over
                    .insert(node.to_owned(), now + self.timing.pass_over);
                let Some(mut lease) = all.get(node) else {
                    return Ok(());
                };
                if record::set_reason(&mut lease, "the node is not reachable") {
                    all.put(self.replace(&lease).await?);
                }
                Ok(())
            }
        }
    }

    async fn set_state(
        &self,
        all: &LeaseWatch,
        node: &str,
        state: NodeState,
        reason: &str,
    ) -> kube::Result<()> {
        let Some(mut lease) = all.get(node) else {
            return Ok(());
        };
        record::set_state(&mut lease, state, reason);
        all.put(self.replace(&lease).await?);
        Ok(())
    }

    /// Returns whether the kubelet of a node reports to the API server. Deletes the record of a Node that is deleted, as
    /// Kubernetes does too.
    async fn reachable(&self, all: &LeaseWatch, name: &str) -> kube::Result<Option<bool>> {
        if let Some(node) = self.nodes().get_opt(name).await? {
            return Ok(Some(is_reachable(&node)));
        }
        tracing::info!(
            event = "agent.rollout",
            node = name,
            "the Node is deleted: its record is, too"
        );
        if all.get(name).is_some() {
            match self.leases().delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(None)
    }

    /// The nodes that should go first.
    async fn canaries(
        &self,
        memory: &mut Memory,
        selector: &str,
        now: Instant,
    ) -> Option<Vec<CanaryNode>> {
        if let Some((listed, nodes)) = memory.canaries.get(selector)
            && now.saturating_duration_since(*listed) < self.timing.renewal
        {
            return Some(nodes.clone());
        }
        match self
            .nodes()
            .list(&ListParams::default().labels(selector))
            .await
        {
            Ok(nodes) => {
                let nodes: Vec<_> = nodes
                    .iter()
                    .map(|node| CanaryNode {
                        node: node.metadata.name.clone().unwrap_or_default(),
                        is_reachable: is_reachable(node),
                    })
                    .collect();
                memory
                    .canaries
                    .insert(selector.to_owned(), (now, nodes.clone()));
                Some(nodes)
            }
            Err(error) => {
                tracing::warn!(event = "agent.rollout", selector, %error, "cannot list the canary nodes");
                None
            }
        }
    }
}

impl Memory {
    /// Notes which records show a new sign of life.
    fn note(&mut self, records: &[NodeRecord], now: Instant) {
        let mut seen = std::mem::take(&mut self.seen);
        for record in records {
            let known = seen.remove(&record.node);
            let known = known
                .filter(|(state, renewed, _)| (*state, *renewed) == (record.state, record.renewed));
            let known = known.unwrap_or((record.state, record.renewed, now));
            self.seen.insert(record.node.clone(), known);
        }
    }
}

/// Returns whether the kubelet of a node reports to the API server. A node that is not Ready for another reason can be worked on.
pub(super) fn is_reachable(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    !conditions.any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}
