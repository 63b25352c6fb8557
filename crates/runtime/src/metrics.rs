//! The metrics of the runtime: counters of its steps, and gauges that are read at each scrape.

mod rate_limits;
mod work;

use std::sync::Arc;

use criscope_nri::CloseReason;

pub(crate) use self::work::{RuntimeWork, ShimEnd, StatsFailure};
use super::Runtime;
use super::shim_client::Unreadable;
use super::stats::disk::Missing;
use super::store::{ContainerState, SandboxState};
use criscope_cri::call::steps::{RuntimeStep, StepOutcome};
use criscope_cri::names;
use criscope_telemetry::metric::{Label, Metric, MetricKind, Unit, fixed, label, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

const STEP_OUTCOME: Label = label::<StepOutcome>("outcome");
/// Histogram buckets for steps, which mostly take milliseconds. There are few, because there are many series.
const STEP_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
];

/// The `plugin` label of CNI plugins that are not in [`PLUGINS`].
pub(crate) const OTHER_PLUGINS: &str = "other";
/// Types of CNI plugins with their own series: those of the CNI project, and networks that many clusters use. Configuration
/// files can name others at any time, which must not create new series.
pub(crate) const PLUGINS: &[&str] = &[
    "bridge",
    "ptp",
    "ipvlan",
    "macvlan",
    "vlan",
    "host-device",
    "loopback",
    "portmap",
    "bandwidth",
    "firewall",
    "tuning",
    "sbr",
    "vrf",
    "flannel",
    "calico",
    "cilium-cni",
    "multus",
    "antrea",
    "kube-ovn",
    "aws-cni",
    "azure-vnet",
    "istio-cni",
    "linkerd-cni",
    OTHER_PLUGINS,
];
criscope_cri::listed! {
    /// A type of CNI plugins.
    struct Plugin in PLUGINS;
}

/// The verbs of CNI plugins.
const PLUGIN_VERBS: [RuntimeStep; 5] = [
    RuntimeStep::CniAdd,
    RuntimeStep::CniDel,
    RuntimeStep::CniCheck,
    RuntimeStep::CniStatus,
    RuntimeStep::CniGc,
];
criscope_cri::listed! {
    /// A verb of CNI plugins.
    struct PluginVerb in &names!(PLUGIN_VERBS, RuntimeStep::name);
}

/// The `registry` label of registries that are not in [`REGISTRIES`].
pub(crate) const OTHER_REGISTRIES: &str = "other";
/// Registries with their own series: the ones that many clusters use. References in pods can name others at any time, which must not create
/// new series.
pub(crate) const REGISTRIES: &[&str] = &[
    "docker.io",
    "ghcr.io",
    "quay.io",
    "registry.k8s.io",
    "gcr.io",
    "public.ecr.aws",
    "mcr.microsoft.com",
    "registry.gitlab.com",
    OTHER_REGISTRIES,
];

/// Methods of plugins.
pub(crate) const NRI_METHODS: &[&str] = &[
    "Configure",
    "Synchronize",
    "Shutdown",
    "StateChange",
    "RunPodSandbox",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "StopContainer",
    "RemoveContainer",
    "ValidateContainerAdjustment",
];
/// Results of requests to plugins.
pub(crate) const NRI_RESULTS: &[&str] =
    &["ok", "error", "timeout", "closed", "malformed", "too_large"];

criscope_cri::listed! {
    /// A method of plugins.
    struct NriMethod in NRI_METHODS;
}
criscope_cri::listed! {
    /// The result of a request to a plugin.
    struct NriResult in NRI_RESULTS;
}
criscope_cri::listed! {
    /// Why the connection of a plugin was closed.
    struct NriClose in &CloseReason::LABELS;
}

criscope_cri::named! {
    /// A method of containerd's API.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum ContainerdMethod {
        Version = "Version",
        GetContainer = "Containers.Get",
        GetTask = "Tasks.Get",
        /// Not served.
        Other = "other",
    }
}

criscope_cri::named! {
    /// The result of a request of containerd's API.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum ContainerdResult {
        Ok = "ok",
        NotFound = "not_found",
        Error = "error",
    }
}

criscope_cri::listed! {
    /// Which part verified an image, in the order of `Verifier`.
    struct VerifiedBy in &["plugins", "policy"];
}
criscope_cri::listed! {
    /// The result of a verification, in the order of `Verdict`.
    struct VerifyResult in &["accepted", "refused", "failed"];
}

metrics! {
    RUNTIME_PHASE = Metric::histogram("runtime_phase_duration_seconds", Unit::Seconds, &[label::<RuntimeStep>("phase"), STEP_OUTCOME], STEP_BUCKETS,
        "Steps of the built-in runtime's work; some are parts of others.");
    RUNTIME_CNI_PLUGIN = Metric::histogram("runtime_cni_plugin_duration_seconds", Unit::Seconds,
        &[label::<Plugin>("plugin"), label::<PluginVerb>("verb"), STEP_OUTCOME], STEP_BUCKETS,
        "CNI plugins of the built-in runtime by their type, as far as it is well known.");
    RUNTIME_IMAGE_PULLS = Metric::counter("runtime_image_pulls_total", &[STEP_OUTCOME],
        "Pulls of the built-in runtime that ended.");
    RUNTIME_IMAGE_PULLS_IN_PROGRESS = Metric::gauge("runtime_image_pulls_in_progress", Unit::Count, &[],
        "Pulls of the built-in runtime in progress.");
    RUNTIME_IMAGE_PULL_BYTES = Metric::new(MetricKind::Counter, "runtime_image_pull_bytes_total", Unit::Bytes, &[],
        "Bytes of layers that came from registries, those of pulls that failed included.");
    RUNTIME_IMAGE_VERIFICATIONS = Metric::counter("runtime_image_verifications_total",
        &[label::<VerifiedBy>("verifier"), label::<VerifyResult>("result")],
        "Verifications of images by the built-in runtime, at pulls and, by the policy, at the creation of containers. `failed` are those that could not be decided; such an image is not used either.");
    RUNTIME_REGISTRY_REMAINING = Metric::gauge("runtime_registry_requests_remaining", Unit::Count, &[fixed("registry", REGISTRIES)],
        "Requests that a registry still allows, as it told last; until the window of its limit is over, and only for registries with a limit. Of those under `other`, the one with the fewest left.");
    RUNTIME_REGISTRY_LIMIT = Metric::gauge("runtime_registry_requests_limit", Unit::Count, &[fixed("registry", REGISTRIES)],
        "Requests that this registry allows in a window.");
    RUNTIME_IMAGES = Metric::gauge("runtime_images", Unit::Count, &[],
        "Images in the built-in runtime's store.");
    RUNTIME_IMAGE_BYTES = Metric::gauge("runtime_image_bytes", Unit::Bytes, &[],
        "Bytes of its unpacked layers; one that several images share counts once.");
    RUNTIME_SANDBOXES = Metric::gauge("runtime_sandboxes", Unit::Count, &[label::<SandboxState>("state")],
        "Sandboxes of the built-in runtime.");
    RUNTIME_CONTAINERS = Metric::gauge("runtime_containers", Unit::Count, &[label::<ContainerState>("state")],
        "Containers of the built-in runtime.");
    RUNTIME_SHIMS = Metric::gauge("runtime_shims", Unit::Count, &[],
        "Shims that the built-in runtime is connected to.");
    RUNTIME_SHIMS_LOST = Metric::counter("runtime_shims_lost_total", &[label::<ShimEnd>("how")],
        "Shims that ended before their pod, and its containers with them: by themselves, or killed because they did not answer.");
    RUNTIME_LAYERS_INCOMPLETE = Metric::counter("runtime_writable_layers_incomplete_total", &[label::<Missing>("reason")],
        "Times that a writable layer was larger than what could be counted of it: its use is at least what the statistics say.");
    RUNTIME_SHIM_MESSAGES_UNREADABLE = Metric::counter("runtime_shim_messages_unreadable_total",
        &[label::<Unreadable>("what")],
        "Messages between the built-in runtime and a shim that could not be read, because one of them is newer or the message is damaged. The state of the shim is asked for instead.");
    RUNTIME_SHIM_STATISTICS_FAILED = Metric::counter("runtime_shim_statistics_failed_total", &[label::<StatsFailure>("reason")],
        "Queries for the statistics of a container that its shim of containerd did not answer, or not with metrics. The container has none until it answers, and the shim is asked less often.");
    RUNTIME_NRI_PLUGINS = Metric::gauge("runtime_nri_plugins", Unit::Count, &[],
        "Plugins of the Node Resource Interface that are registered.");
    RUNTIME_NRI_REQUESTS = Metric::counter("runtime_nri_requests_total", &[label::<NriMethod>("method"), label::<NriResult>("result")],
        "Requests to plugins of the Node Resource Interface. Their names are in log lines and spans.");
    RUNTIME_NRI_CLOSED = Metric::counter("runtime_nri_plugins_closed_total", &[label::<NriClose>("reason")],
        "Connections of plugins that were closed, those that never registered included.");
    RUNTIME_CONTAINERD_REQUESTS = Metric::counter("runtime_containerd_requests_total",
        &[label::<ContainerdMethod>("method"), label::<ContainerdResult>("result")],
        "Requests of containerd's own API at `runtime.containerd_socket`, as the kubelet's cAdvisor makes them. Without any, the kubelet was not restarted after the setting was turned on, or asks another socket.");
    RUNTIME_EVENTS_DROPPED = Metric::counter("runtime_events_dropped_total", &[],
        "Events of containers that a listener was too slow for.");
    RUNTIME_RECOVERY_PROBLEMS = Metric::gauge("runtime_recovery_problems", Unit::Count, &[],
        "Things an earlier run left that the built-in runtime could neither use nor take away when it started.");
}

/// The values of the gauges.
#[derive(Clone, Debug, Default)]
struct Having {
    sandboxes: Vec<SandboxState>,
    containers: Vec<ContainerState>,
    shims: usize,
    images: usize,
    image_bytes: u64,
    problems: usize,
}

impl Runtime {
    /// Registers the metrics of the runtime, which keep only a weak reference to it.
    ///
    /// # Errors
    /// If the metrics are already registered.
    pub fn measure(self: &Arc<Self>, registry: &Registry) -> Result<(), RegistryError> {
        self.steps.measure(RuntimeWork::new(registry)?);
        let runtime = Arc::downgrade(self);
        register(registry, move || Some(runtime.upgrade()?.having()))
    }

    fn having(&self) -> Having {
        let sandboxes = self.store.sandboxes.all();
        let containers = self.store.containers.all();
        Having {
            shims: sandboxes.iter().filter(|one| one.shim().is_some()).count(),
            sandboxes: sandboxes.iter().map(|one| one.record().state).collect(),
            containers: containers.iter().map(|one| one.record().state).collect(),
            images: self.live().images.len(),
            image_bytes: self.live().images.layer_bytes(),
            problems: self.problems().len(),
        }
    }
}

/// Registers gauges with the values that `read` returns; without any while it returns `None`.
fn register(
    registry: &Registry,
    read: impl Fn() -> Option<Having> + Clone + Send + Sync + 'static,
) -> Result<(), RegistryError> {
    type ReadGauge = fn(&Having) -> f64;
    let gauges: [(&'static Metric, ReadGauge); 4] = [
        (&RUNTIME_SHIMS, |having| having.shims as f64),
        (&RUNTIME_IMAGES, |having| having.images as f64),
        (&RUNTIME_IMAGE_BYTES, |having| having.image_bytes as f64),
        (&RUNTIME_RECOVERY_PROBLEMS, |having| having.problems as f64),
    ];
    for (metric, value) in gauges {
        let read = read.clone();
        registry.computed(metric, move |out| {
            if let Some(having) = read() {
                out.put(&[], value(&having));
            }
        })?;
    }
    let sandboxes = read.clone();
    registry.computed(&RUNTIME_SANDBOXES, move |out| {
        let Some(having) = sandboxes() else { return };
        for state in SandboxState::ALL {
            let there = having.sandboxes.iter().filter(|one| **one == state);
            out.put(&[state.name()], there.count() as f64);
        }
    })?;
    registry.computed(&RUNTIME_CONTAINERS, move |out| {
        let Some(having) = read() else { return };
        for state in ContainerState::ALL {
            let there = having.containers.iter().filter(|one| **one == state);
            out.put(&[state.name()], there.count() as f64);
        }
    })
}

/// Registers all metrics, each with at least one series.
///
/// # Panics
/// If they are registered already.
#[cfg(any(test, feature = "test-util"))]
pub fn populate(registry: &Registry) {
    use std::time::Duration;

    let work = RuntimeWork::new(registry).expect("once");
    let took = Duration::from_millis(1);
    for phase in RuntimeStep::ALL {
        for outcome in StepOutcome::ALL {
            work.ended(phase, outcome, took);
            for plugin in PLUGINS {
                work.plugin_ended(plugin, phase, outcome, took);
            }
        }
    }
    for name in REGISTRIES {
        let limit = criscope_image::RateLimit {
            limit: Some(100),
            ..criscope_image::RateLimit::default()
        };
        work.rate_limits().set(name, &limit);
    }
    for method in NRI_METHODS {
        for result in NRI_RESULTS {
            work.nri_request(method, result);
        }
    }
    for method in ContainerdMethod::ALL {
        for result in ContainerdResult::ALL {
            work.containerd_requests.inc((method, result));
        }
    }
    register(registry, || Some(Having::default())).expect("once");
}
