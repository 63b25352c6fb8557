//! The worker of one pod in a [`Kubelet`]: brings it to where its manifest wants it, again and again.

mod ending;

use std::future::pending;
use std::time::SystemTime;

use tokio::sync::Notify;

use super::kubelet::{DEADLINE, Done, Kubelet};
use super::pod_status::{PodStatus, has_exited, is_running};
use super::spec::{Asks, Container, PodSpec, Probe, Pull, Restart};
use crate::prelude::*;

/// The kubelet's are 10 s, 10 s and 10 s; they double, up to five minutes.
const BACK_OFF: Duration = Duration::from_millis(1200);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    kubelet: Arc<Kubelet>,
    spec: PodSpec,
    seen: SystemTime,
    pub(super) wake: Arc<Notify>,
    pub(super) deleted: CancellationToken,
    /// Whether it has its ephemeral container.
    pub(super) debugged: CancellationToken,
    pub(super) done: Mutex<Done>,
    /// Probes end with it.
    forgotten: CancellationToken,
    /// By container: how long to wait after the last failure, and until when.
    back_off: Mutex<HashMap<&'static str, (Duration, Instant)>>,
    /// Ids of containers whose liveness probe has failed.
    unhealthy: Mutex<Vec<String>>,
    /// Ids of containers whose startup probe has succeeded.
    ready: Mutex<Vec<String>>,
}

impl Worker {
    pub(super) fn new(kubelet: Arc<Kubelet>, spec: PodSpec, wake: Arc<Notify>) -> Self {
        Self {
            seen: SystemTime::now() - spec.seen_ago,
            kubelet,
            spec,
            wake,
            deleted: CancellationToken::new(),
            debugged: CancellationToken::new(),
            done: Mutex::default(),
            forgotten: CancellationToken::new(),
            back_off: Mutex::default(),
            unhealthy: Mutex::default(),
            ready: Mutex::default(),
        }
    }

    pub(super) fn forget(&self) {
        self.forgotten.cancel();
        self.kubelet.remove(&self.spec.uid());
    }

    /// Until the pod is deleted and removed.
    pub(super) async fn run(self: &Arc<Self>) {
        while !self.deleted.is_cancelled() {
            // The calls of a deleted pod are cancelled.
            let synced = tokio::select! {
                synced = self.sync() => synced,
                () = self.deleted.cancelled() => break,
            };
            let wait = synced.unwrap_or_else(|error| {
                let mut done = lock(&self.done);
                done.failed += 1;
                done.error = Some(error);
                Some(BACK_OFF)
            });
            let pause = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = self.wake.notified() => {}
                () = self.deleted.cancelled() => {}
            }
        }
        while self.terminate().await.is_err() {
            tokio::time::sleep(BACK_OFF).await;
        }
        self.kubelet.remove_dir(&self.spec);
        self.forget();
    }

    /// Once. Returns how long to wait for the next time if nothing happens; `None` for ever.
    async fn sync(self: &Arc<Self>) -> Result<Option<Duration>, Status> {
        let mut status = self.status().await?;
        let is_ready = |it: &v1::PodSandboxStatus| it.state() == v1::PodSandboxState::SandboxReady;
        if !status.sandbox.as_ref().is_some_and(is_ready) {
            let names = self.spec.containers.iter().map(|c| c.name);
            let mut last = names.map(|name| status.newest(name));
            if last.all(|it| it.is_some_and(|(_, status)| self.is_over(status))) {
                return Ok(None);
            }
            if let Some(old) = &status.sandbox {
                self.kill(&status).await?;
                self.stop_sandbox(&old.id).await?;
            }
            self.run_sandbox(&mut status).await?;
            if !self.spec.pause.is_zero() {
                tokio::time::sleep(self.spec.pause).await;
            }
        }
        for init in &self.spec.init {
            match status.here(init.name) {
                Some(it) if is_running(it) && self.has_begun(init, &it.id) => {}
                Some(it) if is_running(it) => return Ok(None),
                Some(it) if has_exited(it) && it.exit_code == 0 => {}
                // It cannot begin before the next sync.
                _ => return self.start(init, &status).await,
            }
        }
        let mut wait = None::<Duration>;
        let added = self.spec.ephemeral.iter();
        let added = added.filter(|_| self.debugged.is_cancelled());
        for container in added.chain(&self.spec.containers) {
            let here = status.here(container.name);
            if let Some(it) = here.filter(|it| is_running(it)) {
                if !lock(&self.unhealthy).contains(&it.id) {
                    continue;
                }
                self.kill_container(container, &it.id, self.spec.grace)
                    .await?;
                lock(&self.done).killed += 1;
            } else if here.is_some_and(|it| self.is_over(it)) {
                continue;
            }
            let next = match self.start(container, &status).await {
                Ok(next) => next,
                Err(error) => {
                    let mut done = lock(&self.done);
                    done.failed += 1;
                    done.error = Some(error);
                    Some(self.more_patience(container.name))
                }
            };
            wait = next.map(|next| wait.map_or(next, |wait| wait.min(next)));
        }
        Ok(wait)
    }

    /// A sidecar is as far as the next container needs it.
    fn has_begun(&self, init: &Container, id: &String) -> bool {
        init.is_sidecar && (init.startup.is_none() || lock(&self.ready).contains(id))
    }

    /// It has ended and is not to be started again.
    fn is_over(&self, status: &v1::ContainerStatus) -> bool {
        let again = match self.spec.restart {
            Restart::Always => true,
            Restart::OnFailure => status.exit_code != 0,
            Restart::Never => false,
        };
        has_exited(status) && !again
    }

    async fn status(&self) -> Result<PodStatus, Status> {
        let labels: HashMap<_, _> = [("io.kubernetes.pod.uid".to_owned(), self.spec.uid())].into();
        let filter = v1::PodSandboxFilter {
            label_selector: labels.clone(),
            ..Default::default()
        };
        let request = v1::ListPodSandboxRequest {
            filter: Some(filter),
        };
        let mut runtime = self.kubelet.runtime.clone();
        let request = self.kubelet.timed(request, DEADLINE);
        let mut pods = runtime.list_pod_sandbox(request).await?.into_inner().items;
        pods.sort_by_key(|pod| pod.created_at);
        let mut sandbox = None;
        for pod in pods {
            sandbox = self.sandbox_status(&pod.id).await?.or(sandbox);
        }
        let filter = v1::ContainerFilter {
            label_selector: labels,
            ..Default::default()
        };
        let request = v1::ListContainersRequest {
            filter: Some(filter),
        };
        let request = self.kubelet.timed(request, DEADLINE);
        let listed = runtime.list_containers(request).await?.into_inner();
        let mut containers = Vec::new();
        for container in listed.containers {
            let request = requests::status(&container.id, false);
            let request = self.kubelet.timed(request, DEADLINE);
            match runtime.container_status(request).await {
                Ok(answer) => {
                    let status = answer.into_inner().status;
                    containers.extend(status.map(|s| (container.pod_sandbox_id, s)));
                }
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(status),
            }
        }
        containers.sort_by_key(|(_, status)| status.created_at);
        let exited = containers.iter().filter(|(_, s)| has_exited(s)).count();
        let mut done = lock(&self.done);
        done.exited = u32::try_from(exited).expect("few");
        done.sandbox = sandbox.as_ref().map(|s| s.id.clone());
        Ok(PodStatus {
            sandbox,
            containers,
        })
    }

    async fn sandbox_status(&self, id: &str) -> Result<Option<v1::PodSandboxStatus>, Status> {
        let request = requests::pod_status(id, false);
        let request = self.kubelet.timed(request, DEADLINE);
        match self
            .kubelet
            .runtime
            .clone()
            .pod_sandbox_status(request)
            .await
        {
            Ok(answer) => Ok(answer.into_inner().status),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    async fn run_sandbox(&self, status: &mut PodStatus) -> Result<(), Status> {
        let attempt = status.sandbox.as_ref().and_then(|s| s.metadata.as_ref());
        let attempt = attempt.map_or(self.spec.attempts.0, |m| m.attempt + 1);
        let config = self.config(attempt);
        let request = requests::run_pod(config, self.spec.handler);
        let request = self.kubelet.timed(request, self.spec.sandbox_deadline);
        let made = self
            .kubelet
            .runtime
            .clone()
            .run_pod_sandbox(request)
            .await?;
        let id = made.into_inner().pod_sandbox_id;
        status.sandbox = self.sandbox_status(&id).await?;
        lock(&self.done).sandbox = Some(id);
        Ok(())
    }

    fn config(&self, attempt: u32) -> v1::PodSandboxConfig {
        self.kubelet.sandbox_config(&self.spec, attempt, self.seen)
    }

    /// Pulls, creates and starts a container, unless it has to wait first: then that is returned.
    async fn start(
        self: &Arc<Self>,
        container: &Container,
        status: &PodStatus,
    ) -> Result<Option<Duration>, Status> {
        let last = status.newest(container.name);
        let has_failed = status.here(container.name).is_some_and(has_exited);
        let until = lock(&self.back_off).get(container.name).map(|(_, at)| *at);
        if let Some(left) = until.and_then(|at| at.checked_duration_since(Instant::now())) {
            return Ok(Some(left));
        }
        if has_failed {
            self.more_patience(container.name);
        }
        let sandbox = status.sandbox.as_ref().expect("a sandbox");
        let attempt = sandbox.metadata.as_ref().map_or(0, |m| m.attempt);
        let config = self.config(attempt);
        let has = match container.pull {
            Pull::Always => false,
            _ => self.kubelet.has_image(container).await?,
        };
        match (has, container.pull) {
            (true, _) => {}
            (false, Pull::Never) => return Err(Status::not_found("ErrImageNeverPull")),
            (false, _) => {
                let serial = self.spec.serial_pulls;
                self.kubelet.pull(container, &config, serial).await?;
            }
        }
        let attempt = last.and_then(|(_, status)| status.metadata.as_ref());
        let attempt = attempt.map_or(self.spec.attempts.1, |m| m.attempt + 1);
        let request =
            requests::create(&sandbox.id, self.spec.container(container, attempt), config);
        let mut runtime = self.kubelet.runtime.clone();
        let request = self.kubelet.timed(request, DEADLINE);
        let id = runtime
            .create_container(request)
            .await?
            .into_inner()
            .container_id;
        let request = requests::start(&id);
        let request = self.kubelet.timed(request, DEADLINE);
        runtime.start_container(request).await?;
        {
            let mut done = lock(&self.done);
            done.started += 1;
            done.containers.insert(container.name, id.clone());
        }
        if let Some(hook) = container.post_start
            && self.kubelet.exec(&id, hook, 0).await? != 0
        {
            self.kill_container(container, &id, self.spec.grace).await?;
            lock(&self.done).killed += 1;
            return Err(Status::internal("PostStartHookError"));
        }
        if let Some(script) = container.startup {
            tokio::spawn(Arc::clone(self).wait_for_startup(script, id.clone()));
        }
        for (probe, kills) in [(&container.liveness, true), (&container.readiness, false)] {
            if let Some(probe) = probe {
                let own = Arc::clone(self);
                tokio::spawn(own.probe(probe.clone(), id.clone(), kills));
            }
        }
        Ok(None)
    }

    /// Doubles the time until the next attempt, and returns it.
    fn more_patience(&self, container: &'static str) -> Duration {
        let mut all = lock(&self.back_off);
        let (wait, until) = all
            .entry(container)
            .or_insert((BACK_OFF / 2, Instant::now()));
        *wait = (*wait * 2).min(LONGEST_BACK_OFF);
        *until = Instant::now() + *wait;
        *wait
    }

    /// Probes a container until its startup probe succeeds.
    async fn wait_for_startup(self: Arc<Self>, script: &'static str, id: String) {
        while !self.forgotten.is_cancelled() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if let Ok(0) = self.kubelet.exec(&id, script, 1).await {
                lock(&self.ready).push(id);
                return self.wake.notify_one();
            }
        }
    }

    /// Probes a container until it is gone.
    async fn probe(self: Arc<Self>, probe: Probe, id: String, kills: bool) {
        let mut failed = 0;
        let until_forgotten = self.forgotten.clone();
        let asking = async {
            loop {
                let is_bad = match probe.asks {
                    Asks::Exec(script) => {
                        tokio::time::sleep(probe.period).await;
                        match self.kubelet.exec(&id, script, probe.timeout).await {
                            Ok(code) => code != 0,
                            Err(status) if status.code() == Code::DeadlineExceeded => true,
                            Err(_) => return,
                        }
                    }
                    Asks::HttpFailsAfter(time) => {
                        tokio::time::sleep(time).await;
                        failed = probe.threshold;
                        true
                    }
                };
                failed = if is_bad { failed + 1 } else { 0 };
                lock(&self.done).probes_failed += u32::from(is_bad);
                if kills && failed >= probe.threshold {
                    lock(&self.unhealthy).push(id.clone());
                    self.wake.notify_one();
                    return;
                }
            }
        };
        tokio::select! {
            () = asking => {}
            () = self.deleted.cancelled() => {}
            () = until_forgotten.cancelled() => {}
        }
    }
}
