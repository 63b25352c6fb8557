//! An installer's part in a rollout: it registers its node, waits for a turn, works, and says how it went.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Expression;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::coordinator::{Coordinator, CoordinatorTask};
use super::events::{self, RolloutEvent};
use super::lease_watch::LeaseWatch;
use super::record::{Goal, NodeRecord, NodeState, label_value};
use super::{
    COORDINATOR_LABEL_VALUE, LEASE_LABEL, RolloutPolicy, RolloutTiming, is_conflict, random_part,
};
use crate::events::API_TIMEOUT;

/// Longest delay before a failed request is sent again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(20);

/// How long an interrupted installation may take to restore the node. The pod has 30 s to end.
const INTERRUPT_TIME: Duration = Duration::from_secs(25);

/// What an installer does on its node.
pub trait NodeWork {
    /// Changes the node.
    ///
    /// # Errors
    /// If the node is not as wanted; with the reason.
    fn work(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// Tells [`Self::work`] to end early and to take the change back.
    fn interrupt(&self);

    /// Checks the node during the soak time.
    ///
    /// # Errors
    /// If the node is not healthy; with the reason.
    fn check(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// Called when the state of the node changes.
    fn note_state(&self, state: NodeState);
}

/// Who an installer is.
#[derive(Clone, Debug)]
pub struct InstallerIdentity {
    /// The name of the node.
    pub node: String,
    /// The uid of the pod.
    pub pod_uid: String,
    /// The revision of the DaemonSet that the pod was made from.
    pub revision: String,
    /// What is to be done.
    pub goal: Goal,
}

/// The reason why an installer ended without success.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParticipantError {
    /// The API server refused a request.
    #[error("the record of node {0} in the cluster: {1}")]
    Api(String, kube::Error),
    /// The Node does not exist.
    #[error("the cluster has no Node {0}")]
    NoNode(String),
    /// The node is not as wanted.
    #[error("{0}; no other node is touched until `kubectl criscope rollout retry` or `resume`")]
    Failed(String),
    /// Another pod works on this node.
    #[error("another installer has begun on node {0}")]
    Superseded(String),
    /// The installer was told to end.
    #[error("ended by a signal before the node was done")]
    Stopped,
}

/// An installer that takes part in a rollout.
#[derive(Clone)]
pub struct Participant {
    /// The client of the API server.
    pub client: kube::Client,
    /// The namespace of the Leases.
    pub namespace: String,
    /// Who this is.
    pub identity: InstallerIdentity,
    /// How the rollout proceeds.
    pub policy: RolloutPolicy,
    /// The times of the rollout.
    pub timing: RolloutTiming,
}

impl std::fmt::Debug for Participant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Participant")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Participant {
    /// Waits for a turn, works on the node, and ends the turn.
    ///
    /// # Errors
    /// If the node is not as wanted, or `stop` was resolved first.
    pub async fn run<W: NodeWork>(
        &self,
        work: &W,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ParticipantError> {
        tokio::pin!(stop);
        let mut record = self.register().await?;
        work.note_state(record.state);
        let watch = LeaseWatch::start(self.leases(), &self.selector());
        let coordinator = Coordinator {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            node: self.identity.node.clone(),
            timing: self.timing,
        };
        let coordinating = CoordinatorTask::start(coordinator, watch.clone());
        let result = self
            .take_turn(work, &mut record, watch, stop.as_mut())
            .await;
        coordinating.end().await;
        result
    }

    async fn take_turn<W: NodeWork>(
        &self,
        work: &W,
        record: &mut NodeRecord,
        watch: LeaseWatch,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), ParticipantError> {
        // A node that is done has been started again: that needs no turn.
        let is_restart = record.state == NodeState::Done;
        if !is_restart {
            tokio::select! {
                turn = self.turn(work, record, watch) => turn?,
                () = stop.as_mut() => {
                    self.withdraw(record).await;
                    return Err(ParticipantError::Stopped);
                }
            }
            self.event(
                RolloutEvent::Begun,
                "its turn in the rollout of criscope has begun",
            )
            .await;
        }
        self.enter(work, record, NodeState::Working, "").await;
        let (mut result, is_interrupted) = {
            let working = self.renewing(record, work.work());
            tokio::pin!(working);
            tokio::select! {
                result = &mut working => (result, false),
                () = stop.as_mut() => {
                    work.interrupt();
                    let ended = timeout(INTERRUPT_TIME, working).await;
                    (ended.unwrap_or_else(|_| Err(String::new())), true)
                }
            }
        };
        if is_interrupted && result.is_err() {
            self.enter(
                work,
                record,
                NodeState::Waiting,
                "its installer was interrupted",
            )
            .await;
            return Err(ParticipantError::Stopped);
        }
        if result.is_ok() && !is_interrupted && !is_restart && !self.policy.soak.is_zero() {
            self.enter(work, record, NodeState::Soaking, "").await;
            result = tokio::select! {
                soaked = self.renewing(record, self.soak(work)) => soaked,
                // The change stays.
                () = stop.as_mut() => Ok(()),
            };
        }
        match result {
            Ok(()) => {
                let version = criscope::version::VERSION.to_owned();
                record.installed = (self.identity.goal == Goal::Install).then_some(version);
                self.enter(work, record, NodeState::Done, "").await;
                if !is_restart {
                    self.event(RolloutEvent::Done, "the node is healthy").await;
                }
                Ok(())
            }
            Err(reason) => {
                self.enter(work, record, NodeState::Failed, &reason).await;
                self.event(RolloutEvent::Failed, &reason).await;
                Err(ParticipantError::Failed(reason))
            }
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Chooses the record of this node and the Lease of the coordinator.
    fn selector(&self) -> String {
        let own = label_value(&self.identity.node);
        let values = BTreeSet::from([COORDINATOR_LABEL_VALUE.to_owned(), own]);
        Expression::In(LEASE_LABEL.to_owned(), values).to_string()
    }

    /// The nodes that go first; none do when criscope is removed.
    fn canary_selector(&self) -> Option<&String> {
        let selector = self.policy.canary.as_ref();
        selector.filter(|_| self.identity.goal == Goal::Install)
    }

    /// Creates the record of this node, or continues it.
    async fn register(&self) -> Result<NodeRecord, ParticipantError> {
        let failed = |error| ParticipantError::Api(self.identity.node.clone(), error);
        let nodes = Api::<Node>::all(self.client.clone());
        let name = &self.identity.node;
        let node = nodes.get_opt(name).await.map_err(failed)?;
        let node = node.ok_or_else(|| ParticipantError::NoNode(name.clone()))?;
        let mut is_canary = false;
        if let Some(selector) = self.canary_selector() {
            let own = ListParams::default()
                .labels(selector)
                .fields(&format!("metadata.name={name}"));
            is_canary = !nodes.list(&own).await.map_err(failed)?.items.is_empty();
        }
        loop {
            let found = self.leases().get_opt(name).await.map_err(failed)?;
            let before = found.as_ref().and_then(NodeRecord::from_lease);
            let record = self.next_record(before.as_ref(), is_canary);
            if before.as_ref() == Some(&record) {
                return Ok(record);
            }
            let mut lease = record.new_lease(&node);
            let written = match found {
                None => self.leases().create(&PostParams::default(), &lease).await,
                Some(found) => {
                    lease.metadata.resource_version = found.metadata.resource_version;
                    self.leases()
                        .replace(name, &PostParams::default(), &lease)
                        .await
                }
            };
            match written {
                Ok(_) => return Ok(record),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// The record with which this installer begins.
    fn next_record(&self, before: Option<&NodeRecord>, is_canary: bool) -> NodeRecord {
        let own = &self.identity;
        let is_own = before.is_some_and(|before| {
            before.installer == own.pod_uid
                && before.revision == own.revision
                && before.goal == own.goal
        });
        if let Some(before) = before
            && is_own
            && before.state != NodeState::Lost
        {
            return before.clone();
        }
        NodeRecord {
            node: own.node.clone(),
            state: NodeState::Waiting,
            goal: own.goal,
            reason: String::new(),
            since: Some(Timestamp::now()),
            installer: own.pod_uid.clone(),
            revision: own.revision.clone(),
            max_parallel: self.policy.max_parallel,
            canary_selector: self.canary_selector().cloned(),
            is_canary,
            installed: before.and_then(|before| before.installed.clone()),
            renewed: None,
        }
    }

    /// Waits until this node has a turn.
    async fn turn<W: NodeWork>(
        &self,
        work: &W,
        record: &mut NodeRecord,
        mut watch: LeaseWatch,
    ) -> Result<(), ParticipantError> {
        tracing::info!(
            event = "agent.rollout",
            node = record.node,
            state = record.state.name(),
            "waiting for a turn"
        );
        loop {
            watch.changed().await;
            let lease = watch.get(&record.node);
            let Some(found) = lease.as_ref().and_then(NodeRecord::from_lease) else {
                // A person has deleted it.
                *record = self.register().await?;
                continue;
            };
            if found.installer != self.identity.pod_uid {
                return Err(ParticipantError::Superseded(record.node.clone()));
            }
            if found.state != record.state {
                work.note_state(found.state);
            }
            *record = found;
            if record.state.has_turn() {
                return Ok(());
            }
        }
    }

    /// Deletes the record, unless it says that criscope is on the node.
    async fn withdraw(&self, record: &NodeRecord) {
        if record.state == NodeState::Waiting && record.installed.is_none() {
            let (leases, params) = (self.leases(), DeleteParams::default());
            let _ = timeout(API_TIMEOUT, leases.delete(&record.node, &params)).await;
        }
    }

    async fn soak(&self, work: &impl NodeWork) -> Result<(), String> {
        let mut checks = interval(self.timing.renewal);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let soaked = sleep(self.policy.soak);
        tokio::pin!(soaked);
        loop {
            tokio::select! {
                () = &mut soaked => return work.check().await,
                _ = checks.tick() => work
                    .check()
                    .await
                    .map_err(|reason| format!("it was healthy at first: {reason}"))?,
            }
        }
    }

    /// Waits for a result and renews the record meanwhile.
    async fn renewing<T>(&self, record: &NodeRecord, result: impl Future<Output = T>) -> T {
        tokio::pin!(result);
        let mut renewals = interval(self.timing.renewal);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        renewals.tick().await;
        loop {
            tokio::select! {
                result = &mut result => return result,
                _ = renewals.tick() => {}
            }
            let renewal = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
            let (leases, params) = (self.leases(), PatchParams::default());
            let patch = Patch::Merge(&renewal);
            let renewed = leases.patch(&record.node, &params, &patch);
            if let Ok(Err(error)) = timeout(self.timing.renewal, renewed).await {
                tracing::warn!(event = "agent.rollout", %error, "cannot renew the Lease of this node");
            }
        }
    }

    /// Writes a state into the record, however long the API server does not answer.
    async fn enter(
        &self,
        work: &impl NodeWork,
        record: &mut NodeRecord,
        state: NodeState,
        reason: &str,
    ) {
        tracing::info!(
            event = "agent.rollout",
            node = record.node,
            state = state.name(),
            reason,
            "state of this node"
        );
        record.state = state;
        reason.clone_into(&mut record.reason);
        record.since = Some(Timestamp::now());
        work.note_state(state);
        let now = MicroTime(Timestamp::now());
        let has_turn = state.has_turn();
        let seconds = self.timing.lease.as_secs().max(1);
        let written = json!({
            "metadata": {"annotations": record.annotations()},
            "spec": {
                "holderIdentity": has_turn.then_some(&record.node),
                "leaseDurationSeconds": has_turn.then_some(seconds),
                "renewTime": has_turn.then_some(&now),
            },
        });
        let mut delay = Duration::from_millis(500);
        loop {
            let leases = self.leases();
            let (params, patch) = (PatchParams::default(), Patch::Merge(&written));
            match timeout(API_TIMEOUT, leases.patch(&record.node, &params, &patch)).await {
                Ok(Ok(_)) => return,
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    // The Node was deleted, or a person has deleted the record.
                    tracing::warn!(
                        event = "agent.rollout",
                        node = record.node,
                        "the record of this node is deleted"
                    );
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(event = "agent.rollout", %error, "cannot write the state of this node");
                }
                Err(_) => {}
            }
            delay = (delay * 2).min(MAX_RETRY_DELAY);
            sleep(delay / 2 + random_part(delay / 2)).await;
        }
    }

    async fn event(&self, event: RolloutEvent, note: &str) {
        let own = &self.identity;
        events::write(self.client.clone(), &own.node, own.goal, event, note).await;
    }
}
