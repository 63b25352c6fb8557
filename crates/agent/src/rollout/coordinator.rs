//! The coordinator: the one installer that holds [`COORDINATOR_LEASE`] and gives the turns. The others wait for its Lease to be
//! released, or to be without a renewal for too long, and then one of them goes on.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::lease_watch::LeaseWatch;
use super::turns::Memory;
use super::{
    COORDINATOR_LABEL_VALUE, COORDINATOR_LEASE, LEASE_LABEL, RolloutTiming, STOPPED_ANNOTATION,
    is_conflict, random_part,
};
use crate::events::API_TIMEOUT;

/// How long changes of records are collected before the coordinator looks at all of them.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// An installer that may become the coordinator.
#[derive(Clone)]
pub struct Coordinator {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) node: String,
    pub(super) timing: RolloutTiming,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    pub(super) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until the Lease is free, coordinates, and waits again; until the sender of `end` is dropped.
    async fn run(&self, mut watch: LeaseWatch, mut end: oneshot::Receiver<()>) {
        let mut seen = (None, Instant::now());
        tokio::select! {
            _ = &mut end => return,
            () = watch.changed() => {}
        }
        loop {
            let lease = tokio::select! {
                _ = &mut end => return,
                lease = self.free_lease(&mut watch, &mut seen) => lease,
            };
            // Not interrupted by `end`: the API server could give the Lease after it was released.
            match self.acquire(lease).await {
                Ok(lease) => {
                    tracing::info!(
                        event = "agent.rollout",
                        node = self.node,
                        "this installer gives the turns"
                    );
                    if self.lead(lease, &mut end).await == Leadership::Ended {
                        return;
                    }
                }
                Err(error) => {
                    if !is_conflict(&error) {
                        tracing::warn!(event = "agent.rollout", %error, "cannot get the Lease {COORDINATOR_LEASE}");
                    }
                    tokio::select! {
                        _ = &mut end => return,
                        () = sleep(self.timing.spread) => {}
                    }
                }
            }
        }
    }

    /// Waits until the Lease is free, has expired, or is held by this node from before. Returns it, unless it does not exist.
    async fn free_lease(
        &self,
        watch: &mut LeaseWatch,
        seen: &mut (Option<SignOfLife>, Instant),
    ) -> Option<Lease> {
        loop {
            let lease = watch.get(COORDINATOR_LEASE);
            let life = lease.as_ref().and_then(sign_of_life);
            if life != seen.0 {
                *seen = (life.clone(), Instant::now());
            }
            let expiry = seen.1 + self.timing.lease;
            let is_own = life
                .as_ref()
                .is_some_and(|(holder, _)| *holder == self.node);
            if life.is_some() && !is_own && Instant::now() < expiry {
                tokio::select! {
                    () = watch.changed() => {}
                    () = sleep_until(expiry) => {}
                }
                continue;
            }
            // All that wait see this at the same moment.
            sleep(random_part(self.timing.spread)).await;
            if watch.get(COORDINATOR_LEASE).as_ref().and_then(sign_of_life) == life {
                return lease;
            }
        }
    }

    async fn acquire(&self, lease: Option<Lease>) -> kube::Result<Lease> {
        let exists = lease.is_some();
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(COORDINATOR_LEASE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(LEASE_LABEL.to_owned(), COORDINATOR_LABEL_VALUE.to_owned());
        let now = MicroTime(Timestamp::now());
        let spec = lease.spec.get_or_insert_default();
        *spec = LeaseSpec {
            holder_identity: Some(self.node.clone()),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs().max(1)).ok(),
            lease_transitions: Some(spec.lease_transitions.unwrap_or_default() + 1),
            ..LeaseSpec::default()
        };
        if exists {
            return self.replace(&lease).await;
        }
        match self.leases().create(&PostParams::default(), &lease).await {
            // A Lease of criscope 0.2 has no label, so the watch does not report it.
            Err(error) if is_conflict(&error) => {
                let old = self.leases().get(COORDINATOR_LEASE).await?;
                if old
                    .metadata
                    .labels
                    .iter()
                    .any(|labels| labels.contains_key(LEASE_LABEL))
                {
                    return Err(error);
                }
                lease.metadata.resource_version = old.metadata.resource_version;
                self.replace(&lease).await
            }
            created => created,
        }
    }

    pub(super) async fn replace(&self, lease: &Lease) -> kube::Result<Lease> {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        self.leases()
            .replace(name, &PostParams::default(), lease)
            .await
    }

    /// Gives up the Lease, if this installer has it.
    async fn release(&self) {
        // It expires otherwise.
        let _ = timeout(API_TIMEOUT, async {
            while self.try_release().await? {}
            Ok::<_, kube::Error>(())
        })
        .await;
    }

    /// Returns `true` if the Lease was changed meanwhile, so that this is to be tried again.
    async fn try_release(&self) -> kube::Result<bool> {
        let mut lease = self.leases().get(COORDINATOR_LEASE).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() != Some(&self.node) {
            return Ok(false);
        }
        spec.holder_identity = None;
        spec.renew_time = None;
        spec.acquire_time = None;
        match self.replace(&lease).await {
            Err(error) if is_conflict(&error) => Ok(true),
            other => other.map(|_| false),
        }
    }

    /// Gives turns as long as the Lease is held, or until the sender of `end` is dropped. What was begun for a node is finished first.
    async fn lead(&self, mut own: Lease, end: &mut oneshot::Receiver<()>) -> Leadership {
        let mut all = LeaseWatch::start(self.leases(), LEASE_LABEL);
        let mut memory = Memory::default();
        let mut renewed = Instant::now();
        let mut is_known = false;
        loop {
            tokio::select! {
                _ = &mut *end => return Leadership::Ended,
                () = all.changed() => {
                    is_known = true;
                    sleep(DEBOUNCE).await;
                }
                () = sleep_until(renewed + self.timing.renewal) => {}
            }
            if renewed.elapsed() >= self.timing.renewal {
                match timeout(self.timing.renewal, self.renew(&mut own)).await {
                    Ok(Ok(true)) => renewed = Instant::now(),
                    Ok(Ok(false)) => return Leadership::Lost,
                    Ok(Err(error)) => {
                        tracing::warn!(event = "agent.rollout", %error, "cannot renew the Lease {COORDINATOR_LEASE}");
                        sleep(self.timing.renewal / 10).await;
                    }
                    Err(_) => {}
                }
            }
            // Before another installer can take over, with time for one request.
            if renewed.elapsed() > self.timing.lease / 2 {
                return Leadership::Lost;
            }
            if is_known
                && let Err(error) = self.step(&all, &mut memory, &mut own).await
                && !is_conflict(&error)
            {
                tracing::warn!(event = "agent.rollout", %error, "cannot give turns");
                sleep(self.timing.renewal / 10).await;
            }
        }
    }

    /// Renews the Lease. Returns `false` if another installer has it.
    async fn renew(&self, own: &mut Lease) -> kube::Result<bool> {
        loop {
            if let Some(spec) = &mut own.spec {
                spec.renew_time = Some(MicroTime(Timestamp::now()));
            }
            match self.replace(own).await {
                Ok(lease) => {
                    *own = lease;
                    return Ok(true);
                }
                // A person has paused the rollout, or another installer has taken over.
                Err(error) if is_conflict(&error) => {
                    *own = self.leases().get(COORDINATOR_LEASE).await?;
                    let holder = own
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.holder_identity.as_ref());
                    if holder != Some(&self.node) {
                        return Ok(false);
                    }
                }
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes why nodes wait into the Lease of the coordinator. Returns whether it was written.
    pub(super) async fn tell(&self, own: &mut Lease, stopped: Option<&str>) -> kube::Result<bool> {
        let annotations = own.metadata.annotations.get_or_insert_default();
        match stopped {
            Some(reason) => {
                tracing::warn!(event = "agent.rollout", reason, "the rollout has stopped");
                annotations.insert(STOPPED_ANNOTATION.to_owned(), reason.to_owned());
            }
            None => drop(annotations.remove(STOPPED_ANNOTATION)),
        }
        match self.replace(own).await {
            Ok(lease) => *own = lease,
            Err(error) if is_conflict(&error) => {
                // The next round compares again.
                self.renew(own).await?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Why an installer stopped giving turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leadership {
    /// It was told to end.
    Ended,
    /// Another installer has the Lease, or may take it over.
    Lost,
}

/// A coordinator that runs until this is dropped.
pub(super) struct CoordinatorTask {
    coordinator: Coordinator,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl CoordinatorTask {
    pub(super) fn start(coordinator: Coordinator, watch: LeaseWatch) -> Self {
        let (end, ended) = oneshot::channel();
        let own = coordinator.clone();
        let task = tokio::spawn(async move { own.run(watch, ended).await });
        Self {
            coordinator,
            end,
            task,
        }
    }

    /// Ends the coordinator and gives up the Lease.
    pub(super) async fn end(mut self) {
        drop(self.end);
        if timeout(API_TIMEOUT, &mut self.task).await.is_err() {
            // The API server does not answer; the Lease expires.
            self.task.abort();
        }
        self.coordinator.release().await;
    }
}

/// Holder and renewal of the coordinator's Lease.
type SignOfLife = (String, Option<Timestamp>);

/// The sign of life in the coordinator's Lease; `None` if it is free.
fn sign_of_life(lease: &Lease) -> Option<SignOfLife> {
    let spec = lease.spec.as_ref()?;
    let holder = spec
        .holder_identity
        .clone()
        .filter(|holder| !holder.is_empty())?;
    Some((holder, spec.renew_time.as_ref().map(|time| time.0)))
}
