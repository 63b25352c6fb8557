//! Steps of the built-in runtime within a call, recorded where they happen.
//!
//! For other runtimes criscope observes processes and, if the runtime exports them, spans. The built-in runtime records its
//! own steps, each with a name, a time and an outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::trace::SpanPlacement;

/// Most steps recorded of one call; enough for a pull of an image with a hundred layers.
const MOST: usize = 320;

/// Most remarks kept of one call.
const MAX_REMARKS: usize = 8;

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal, $words:literal;)*) => {
        crate::named! {
            /// A step of the runtime's work. A metric label, and the name of its span.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[repr(u8)]
            pub enum RuntimeStep { $($(#[$doc])* $step = $name,)* }
        }

        impl RuntimeStep {
            /// The name in a sentence: `9.5 s in the fetch of layer sha256:0a1b`.
            pub const fn words(self) -> &'static str {
                match self {$(Self::$step => $words),*}
            }
        }
    };
}

steps! {
    /// Creating the sandbox's files and shared memory.
    SandboxFiles = "sandbox_files", "the files of the sandbox";
    /// Creating namespaces and setting their sysctls.
    Namespaces = "namespaces", "making namespaces";
    /// Attaching the sandbox to its network: all CNI plugins.
    NetworkAttach = "network_attach", "attaching the network";
    /// Detaching the sandbox from its network.
    NetworkDetach = "network_detach", "detaching the network";
    /// CNI ADD of one plugin.
    CniAdd = "cni_add", "CNI ADD";
    /// CNI DEL of one plugin.
    CniDel = "cni_del", "CNI DEL";
    /// CNI CHECK of one plugin.
    CniCheck = "cni_check", "CNI CHECK";
    /// CNI STATUS of one plugin.
    CniStatus = "cni_status", "CNI STATUS";
    /// CNI GC of one plugin.
    CniGc = "cni_gc", "CNI GC";
    /// Starting criscope-shim.
    ShimLaunch = "shim_launch", "the launch of the shim";
    /// Ending criscope-shim.
    ShimEnd = "shim_end", "the end of the shim";
    /// Unmounting the pinned namespaces.
    NamespacesRemove = "namespaces_remove", "freeing namespaces";
    /// Removing the sandbox's directories.
    SandboxRemove = "sandbox_remove", "removing the sandbox's files";
    /// Mounting a container's root file system.
    RootfsMount = "rootfs_mount", "the mount of the root file system";
    /// Generating and writing the OCI specification.
    Spec = "spec", "the OCI specification";
    /// The OCI runtime's create.
    OciCreate = "oci_create", "create";
    /// The OCI runtime's start.
    OciStart = "oci_start", "start";
    /// The OCI runtime's exec.
    OciExec = "oci_exec", "exec";
    /// The OCI runtime's update.
    OciUpdate = "oci_update", "update";
    /// The OCI runtime's pause.
    OciPause = "oci_pause", "pause";
    /// The OCI runtime's checkpoint.
    OciCheckpoint = "oci_checkpoint", "checkpoint";
    /// The OCI runtime's resume.
    OciResume = "oci_resume", "resume";
    /// Copying the changed files of a paused container.
    CheckpointFiles = "checkpoint_files", "copying the container's files";
    /// Writing the archive of a checkpoint.
    CheckpointArchive = "checkpoint_archive", "writing the checkpoint";
    /// The OCI runtime's delete.
    OciDelete = "oci_delete", "delete";
    /// Thawing a container that ends, or its pod.
    Thaw = "thaw", "thawing the frozen container";
    /// Waiting for a container after its stop signal.
    GraceWait = "grace_wait", "the container's grace period";
    /// Waiting for a container after SIGKILL.
    KillWait = "kill_wait", "waiting for a killed container";
    /// Unmounting a container's root file system.
    RootfsUnmount = "rootfs_unmount", "the unmount of the root file system";
    /// Removing a container's directory.
    ContainerRemove = "container_remove", "removing the container's files";
    /// A request to a plugin of the Node Resource Interface.
    Nri = "nri", "the NRI plugin";
    /// Fetching an image's manifest and configuration.
    ImageResolve = "image_resolve", "resolving the image";
    /// Getting a layer, also from a concurrent pull.
    ImageLayer = "image_layer", "layer";
    /// Fetching a layer from the registry; it is unpacked as it arrives.
    LayerFetch = "layer_fetch", "the fetch of layer";
    /// Unpacking the rest of a layer after it was fetched.
    LayerUnpack = "layer_unpack", "the unpacking of layer";
    /// Verifying an image: the programs, or the policy.
    ImageVerify = "image_verify", "the verification by";
    /// Unwrapping the key of an encrypted layer.
    LayerKey = "layer_key", "the key of layer";
    /// Recording an image in the store.
    ImageRecord = "image_record", "recording the image";
}

/// Who performs a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// A CNI plugin.
    Cni,
    /// The OCI runtime.
    Oci,
    /// The built-in runtime.
    Own,
    /// A step that consists of recorded steps.
    Several,
}

impl RuntimeStep {
    /// The worker.
    pub const fn worker(self) -> Worker {
        match self {
            Self::CniAdd | Self::CniDel | Self::CniCheck | Self::CniStatus | Self::CniGc => {
                Worker::Cni
            }
            Self::OciCreate
            | Self::OciStart
            | Self::OciExec
            | Self::OciUpdate
            | Self::OciPause
            | Self::OciCheckpoint
            | Self::OciResume
            | Self::OciDelete => Worker::Oci,
            Self::NetworkAttach | Self::NetworkDetach | Self::ImageLayer => Worker::Several,
            _ => Worker::Own,
        }
    }

    /// The command of a CNI plugin (CNI specification 1.1, `CNI_COMMAND`); `None` for other steps.
    pub const fn cni_command(self) -> Option<&'static str> {
        match self {
            Self::CniAdd => Some("ADD"),
            Self::CniDel => Some("DEL"),
            Self::CniCheck => Some("CHECK"),
            Self::CniStatus => Some("STATUS"),
            Self::CniGc => Some("GC"),
            _ => None,
        }
    }
}

crate::named! {
    /// How a step ended. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum StepOutcome {
        /// It succeeded.
        Ok = "ok",
        /// It failed.
        Error = "error",
        /// It was dropped before its end.
        Cancelled = "cancelled",
    }
}

/// A step.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// Kind of step.
    pub step: RuntimeStep,
    /// The type of a CNI plugin, the name of an NRI plugin or of the OCI runtime, or the digest of a layer.
    pub name: Option<Arc<str>>,
    /// Its span.
    pub span: SpanId,
    /// The span of the enclosing step, or of the call.
    pub parent: SpanId,
    /// When it began.
    pub began: SystemTime,
    /// How long it took and how it ended; `None` while it runs.
    pub ended: Option<(Duration, StepOutcome)>,
    clock: Instant,
}

impl StepRecord {
    /// Its duration so far.
    pub fn took(&self) -> Duration {
        self.ended
            .map_or_else(|| self.clock.elapsed(), |(took, _)| took)
    }
}

/// Called for steps that end after their call.
pub type Late = Box<dyn Fn(&StepRecord) + Send + Sync>;

/// The trace of the steps of a call.
#[derive(Clone, Copy, Debug)]
struct Traced {
    trace_id: TraceId,
    sampled: bool,
}

/// The steps of one call.
#[derive(Debug)]
pub struct RuntimeSteps {
    traced: Option<Traced>,
    root: SpanId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    all: Vec<StepRecord>,
    late: Option<Late>,
    remarks: Remarks,
}

/// Warnings of the runtime about a call that goes on.
#[derive(Debug, Default)]
struct Remarks {
    /// As the runtime wrote them. They may quote secrets.
    unredacted: Vec<String>,
    redacted: Vec<Arc<str>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// A running step.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its index; `None` if it was not recorded because there were too many.
    at: Option<usize>,
    /// Its span.
    pub span: SpanId,
}

impl RuntimeSteps {
    /// Steps of a call with these spans; `None` when traces are off.
    pub fn new(place: Option<&SpanPlacement<'_>>) -> Self {
        Self {
            traced: place.map(|place| Traced {
                trace_id: place.trace_id,
                sampled: place.sampled,
            }),
            root: place.map_or(SpanId::INVALID, |place| place.client),
            state: Mutex::default(),
        }
    }

    /// The CLIENT span of the call, the parent of its steps.
    pub fn root(&self) -> SpanId {
        self.root
    }

    /// Begins a step.
    pub fn begin(&self, step: RuntimeStep, name: Option<Arc<str>>, parent: SpanId) -> Begun {
        let span = RandomIdGenerator::default().new_span_id();
        let mut state = self.state();
        let at = (state.all.len() < MOST).then_some(state.all.len());
        if at.is_some() {
            state.all.push(StepRecord {
                step,
                name,
                span,
                parent,
                began: SystemTime::now(),
                ended: None,
                clock: Instant::now(),
            });
        }
        Begun { at, span }
    }

    /// Ends a step.
    pub fn end(&self, begun: Begun, outcome: StepOutcome) {
        let mut state = self.state();
        let State { all, late, .. } = &mut *state;
        let Some(record) = begun.at.and_then(|at| all.get_mut(at)) else {
            return;
        };
        record.ended = Some((record.clock.elapsed(), outcome));
        if let Some(late) = late {
            late(record);
        }
    }

    /// All steps so far, in the order in which they began.
    pub fn read(&self) -> Vec<StepRecord> {
        self.state().all.clone()
    }

    /// Reads the steps when the call ends. `late` is called for steps that end later.
    pub fn close(&self, late: Option<Late>) -> Vec<StepRecord> {
        let mut state = self.state();
        state.late = late;
        state.all.clone()
    }

    /// Adds a warning about the call, in a sentence. It may quote what a registry or an image says: it is not shown before
    /// [`Self::redact_remarks`]. A second equal one is dropped, and so are those beyond a bound.
    pub fn remark(&self, text: &str) {
        let unredacted = &mut self.state().remarks.unredacted;
        if unredacted.len() < MAX_REMARKS && unredacted.iter().all(|known| known != text) {
            unredacted.push(text.to_owned());
        }
    }

    /// Redacts the remarks so far, which may be shown from then on.
    pub fn redact_remarks(&self, redact: impl Fn(&str) -> Box<str>) {
        let remarks = &mut self.state().remarks;
        let redacted = remarks.unredacted.drain(..);
        let redacted = redacted.map(|text| Arc::from(redact(&text)));
        remarks.redacted.extend(redacted);
    }

    /// The redacted remarks.
    pub fn remarks(&self) -> Vec<Arc<str>> {
        self.state().remarks.redacted.clone()
    }

    /// The W3C trace context of a step, for a process that it starts; `None` when traces are off.
    pub fn traceparent(&self, span: SpanId) -> Option<String> {
        let traced = self.traced?;
        let flags = u8::from(traced.sampled);
        Some(format!("00-{}-{span}-{flags:02x}", traced.trace_id))
    }

    /// The current step, as `cni plugin bridge`; of several, the one that began last.
    pub fn activity(&self) -> Option<String> {
        let state = self.state();
        let going = state
            .all
            .iter()
            .rev()
            .find(|record| record.ended.is_none() && record.step.worker() != Worker::Several)?;
        let name = going.name.as_deref().unwrap_or_default();
        let words = going.step.words();
        Some(match going.step.worker() {
            Worker::Cni => format!("cni plugin {name}"),
            Worker::Oci => format!("oci runtime {name} ({words})"),
            _ => format!("{words} {name}").trim_end().to_owned(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn the_activity_is_the_step_that_began_last() {
        let steps = RuntimeSteps::new(None);
        assert_eq!(
            (steps.activity(), steps.traceparent(steps.root())),
            (None, None)
        );
        let attach = steps.begin(RuntimeStep::NetworkAttach, None, steps.root());
        assert_eq!(steps.activity(), None, "its plugins are recorded");
        let bridge = steps.begin(RuntimeStep::CniAdd, Some("bridge".into()), attach.span);
        assert_eq!(steps.activity().as_deref(), Some("cni plugin bridge"));
        let shim = steps.begin(RuntimeStep::ShimLaunch, None, steps.root());
        assert_eq!(steps.activity().as_deref(), Some("the launch of the shim"));
        steps.end(shim, StepOutcome::Ok);
        assert_eq!(steps.activity().as_deref(), Some("cni plugin bridge"));
        steps.end(bridge, StepOutcome::Error);
        let all = steps.read();
        assert_eq!(all[1].parent, all[0].span);
        assert_eq!(all[1].ended.map(|(_, how)| how), Some(StepOutcome::Error));
        assert_eq!(all[0].ended, None);
    }

    #[test]
    fn late_steps_are_reported_once() {
        let steps = RuntimeSteps::new(None);
        let early = steps.begin(RuntimeStep::Spec, None, steps.root());
        let late = steps.begin(RuntimeStep::OciCreate, None, steps.root());
        steps.end(early, StepOutcome::Ok);
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let closed = steps.close(Some(Box::new(move |record| {
            assert_eq!(record.step, RuntimeStep::OciCreate);
            count.fetch_add(1, Ordering::Relaxed);
        })));
        assert_eq!(closed.iter().filter(|r| r.ended.is_some()).count(), 1);
        steps.end(late, StepOutcome::Ok);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn remarks_are_shown_once_and_only_when_they_are_redacted() {
        let steps = RuntimeSteps::new(None);
        for n in 0..3 * MAX_REMARKS {
            steps.remark(&format!("secret {}", n / 2));
        }
        assert_eq!(steps.remarks(), Vec::<Arc<str>>::new());
        steps.redact_remarks(|text| text.replace("secret", "hidden").into());
        let remarks = steps.remarks();
        assert_eq!(remarks.len(), MAX_REMARKS);
        assert_eq!((&*remarks[0], &*remarks[1]), ("hidden 0", "hidden 1"));
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        let steps = RuntimeSteps::new(None);
        for _ in 0..2 * MOST {
            let begun = steps.begin(RuntimeStep::LayerFetch, None, steps.root());
            steps.end(begun, StepOutcome::Ok);
        }
        assert_eq!(steps.read().len(), MOST);
    }
}
