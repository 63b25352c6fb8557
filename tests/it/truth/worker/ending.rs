//! How the worker ends containers, sandboxes and the pod.

use super::super::kubelet::DEADLINE;
use super::super::pod_status::{PodStatus, is_running};
use super::super::spec::Container;
use super::Worker;
use crate::prelude::*;

/// The least that a container gets to end, in seconds.
const LEAST_GRACE: i64 = 2;

impl Worker {
    /// Runs its preStop hook and stops it, within the grace period.
    pub(super) async fn kill_container(
        &self,
        container: &Container,
        id: &str,
        mut grace: i64,
    ) -> Result<(), Status> {
        let began = Instant::now();
        let all = Duration::from_secs(grace.unsigned_abs());
        if let Some(hook) = container.pre_stop {
            let _ = tokio::time::timeout(all, self.kubelet.exec(id, hook, 0)).await;
        }
        tokio::time::sleep(container.pre_stop_sleep.min(all)).await;
        grace -= i64::try_from(began.elapsed().as_secs()).expect("short");
        let grace = grace.max(LEAST_GRACE);
        let request = requests::stop(id, grace);
        let deadline = DEADLINE + Duration::from_secs(grace.unsigned_abs());
        let request = self.kubelet.timed(request, deadline);
        match self.kubelet.runtime.clone().stop_container(request).await {
            Err(status) if status.code() != Code::NotFound => Err(status),
            _ => Ok(()),
        }
    }

    /// Ends all that runs, at the same time.
    pub(super) async fn kill(&self, status: &PodStatus) -> Result<(), Status> {
        let grace = self.spec.last_grace.unwrap_or(self.spec.grace);
        let all = self.spec.init.iter().chain(&self.spec.containers);
        let kills = all.filter_map(|container| {
            let here = status.here(container.name).filter(|it| is_running(it))?;
            Some(self.kill_container(container, &here.id, grace))
        });
        let ended = futures_util::future::join_all(kills).await;
        ended.into_iter().collect()
    }

    pub(super) async fn stop_sandbox(&self, id: &str) -> Result<(), Status> {
        let request = requests::stop_pod(id);
        let request = self.kubelet.timed(request, DEADLINE);
        self.kubelet
            .runtime
            .clone()
            .stop_pod_sandbox(request)
            .await?;
        Ok(())
    }

    /// The end of a deleted pod, and the garbage collection after it.
    pub(super) async fn terminate(&self) -> Result<(), Status> {
        let status = self.status().await?;
        self.kill(&status).await?;
        let Some(sandbox) = &status.sandbox else {
            return Ok(());
        };
        if let Err(error) = self.stop_sandbox(&sandbox.id).await {
            let mut done = lock(&self.done);
            done.failed += 1;
            done.error = Some(error.clone());
            return Err(error);
        }
        tokio::time::sleep(self.spec.clears_up_after).await;
        let mut runtime = self.kubelet.runtime.clone();
        for (_, status) in self.status().await?.containers {
            let request = requests::remove(&status.id);
            let request = self.kubelet.timed(request, DEADLINE);
            runtime.remove_container(request).await?;
        }
        self.stop_sandbox(&sandbox.id).await?;
        let request = requests::remove_pod(&sandbox.id);
        let request = self.kubelet.timed(request, DEADLINE);
        runtime.remove_pod_sandbox(request).await?;
        Ok(())
    }
}
