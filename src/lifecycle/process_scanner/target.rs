//! Assigns processes to calls. A process that could work for two calls is assigned to none.

use std::sync::Arc;
use std::time::Duration;

use super::cni::{self, Plugin};
use super::oci;
use crate::call::Call;
use crate::cri::Method;
use crate::cri::subject::{ContainerIdentity, PodIdentity};

/// A call that processes may work for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) seq: u64,
    method: Method,
    /// When it was received, since boot.
    pub(super) began: Duration,
    pod: Option<Arc<PodIdentity>>,
    /// The sandbox it is about; for a new one what its CNI plugin was told, once that was seen.
    sandbox: Option<Arc<str>>,
    /// The container it is about; unknown while it is made.
    container_id: Option<Arc<str>>,
    /// How CRI-O calls the monitor of what is made: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
    monitor: Option<Box<str>>,
}

impl Target {
    /// `None` for calls that no process is started for: runtimes pull images themselves.
    pub(super) fn of(call: &Call, now: Duration) -> Option<Self> {
        // The built-in runtime tells itself, and more exactly.
        if !works(call.method) || call.steps.get().is_some() {
            return None;
        }
        let subject = call.subject.get()?;
        Some(Self {
            seq: call.seq,
            method: call.method,
            began: now.saturating_sub(call.age()),
            pod: subject.pod.clone(),
            sandbox: subject.sandbox_id.clone(),
            container_id: subject.container_id.clone(),
            monitor: monitor(
                call.method,
                subject.pod.as_deref(),
                subject.container.as_deref(),
            ),
        })
    }

    /// Takes in the id of a sandbox that is being made.
    pub(super) fn learn(&mut self, sandbox: &Arc<str>) {
        if self.method == Method::RunPodSandbox {
            self.sandbox = Some(Arc::clone(sandbox));
        }
    }

    /// The id of what it makes, changes or removes; `None` while that is unknown.
    fn own_id(&self) -> Option<&str> {
        match is_about_sandbox(self.method) {
            true => self.sandbox.as_deref(),
            false => self.container_id.as_deref(),
        }
    }

    /// Whether it may have the runtime do something to containers it does not name.
    fn reaches_further(&self) -> bool {
        is_about_sandbox(self.method) || self.method == Method::CreateContainer
    }

    fn is_pod_of(&self, plugin: &Plugin) -> bool {
        let Some(pod) = self.pod.as_deref() else {
            return false;
        };
        let same = |kept: &Option<Box<str>>, own: &str| kept.as_deref() == Some(own);
        // Runtimes before 2020 do not tell the uid.
        let uid = plugin.uid.is_none() || pod.uid.is_empty() || same(&plugin.uid, &pod.uid);
        same(&plugin.namespace, &pod.namespace) && same(&plugin.name, &pod.name) && uid
    }
}

/// Whether processes are started for calls of this method.
pub(super) const fn works(method: Method) -> bool {
    crate::call::episode::is_episodic(method) && !matches!(method, Method::PullImage)
}

const fn is_about_sandbox(method: Method) -> bool {
    matches!(
        method,
        Method::RunPodSandbox | Method::StopPodSandbox | Method::RemovePodSandbox
    )
}

fn monitor(
    method: Method,
    pod: Option<&PodIdentity>,
    container: Option<&ContainerIdentity>,
) -> Option<Box<str>> {
    let pod = pod?;
    let (name, attempt) = match method {
        Method::RunPodSandbox => ("POD", pod.attempt),
        Method::CreateContainer => (&*container?.name, container?.attempt),
        _ => return None,
    };
    let (pod_name, namespace, uid) = (&pod.name, &pod.namespace, &pod.uid);
    Some(format!("k8s_{name}_{pod_name}_{namespace}_{uid}_{attempt}").into())
}

/// The one element, if there is one only.
fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// The call that a CNI plugin works for; `start` is when it started, rounded up to the next tick.
pub(super) fn of_plugin<'a>(
    targets: &'a [Target],
    plugin: &Plugin,
    start: Duration,
) -> Option<&'a Target> {
    let fits = |t: &&Target| {
        let verb = match plugin.verb {
            Some(cni::Verb::Add) => t.method == Method::RunPodSandbox,
            // A sandbox that could not be made is undone in the same call.
            Some(cni::Verb::Del) | None => is_about_sandbox(t.method),
            Some(cni::Verb::Other) => false,
        };
        verb && start >= t.began
    };
    let fitting = || targets.iter().filter(fits);
    if plugin.verb.is_none() {
        // Nothing is known of it but its name.
        return only(fitting());
    }
    let by_id =
        |t: &&Target| t.sandbox.is_some() && t.sandbox.as_deref() == plugin.sandbox.as_deref();
    if fitting().any(|t| by_id(&t)) {
        return only(fitting().filter(by_id));
    }
    let is_new = plugin.verb == Some(cni::Verb::Add);
    only(fitting().filter(|t| is_new && t.sandbox.is_none() && t.is_pod_of(plugin)))
}

/// Which calls a command line names.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// By the id of what they are about.
    own: Vec<u64>,
    /// By the sandbox they are in.
    sandbox: Vec<u64>,
}

impl Named {
    /// Compares an argument, or a part of one, with what the calls are about.
    pub(super) fn compare(&mut self, targets: &[Target], part: &[u8]) {
        let is = |id: Option<&str>| id.is_some_and(|id| id.as_bytes() == part);
        for target in targets {
            if is(target.own_id()) || is(target.monitor.as_deref()) {
                self.own.push(target.seq);
            } else if is(target.sandbox.as_deref()) {
                self.sandbox.push(target.seq);
            }
        }
    }
}

/// What is known of an OCI runtime that runs.
#[derive(Debug)]
pub(super) struct Runtime<'a> {
    pub(super) verb: oci::Verb,
    /// When it started, rounded up to the next tick.
    pub(super) start: Duration,
    pub(super) named: &'a Named,
    /// The shim or monitor that started it: whom it names, and when it started.
    pub(super) monitor: Option<(&'a Named, Duration)>,
}

/// The call that an OCI runtime works for.
pub(super) fn of_runtime<'a>(targets: &'a [Target], runtime: &Runtime<'_>) -> Option<&'a Target> {
    let fits = |t: &&Target| verb_fits(runtime.verb, t.method) && runtime.start >= t.began;
    // It names the container or the sandbox.
    let own = || {
        targets
            .iter()
            .filter(|t| runtime.named.own.contains(&t.seq))
            .filter(fits)
    };
    if own().next().is_some() {
        return only(own());
    }
    if let Some((monitor, _)) = runtime.monitor
        && !(monitor.own.is_empty() && monitor.sandbox.is_empty())
    {
        let of_monitor = |t: &&Target| {
            monitor.own.contains(&t.seq) || monitor.sandbox.contains(&t.seq) && t.reaches_further()
        };
        return only(targets.iter().filter(of_monitor).filter(fits));
    }
    // It is about something that no call names: what is being made has no name yet.
    use oci::Verb::{Create, Run, Start};
    let makes = matches!(runtime.verb, Create | Run | Start);
    let is_new = |t: &&Target| {
        // An older shim belongs to a sandbox that is there already.
        let old_monitor = runtime.monitor.is_some_and(|(_, start)| start < t.began);
        makes && t.own_id().is_none() && (t.method == Method::CreateContainer || !old_monitor)
    };
    only(targets.iter().filter(is_new).filter(fits))
}

/// Whether a runtime is told this for calls of this method. `exec` is told for probes only.
const fn verb_fits(verb: oci::Verb, method: Method) -> bool {
    use oci::Verb::{Create, Delete, Exec, Kill, Run, Start, State};
    match verb {
        Create | Run => matches!(
            method,
            Method::RunPodSandbox | Method::CreateContainer | Method::StartContainer
        ),
        Start => matches!(method, Method::RunPodSandbox | Method::StartContainer),
        Kill => matches!(
            method,
            Method::StopContainer
                | Method::StopPodSandbox
                | Method::RemoveContainer
                | Method::RemovePodSandbox
        ),
        Delete | State => works(method),
        Exec => false,
    }
}
