//! Calls for tests, as a kubelet would make them. Times are milliseconds from an arbitrary day.

use std::sync::Arc;
use std::time::Duration;

use crate::episode_call::{EpisodeCall, ObservedWork};
use crate::episode_store::{EpisodeStore, ExitRecord, StoreLimits};
use crate::kubelet::sync_error::SyncError;
use crate::kubelet::syncs::{KubeletSpan, SyncKind};
use crate::process_scanner::WorkKind;
use crate::usual::UsualDurations;
use criscope_cri::Method;
use criscope_cri::annotations::ConfigSource;
use criscope_cri::call::{
    Call, CallFacts, CallRecord, CallStage, CallState, Client, Ending, Outcome, Peer, Route,
    RouteReason, Source,
};
use criscope_cri::container_request::ContainerRequest;
use criscope_cri::method::ApiVersion;
use criscope_cri::status::Code;
use criscope_cri::subject::{ContainerIdentity, ExitReason, PodIdentity, Subject};
use criscope_cri::units::times::UnixMicros;

/// The begin of the day on which the scripts play.
const DAY: UnixMicros = UnixMicros::new(1_750_000_000_000_000);

/// The moment of that day after this number of milliseconds.
pub(crate) const fn at(ms: u64) -> UnixMicros {
    UnixMicros::new(DAY.as_micros() + ms * 1000)
}

/// An empty store with the limits that are the default.
pub(crate) fn store() -> EpisodeStore {
    let limits = StoreLimits {
        episodes: 512,
        quiet: Duration::from_secs(10),
        give_up: Duration::from_secs(1800),
    };
    EpisodeStore::new(limits, UsualDurations::default())
}

/// A pod; its sandbox is named after uid and attempt.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedPod(pub(crate) Arc<PodIdentity>);

pub(crate) fn pod(name: &str) -> ScriptedPod {
    ScriptedPod(Arc::new(PodIdentity {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        attempt: 0,
    }))
}

impl ScriptedPod {
    pub(crate) fn attempt(&self, attempt: u32) -> Self {
        let pod = (*self.0).clone();
        Self(Arc::new(PodIdentity { attempt, ..pod }))
    }

    /// Another pod of this name.
    pub(crate) fn with_uid(&self, uid: &str) -> Self {
        let (pod, uid) = ((*self.0).clone(), uid.into());
        Self(Arc::new(PodIdentity { uid, ..pod }))
    }

    pub(crate) fn sandbox(&self) -> Arc<str> {
        format!("sandbox-{}-{}", self.0.uid, self.0.attempt).into()
    }

    /// A call of the kubelet that names the pod's sandbox and nothing in it.
    pub(crate) fn call(&self, method: Method, began: u64, took: u64) -> EpisodeCall {
        let peer = Peer {
            client: Client::Kubelet,
            pid: None,
            comm: None,
        };
        let mut call = Call::new(began, method, ApiVersion::V1, None, Arc::new(peer), None);
        call.started_at = at(began).into();
        let subject = Subject {
            pod: Some(Arc::clone(&self.0)),
            sandbox_id: Some(self.sandbox()),
            ..Subject::default()
        };
        let (backend, reason) = ("main".into(), RouteReason::Default);
        assert!(
            call.subject.set(subject).is_ok() && call.route.set(Route { backend, reason }).is_ok()
        );
        let outcome = Outcome {
            ending: Ending::Ok,
            code: Code::Ok,
            source: Source::Backend,
            message: None,
            elapsed: Duration::from_millis(took),
        };
        EpisodeCall::new(
            Arc::new(CallRecord::ended(&call, &outcome)),
            Vec::new(),
            None,
        )
    }

    pub(crate) fn run(&self, began: u64, took: u64) -> EpisodeCall {
        let mut call = self.call(Method::RunPodSandbox, began, took);
        call.record_mut().handler = Some("".into());
        call
    }

    pub(crate) fn pull(&self, image: &str, began: u64, took: u64) -> EpisodeCall {
        let mut call = self.call(Method::PullImage, began, took);
        let record = call.record_mut();
        (record.image, record.sandbox_id) = (Some(image.into()), None);
        call
    }

    /// A call of the kubelet that names a container.
    pub(crate) fn container_call(
        &self,
        method: Method,
        name: (&str, u32),
        began: u64,
        took: u64,
    ) -> EpisodeCall {
        let mut call = self.call(method, began, took);
        let (sandbox, (name, attempt)) = (self.sandbox(), name);
        let record = call.record_mut();
        record.container_id = Some(format!("{sandbox}/{name}/{attempt}").into());
        let name = name.into();
        record.container = Some(Arc::new(ContainerIdentity { name, attempt }));
        call
    }

    pub(crate) fn create(&self, name: (&str, u32), began: u64, took: u64) -> EpisodeCall {
        self.container_call(Method::CreateContainer, name, began, took)
    }

    pub(crate) fn start(&self, name: (&str, u32), began: u64, took: u64) -> EpisodeCall {
        self.container_call(Method::StartContainer, name, began, took)
    }

    pub(crate) fn kill(&self, name: (&str, u32), began: u64, took: u64) -> EpisodeCall {
        self.container_call(Method::StopContainer, name, began, took)
    }

    /// An exec probe with a timeout of a second.
    pub(crate) fn probe(&self, name: (&str, u32), began: u64, took: u64) -> EpisodeCall {
        let mut call = self.container_call(Method::ExecSync, name, began, took);
        call.record_mut().facts = exec(1, 0);
        call
    }

    /// A postStart or preStop hook.
    pub(crate) fn hook(&self, name: (&str, u32), began: u64, took: u64) -> EpisodeCall {
        let mut call = self.probe(name, began, took);
        call.record_mut().facts = exec(0, 0);
        call
    }

    pub(crate) fn sweep(&self, name: (&str, u32), began: u64, took: u64) -> EpisodeCall {
        self.container_call(Method::RemoveContainer, name, began, took)
    }

    /// The exit of a container that ran between these milliseconds.
    pub(crate) fn exit(&self, name: (&str, u32), code: i32, from: u64, to: u64) -> ExitRecord {
        ExitRecord {
            container: name.0.into(),
            attempt: name.1,
            code,
            reason: match code {
                0 => ExitReason::Completed,
                _ => ExitReason::Error,
            },
            ran: Duration::from_millis(to - from),
            at: at(to),
            stop_requested: false,
            oom_kills: 0,
            is_oom_uncounted: false,
            oom_at: None,
            evicted: None,
            node_restarted: None,
            signal: None,
            by_event: false,
            request: None,
        }
    }

    /// A syncPod of the kubelet.
    pub(crate) fn syncs(&self, began: u64, took: u64) -> KubeletSpan {
        KubeletSpan {
            pod: (*self.0).clone(),
            kind: SyncKind::Sync,
            began: at(began),
            ended: at(began + took),
            error: None,
        }
    }

    /// A syncPod of the kubelet that fails.
    pub(crate) fn sync_fails(&self, began: u64, took: u64, text: &str) -> KubeletSpan {
        KubeletSpan {
            error: Some(SyncError::read(text, &self.0)),
            ..self.syncs(began, took)
        }
    }

    /// A syncTerminatingPod of the kubelet.
    pub(crate) fn terminates(&self, began: u64, took: u64) -> KubeletSpan {
        KubeletSpan {
            kind: SyncKind::Terminating,
            ..self.syncs(began, took)
        }
    }

    pub(crate) fn stop(&self, began: u64, took: u64) -> EpisodeCall {
        self.call(Method::StopPodSandbox, began, took)
    }

    pub(crate) fn remove(&self, began: u64, took: u64) -> EpisodeCall {
        self.call(Method::RemovePodSandbox, began, took)
    }
}

fn exec(timeout: u32, exit_code: i32) -> CallFacts {
    let exit_code = Some(exit_code);
    CallFacts::Exec { timeout, exit_code }
}

impl EpisodeCall {
    fn how(mut self, ending: Ending, code: Code, error: Option<&str>) -> Self {
        let elapsed = self.elapsed();
        self.record_mut().state = CallState::Ended(Outcome {
            ending,
            code,
            source: Source::Backend,
            message: error.map(Arc::from),
            elapsed,
        });
        if self.method.makes_sandbox() {
            self.record_mut().sandbox_id = None;
        }
        self
    }

    pub(crate) fn fails(self, code: Code, error: &str) -> Self {
        self.how(Ending::Error, code, Some(error))
    }

    /// The command ends with this exit code.
    pub(crate) fn exits(mut self, code: i32) -> Self {
        if let CallFacts::Exec { exit_code, .. } = &mut self.record_mut().facts {
            *exit_code = Some(code);
        }
        self
    }

    /// The grace period of a StopContainer, in seconds.
    pub(crate) fn grace(mut self, grace: u32) -> Self {
        self.record_mut().facts = CallFacts::Stop { grace };
        self
    }

    /// The grace period of the pod in a CreateContainer, in seconds.
    pub(crate) fn pod_grace(self, pod_grace: u32) -> Self {
        self.requests(|request| request.pod_grace = Some(pod_grace))
    }

    /// The request of a CreateContainer, with a change.
    pub(crate) fn requests(mut self, change: impl FnOnce(&mut ContainerRequest)) -> Self {
        let known = self.facts.container_request();
        // A request without limits says that there are none.
        let mut request = known.map_or_else(
            || ContainerRequest {
                cpu_millis: Some(0),
                memory: Some(0),
                ..ContainerRequest::default()
            },
            |known| (**known).clone(),
        );
        change(&mut request);
        self.record_mut().facts = CallFacts::Create(Arc::new(request));
        self
    }

    /// The kubelet saw its pod these milliseconds before.
    pub(crate) fn seen_before(mut self, before_ms: u32) -> Self {
        let source = ConfigSource::Api;
        self.record_mut().facts = CallFacts::Seen {
            before_ms,
            source,
            unwatched_ms: 0,
            cpu_millis: 0,
        };
        self
    }

    /// The containers of its pod have this CPU limit together (RunPodSandbox).
    pub(crate) fn pod_cpu_limit(mut self, millis: u32) -> Self {
        if self.facts.is_none() {
            self = self.seen_before(0);
        }
        if let CallFacts::Seen { cpu_millis, .. } = &mut self.record_mut().facts {
            *cpu_millis = millis;
        }
        self
    }

    /// It fails because this deadline passes.
    pub(crate) fn late(mut self) -> Self {
        let deadline = self.deadline.unwrap_or(self.elapsed());
        self.record_mut().deadline = Some(deadline);
        self.how(Ending::Deadline, Code::DeadlineExceeded, None)
    }

    pub(crate) fn cancelled(self) -> Self {
        self.how(Ending::Cancelled, Code::Cancelled, None)
    }

    /// It has this deadline, in milliseconds from its begin.
    pub(crate) fn with_deadline(mut self, deadline: u64) -> Self {
        self.record_mut().deadline = Some(Duration::from_millis(deadline));
        self
    }

    /// It has not ended.
    pub(crate) fn under_way(mut self) -> Self {
        let (stage, age) = (CallStage::Waiting, self.elapsed());
        self.record_mut().state = CallState::InFlight { stage, age };
        self
    }

    /// A step of the built-in runtime, between these milliseconds after its begin.
    pub(crate) fn step(
        mut self,
        work: WorkKind,
        name: &str,
        activity: &str,
        from: u64,
        to: u64,
    ) -> Self {
        self = self.seen(work, name, activity, from, to);
        if let Some(last) = self.work.last_mut() {
            last.own = true;
        }
        self
    }

    /// Work that the scanner saw, between these milliseconds after its begin.
    pub(crate) fn seen(
        mut self,
        work: WorkKind,
        name: &str,
        activity: &str,
        from: u64,
        to: u64,
    ) -> Self {
        let began = self.began_at();
        self.work.push(ObservedWork {
            own: false,
            kind: work,
            name: name.into(),
            command: None,
            activity: (!activity.is_empty()).then(|| activity.into()),
            began: began + Duration::from_millis(from),
            ended: began + Duration::from_millis(to),
            depth: 0,
        });
        self
    }
}
