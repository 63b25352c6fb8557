//! Assigns processes to calls. A process that could work for two calls is assigned to none.

use std::sync::Arc;
use std::time::Duration;

use super::cni::{CniCommand, CniParameters};
use super::oci;
use super::proc::ProcessComm;
use super::upstream::ProcessOwner;
use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};

/// A call that processes may work for.
#[derive(Clone, Debug)]
pub(super) struct CandidateCall {
    pub(super) seq: u64,
    pub(super) method: Method,
    /// The backend that serves the call; `None` before it is chosen.
    pub(super) backend: Option<Arc<str>>,
    /// Time since boot at which the call was received.
    pub(super) began: Duration,
    pod: Option<Arc<PodIdentity>>,
    /// The id of the sandbox. For a new sandbox it comes from the CNI plugin's environment, once that is observed.
    sandbox: Option<Arc<str>>,
    /// The id of the container; unknown during creation.
    container_id: Option<Arc<str>>,
    /// Set if the built-in runtime serves the call. It records its own steps, more exactly than processes show them, but not what
    /// holds them up.
    pub(super) is_own: bool,
    /// CRI-O's name for the monitor of a new container or sandbox: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
    monitor: Option<Box<str>>,
}

impl CandidateCall {
    /// The candidate for a call. `None` if the method needs no processes.
    pub(super) fn new(call: &Call, now: Duration) -> Option<Self> {
        if !is_scanned(call.method) {
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
            is_own: call.steps.get().is_some(),
            monitor: monitor_name(
                call.method,
                subject.pod.as_deref(),
                subject.container.as_deref(),
            ),
        })
    }

    /// Returns whether this backend serves the call, or may be chosen for it.
    pub(super) fn is_served_by(&self, backend: &str) -> bool {
        self.backend.as_deref().is_none_or(|own| own == backend)
    }

    /// Stores the id of a sandbox under creation.
    pub(super) fn learn(&mut self, sandbox: &Arc<str>) {
        if self.method == Method::RunPodSandbox {
            self.sandbox = Some(Arc::clone(sandbox));
        }
    }

    /// The id of the object that the call creates, changes or removes; `None` while it is unknown.
    fn own_id(&self) -> Option<&str> {
        if is_about_sandbox(self.method) {
            self.sandbox.as_deref()
        } else {
            self.container_id.as_deref()
        }
    }

    /// A number that changes when a sandbox id is learnt. The sum over all calls tells whether something is new.
    pub(super) fn knowledge(&self) -> u64 {
        self.seq * 2 + 1 + u64::from(self.sandbox.is_some())
    }

    /// The id of the container, if the call is about one.
    pub(super) fn container(&self) -> Option<&str> {
        self.container_id.as_deref()
    }

    /// Returns whether the runtime may act on containers that the call does not name.
    fn reaches_further(&self) -> bool {
        is_about_sandbox(self.method) || self.method == Method::CreateContainer
    }

    fn is_pod_of(&self, plugin: &CniParameters) -> bool {
        let Some(pod) = self.pod.as_deref() else {
            return false;
        };
        // Runtimes before 2020 do not pass the uid.
        let has_uids = plugin.uid.is_some() && !pod.uid.is_empty();
        plugin.namespace.as_deref() == Some(&pod.namespace)
            && plugin.name.as_deref() == Some(&pod.name)
            && (!has_uids || plugin.uid.as_deref() == Some(&pod.uid))
    }
}

/// Returns whether processes are scanned for slow calls of this method. A pull needs no other processes, but the runtime may
/// be stopped or blocked.
pub(super) const fn is_scanned(method: Method) -> bool {
    criscope_cri::call::episode::is_episodic(method)
}

/// Returns whether runtimes start plugins or OCI runtimes for calls of this method.
pub(super) const fn has_workers(method: Method) -> bool {
    criscope_cri::call::episode::is_episodic(method) && !matches!(method, Method::PullImage)
}

const fn is_about_sandbox(method: Method) -> bool {
    matches!(
        method,
        Method::RunPodSandbox | Method::StopPodSandbox | Method::RemovePodSandbox
    )
}

/// The name that CRI-O gives to the monitor of a new container or sandbox.
fn monitor_name(
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

/// The call that a CNI plugin works for. `start` is the start time of the plugin, rounded up to the next tick.
pub(super) fn find_plugin_call<'a>(
    targets: &'a [CandidateCall],
    plugin: &CniParameters,
    start: Duration,
) -> Option<&'a CandidateCall> {
    let fitting: Vec<_> = targets
        .iter()
        .filter(|t| start >= t.began && plugin_fits(plugin.command, t.method))
        .collect();
    if plugin.command.is_none() {
        // Only the name of the plugin is known.
        return only(fitting.into_iter());
    }
    let by_id = fitting
        .iter()
        .filter(|t| t.sandbox.is_some() && t.sandbox.as_deref() == plugin.sandbox.as_deref());
    let by_id: Vec<_> = by_id.copied().collect();
    if !by_id.is_empty() {
        return only(by_id.into_iter());
    }
    let is_new = plugin.command == Some(CniCommand::Add);
    let new = fitting
        .into_iter()
        .filter(|t| is_new && t.sandbox.is_none() && t.is_pod_of(plugin));
    only(new)
}

/// Returns whether a runtime gives plugins this command for calls of this method; `None` is an unknown command.
const fn plugin_fits(command: Option<CniCommand>, method: Method) -> bool {
    match command {
        Some(CniCommand::Add) => matches!(method, Method::RunPodSandbox),
        // A failed sandbox is torn down in the same call.
        Some(CniCommand::Del) | None => is_about_sandbox(method),
        Some(CniCommand::Other) => false,
    }
}

/// The calls whose pod, sandbox or container an argument or a path names.
#[derive(Debug, Default)]
pub(super) struct IdMatches {
    /// The calls with a matching id.
    pub(super) calls: Vec<u64>,
    /// Set if the text has an id that belongs to none of the calls.
    pub(super) foreign: bool,
}

impl IdMatches {
    /// Joins the matches of two texts.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.calls.extend(other.calls);
        self.foreign |= other.foreign;
        self
    }
}

/// Length of the id of a container or sandbox.
const CONTAINER_ID_LEN: usize = 64;

/// Length of a pod's uid (RFC 9562).
const UID_LEN: usize = 36;

/// Compares the parts of an argument or a path with the ids of the calls. `k8s_app_web_shop_UID_0`, `cri-containerd-ID.scope`
/// and `cni-UUID` have ids as parts too.
pub(super) fn match_ids(targets: &[CandidateCall], text: &[u8]) -> IdMatches {
    let mut matches = IdMatches::default();
    for part in text.split(|b| matches!(b, b'/' | b'=' | b'_' | b':' | b'.')) {
        let before = matches.calls.len();
        for target in targets {
            let uid = target.pod.as_deref().map(|pod| &*pod.uid);
            let ids = [
                target.sandbox.as_deref(),
                target.container_id.as_deref(),
                uid,
            ];
            if ids.into_iter().flatten().any(|id| part_has_id(part, id)) {
                matches.calls.push(target.seq);
            }
        }
        matches.foreign |= matches.calls.len() == before && is_id(part);
    }
    matches
}

/// Returns whether a part of a path is this id, or ends with it behind a hyphen.
fn part_has_id(part: &[u8], id: &str) -> bool {
    let prefix = part.strip_suffix(id.as_bytes());
    !id.is_empty() && prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(b"-"))
}

/// Returns whether a part of a path has the form of a container's id or a pod's uid.
fn is_id(part: &[u8]) -> bool {
    let mut bytes = part.iter();
    (part.len() == CONTAINER_ID_LEN || part.len() == UID_LEN)
        && bytes.all(|b| b.is_ascii_hexdigit() || *b == b'-')
}

/// The calls that a command line names.
#[derive(Debug, Default)]
pub(super) struct NamedCalls {
    /// Calls whose object the command line names.
    own: Vec<u64>,
    /// Calls whose sandbox the command line names.
    sandbox: Vec<u64>,
}

impl NamedCalls {
    /// Compares an argument, or a part of one, with the ids of the calls.
    pub(super) fn compare(&mut self, targets: &[CandidateCall], part: &[u8]) {
        for target in targets {
            let mut own = [target.own_id(), target.monitor.as_deref()]
                .into_iter()
                .flatten();
            let sandbox = target.sandbox.as_deref();
            if own.any(|id| id.as_bytes() == part) {
                self.own.push(target.seq);
            } else if sandbox.is_some_and(|id| id.as_bytes() == part) {
                self.sandbox.push(target.seq);
            }
        }
    }
}

/// Programs that unpack the layers of an image.
const UNPACKERS: [&str; 6] = ["unpigz", "pigz", "igzip", "gzip", "zstd", "unzstd"];

/// The call for which a runtime started a program that is neither plugin nor OCI runtime: the one that its command line names,
/// or else the only one in flight. `start` is the start time of the program, rounded up to the next tick.
pub(super) fn find_helper_call<'a>(
    targets: &'a [CandidateCall],
    comm: &ProcessComm,
    named: &IdMatches,
    backend: &str,
    start: Duration,
) -> Option<&'a CandidateCall> {
    let unpacks = UNPACKERS.iter().any(|name| comm.is(name));
    let fitting = targets.iter().filter(|t| {
        // containerd pulls its sandbox image in RunPodSandbox.
        let may_pull = matches!(t.method, Method::PullImage | Method::RunPodSandbox);
        t.is_served_by(backend) && start >= t.began && (!unpacks || may_pull)
    });
    let (by_name, others): (Vec<_>, Vec<_>) = fitting.partition(|t| named.calls.contains(&t.seq));
    if !by_name.is_empty() {
        return only(by_name.into_iter());
    }
    only(others.into_iter().filter(|_| !named.foreign))
}

/// A running OCI runtime.
#[derive(Debug)]
pub(super) struct OciProcess<'a> {
    pub(super) command: oci::OciCommand,
    /// Start time, rounded up to the next tick.
    pub(super) start: Duration,
    pub(super) named: &'a NamedCalls,
    /// The shim or monitor that started the runtime: the calls it names, and its start time.
    pub(super) monitor: Option<(&'a NamedCalls, Duration)>,
    /// The engine that the runtime works for.
    pub(super) owner: &'a ProcessOwner,
}

/// The call that an OCI runtime works for.
pub(super) fn find_runtime_call<'a>(
    targets: &'a [CandidateCall],
    runtime: &OciProcess<'_>,
) -> Option<&'a CandidateCall> {
    let fitting: Vec<_> = targets
        .iter()
        .filter(|t| oci_command_fits(runtime.command, t.method) && runtime.start >= t.began)
        .collect();
    // The command line of the runtime names the container or the sandbox.
    let own = fitting
        .iter()
        .copied()
        .filter(|t| runtime.named.own.contains(&t.seq));
    let own: Vec<_> = own.collect();
    if !own.is_empty() {
        return only(own.into_iter());
    }
    let fitting = fitting.into_iter();
    if let Some((monitor, _)) = runtime.monitor
        && !(monitor.own.is_empty() && monitor.sandbox.is_empty())
    {
        return only(fitting.filter(|t| {
            monitor.own.contains(&t.seq) || monitor.sandbox.contains(&t.seq) && t.reaches_further()
        }));
    }
    // No call has this id. A new object has none yet; an object of another engine is never known.
    let ProcessOwner::Backend(owner) = runtime.owner else {
        return None;
    };
    use oci::OciCommand::{Create, Run, Start};
    if !matches!(runtime.command, Create | Run | Start) {
        return None;
    }
    only(fitting.filter(|t| {
        // An older shim belongs to an existing sandbox.
        let old_monitor = runtime.monitor.is_some_and(|(_, start)| start < t.began);
        t.is_served_by(owner)
            && t.own_id().is_none()
            && (t.method == Method::CreateContainer || !old_monitor)
    }))
}

/// Returns whether a runtime gets this command for calls of this method. `exec` is for probes only.
const fn oci_command_fits(command: oci::OciCommand, method: Method) -> bool {
    use oci::OciCommand::{Create, Delete, Exec, Kill, Run, Start, State};
    match command {
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
        Delete | State => has_workers(method),
        Exec => false,
    }
}
