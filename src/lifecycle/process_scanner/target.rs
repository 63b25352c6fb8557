//! Assigns processes to calls. A process that could work for two calls is assigned to none.

use std::sync::Arc;
use std::time::Duration;

use super::cni::{self, Plugin};
use super::oci;
use super::proc::Comm;
use super::upstream::Owner;
use crate::call::Call;
use crate::cri::Method;
use crate::cri::subject::{ContainerIdentity, PodIdentity};

/// A call that processes may work for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) seq: u64,
    pub(super) method: Method,
    /// The backend that it went to; `None` while that is not chosen.
    pub(super) backend: Option<Arc<str>>,
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
    /// `None` for calls that take no work, and for those of the built-in runtime.
    pub(super) fn of(call: &Call, now: Duration) -> Option<Self> {
        // The built-in runtime records its own steps, more exactly.
        if !is_looked_at(call.method) || call.steps.get().is_some() {
            return None;
        }
        let subject = call.subject.get()?;
        Some(Self {
            seq: call.seq,
            method: call.method,
            backend: call.route.get().map(|route| Arc::clone(&route.backend)),
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

    /// Returns whether it went to this backend.
    pub(super) fn is_of(&self, backend: &str) -> bool {
        self.backend.as_deref().is_none_or(|own| own == backend)
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

    /// How much is known about it: grows with what is learnt.
    pub(super) fn known(&self) -> u64 {
        self.seq * 2 + 1 + u64::from(self.sandbox.is_some())
    }

    /// The id of its container, if it is about one.
    pub(super) fn container(&self) -> Option<&str> {
        self.container_id.as_deref()
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

/// Returns whether calls of this method may take long because of the runtime. A pull is done by the runtime itself, which may
/// be stopped or blocked.
pub(super) const fn is_looked_at(method: Method) -> bool {
    crate::call::episode::is_episodic(method)
}

/// Returns whether runtimes start plugins or OCI runtimes for calls of this method.
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

/// What an argument or a path says about its pod, sandbox or container.
#[derive(Debug, Default)]
pub(super) struct Traces {
    /// The calls that it names.
    pub(super) calls: Vec<u64>,
    /// Whether it names an object of none of these calls.
    pub(super) foreign: bool,
}

impl Traces {
    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.calls.extend(other.calls);
        self.foreign |= other.foreign;
        self
    }
}

/// Length of the id of a container, and of a pod's uid (RFC 9562).
const ID: usize = 64;
const UUID: usize = 36;

/// Compares the parts of an argument or a path with the ids of the calls. `k8s_app_web_shop_UID_0`, `cri-containerd-ID.scope` and
/// `cni-UUID` have ids as parts too.
pub(super) fn traces(targets: &[Target], text: &[u8]) -> Traces {
    let mut traces = Traces::default();
    for part in text.split(|b| matches!(b, b'/' | b'=' | b'_' | b':' | b'.')) {
        let is = |id: Option<&str>| {
            let id = id.filter(|id| !id.is_empty());
            id.is_some_and(|id| {
                part == id.as_bytes() || part.ends_with(format!("-{id}").as_bytes())
            })
        };
        let before = traces.calls.len();
        for target in targets {
            let uid = target.pod.as_deref().map(|pod| &*pod.uid);
            if is(target.sandbox.as_deref()) || is(target.container_id.as_deref()) || is(uid) {
                traces.calls.push(target.seq);
            }
        }
        let hex = |b: &u8| b.is_ascii_hexdigit() || *b == b'-';
        let is_id = part.len() == ID || part.len() == UUID;
        traces.foreign |= traces.calls.len() == before && is_id && part.iter().all(hex);
    }
    traces
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

/// Programs that unpack the layers of an image.
const UNPACKERS: [&str; 6] = ["unpigz", "pigz", "igzip", "gzip", "zstd", "unzstd"];

/// The call for which a runtime started a program that is neither plugin nor OCI runtime: the one that its command line names,
/// or else the only one in flight. `start` is rounded up to the next tick.
pub(super) fn of_helper<'a>(
    targets: &'a [Target],
    comm: &Comm,
    named: &Traces,
    backend: &str,
    start: Duration,
) -> Option<&'a Target> {
    let unpacks = UNPACKERS.iter().any(|name| comm.is(name));
    // containerd pulls its sandbox image in RunPodSandbox.
    let may_pull = |t: &Target| matches!(t.method, Method::PullImage | Method::RunPodSandbox);
    let fits = |t: &&Target| t.is_of(backend) && start >= t.began && (!unpacks || may_pull(t));
    let by_name = |t: &&Target| named.calls.contains(&t.seq);
    let fitting = || targets.iter().filter(fits);
    if fitting().any(|t| by_name(&t)) {
        return only(fitting().filter(by_name));
    }
    only(fitting().filter(|_| !named.foreign))
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
    /// The engine that it works for.
    pub(super) owner: &'a Owner,
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
    // No call has this id: new objects have none yet. Those of other engines are unknown for good.
    let Owner::Backend(owner) = runtime.owner else {
        return None;
    };
    use oci::Verb::{Create, Run, Start};
    let makes = matches!(runtime.verb, Create | Run | Start);
    let is_new = |t: &&Target| {
        // An older shim belongs to an existing sandbox.
        let old_monitor = runtime.monitor.is_some_and(|(_, start)| start < t.began);
        makes
            && t.is_of(owner)
            && t.own_id().is_none()
            && (t.method == Method::CreateContainer || !old_monitor)
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
