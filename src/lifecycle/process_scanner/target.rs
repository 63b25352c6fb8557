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
    /// Its sandbox; for a new one the id in the CNI plugin's environment, once observed.
    sandbox: Option<Arc<str>>,
    /// Its container; unknown during creation.
    container_id: Option<Arc<str>>,
    /// CRI-O's name for the monitor of a new container or sandbox: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
    monitor: Option<Box<str>>,
}

impl Target {
    /// `None` for calls without child processes: runtimes pull images in process.
    pub(super) fn of(call: &Call, now: Duration) -> Option<Self> {
        // The built-in runtime records its own steps, more exactly.
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

    /// Stores the id of a sandbox under creation.
    pub(super) fn learn(&mut self, sandbox: &Arc<str>) {
        if self.method == Method::RunPodSandbox {
            self.sandbox = Some(Arc::clone(sandbox));
        }
    }

    /// The id of the object it creates, changes or removes; `None` while that is unknown.
    fn own_id(&self) -> Option<&str> {
        match is_about_sandbox(self.method) {
            true => self.sandbox.as_deref(),
            false => self.container_id.as_deref(),
        }
    }

    /// Returns whether the runtime may act on containers that the call does not name.
    fn reaches_further(&self) -> bool {
        is_about_sandbox(self.method) || self.method == Method::CreateContainer
    }

    fn is_pod_of(&self, plugin: &Plugin) -> bool {
        let Some(pod) = self.pod.as_deref() else {
            return false;
        };
        let same = |kept: &Option<Box<str>>, own: &str| kept.as_deref() == Some(own);
        // Runtimes before 2020 do not pass the uid.
        let uid = plugin.uid.is_none() || pod.uid.is_empty() || same(&plugin.uid, &pod.uid);
        same(&plugin.namespace, &pod.namespace) && same(&plugin.name, &pod.name) && uid
    }
}

/// Returns whether runtimes start processes for calls of this method.
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

/// The only element; `None` if there are several.
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
            // A failed sandbox is torn down in the same call.
            Some(cni::Verb::Del) | None => is_about_sandbox(t.method),
            Some(cni::Verb::Other) => false,
        };
        verb && start >= t.began
    };
    let fitting = || targets.iter().filter(fits);
    if plugin.verb.is_none() {
        // Only its name is known.
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

/// The calls that a command line names.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// By the id of their object.
    own: Vec<u64>,
    /// By the sandbox of their object.
    sandbox: Vec<u64>,
}

impl Named {
    /// Compares an argument, or a part of one, with the ids of the calls.
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

/// A running OCI runtime.
#[derive(Debug)]
pub(super) struct Runtime<'a> {
    pub(super) verb: oci::Verb,
    /// When it started, rounded up to the next tick.
    pub(super) start: Duration,
    pub(super) named: &'a Named,
    /// The shim or monitor that started it: the calls it names, and its start time.
    pub(super) monitor: Option<(&'a Named, Duration)>,
}

/// The call that an OCI runtime works for.
pub(super) fn of_runtime<'a>(targets: &'a [Target], runtime: &Runtime<'_>) -> Option<&'a Target> {
    let fits = |t: &&Target| verb_fits(runtime.verb, t.method) && runtime.start >= t.began;
    // Its command line names the container or the sandbox.
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
    // No call has this id: new objects have none yet.
    use oci::Verb::{Create, Run, Start};
    let makes = matches!(runtime.verb, Create | Run | Start);
    let is_new = |t: &&Target| {
        // An older shim belongs to an existing sandbox.
        let old_monitor = runtime.monitor.is_some_and(|(_, start)| start < t.began);
        makes && t.own_id().is_none() && (t.method == Method::CreateContainer || !old_monitor)
    };
    only(targets.iter().filter(is_new).filter(fits))
}

/// Returns whether a runtime gets this command for calls of this method. `exec` is for probes only.
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
