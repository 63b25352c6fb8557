//! The table itself. See [`super`].

use super::{Kind, Label, Metric, Unit, Values};
use crate::call::steps::{RuntimeStep, StepOutcome};
use crate::call::{Client, Ending, RouteReason, episode};
use crate::cri::method::Method;
use crate::cri::status::{CODES, code_name};
use crate::cri::subject::ExitReason;

/// The names of all values of an enum, in the order of its `ALL`.
macro_rules! names {
    ($all:expr, $name:expr) => {{
        let mut names = [""; $all.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = $name($all[i]);
            i += 1;
        }
        names
    }};
}

static METHOD_NAMES: [&str; Method::COUNT] = names!(Method::ALL, Method::name);
static ENDING_NAMES: [&str; Ending::ALL.len()] = names!(Ending::ALL, Ending::name);
static CLIENT_NAMES: [&str; Client::ALL.len()] = names!(Client::ALL, Client::name);
static REASON_NAMES: [&str; RouteReason::ALL.len()] = names!(RouteReason::ALL, RouteReason::name);
static EPISODE_NAMES: [&str; episode::Kind::ALL.len()] =
    names!(episode::Kind::ALL, episode::Kind::name);
static EXIT_NAMES: [&str; ExitReason::ALL.len()] = names!(ExitReason::ALL, ExitReason::name);
static RUNTIME_PHASE_NAMES: [&str; RuntimeStep::ALL.len()] =
    names!(RuntimeStep::ALL, RuntimeStep::name);
static PHASE_OUTCOME_NAMES: [&str; StepOutcome::ALL.len()] =
    names!(StepOutcome::ALL, StepOutcome::name);
static CODE_NAMES: [&str; CODES.len()] = names!(CODES, code_name);

const fn fixed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Fixed(values),
    }
}

const METHOD: Label = fixed("method", &METHOD_NAMES);
const OUTCOME: Label = fixed("outcome", &ENDING_NAMES);
const CODE: Label = fixed("code", &CODE_NAMES);
const CLIENT: Label = fixed("client", &CLIENT_NAMES);
const REASON: Label = fixed("reason", &REASON_NAMES);
const BACKEND: Label = Label {
    name: "backend",
    values: Values::Backends,
};

const fn one(name: &'static str, what: &'static str) -> Label {
    Label {
        name,
        values: Values::One(what),
    }
}

/// How an episode ended.
const TOLD: Label = fixed("outcome", &["ok", "failed"]);
const RUNTIME_HANDLER: Label = Label {
    name: "runtime_handler",
    values: Values::Handlers,
};
/// The phases of a start.
const START_PHASE: Label = fixed(
    "phase",
    &[
        "sandbox",
        "network",
        "image_pull",
        "container_create",
        "container_start",
        "init_container",
        "outside_cri",
    ],
);
/// The calls of a start that can fail.
const START_CALL: Label = fixed(
    "phase",
    &[
        "sandbox",
        "image_pull",
        "container_create",
        "container_start",
    ],
);

/// What a session of exec, attach or port-forward is, in the order of `streaming`.
const STREAM_KIND: Label = fixed("kind", &["exec", "attach", "portforward"]);
/// What carries it.
const STREAM_TRANSPORT: Label = fixed("transport", &["spdy", "websocket", "tls"]);
/// How it ended.
const STREAM_OUTCOME: Label = fixed(
    "outcome",
    &[
        "done",
        "client_gone",
        "failed",
        "no_streams",
        "protocol",
        "idle",
        "shutdown",
    ],
);

/// Calls: from half a millisecond to the ten minutes of a slow image pull; the kubelet's own deadlines (2 and 4
/// minutes) are bounds.
const CALL_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 240.0, 600.0,
];
/// The same calls as the backend answers them: every second bound, since these series are the most numerous and the
/// budget of a node is 2,000.
const BACKEND_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
];
/// Starts and stops of pods.
const START_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
/// Their phases.
const PHASE_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
/// Our own share of a call.
const OVERHEAD_BUCKETS: &[f64] = &[
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1,
];
/// Sessions of exec, attach and port-forward: from a probe to a working day.
const SESSION_BUCKETS: &[f64] = &[0.05, 0.25, 1.0, 5.0, 30.0, 300.0, 1800.0, 7200.0, 28800.0];
/// A look at the processes of a small node, and of a very large one; the answer of a neighbour on loopback.
const LOOK_BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];
/// Up to the kubelet's limit of a message, 16 MiB; finer before it, so that an alert can tell near from far.
const SIZE_BUCKETS: &[f64] = &[
    4096.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 8388608.0, 12582912.0, 16777216.0,
];

/// Steps of the built-in runtime, which mostly take milliseconds; few, since there are many of these series.
const STEP_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
];

const STEP_OUTCOME: Label = fixed("outcome", &PHASE_OUTCOME_NAMES);

/// The `plugin` of CNI plugins that are not in [`PLUGINS`].
pub const OTHER_PLUGINS: &str = "other";

/// Types of CNI plugins that have series of their own: those of the CNI project, and networks that many clusters have. Files
/// in the configuration directory name others, and may do so at any time.
pub const PLUGINS: &[&str] = &[
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

/// What plugins are told to do, as the steps of the runtime are called.
pub const PLUGIN_VERBS: &[&str] = &["cni_add", "cni_del", "cni_check", "cni_status", "cni_gc"];

macro_rules! catalogue {
    ($($id:ident = $metric:expr;)*) => {
        $(#[doc = concat!("`", stringify!($id), "`: see [`CATALOGUE`].")] pub static $id: Metric = $metric;)*

        /// Every metric.
        pub static CATALOGUE: &[&Metric] = &[$(&$id,)*];
    };
}

catalogue! {
    RPC_DURATION = Metric::histogram("rpc_duration_seconds", Unit::Seconds, &[METHOD, OUTCOME], CALL_BUCKETS,
        "Time from the request headers to the one end of the call.").with_exemplars();
    RPC_TOTAL = Metric::counter("rpc_total", &[METHOD, CODE, CLIENT],
        "Calls that ended, by the status the caller saw and the kind of caller.");
    RPC_IN_FLIGHT = Metric::gauge("rpc_in_flight", Unit::Count, &[METHOD],
        "Calls that have entered and not yet ended.");
    RPC_OLDEST_IN_FLIGHT = Metric::gauge("rpc_oldest_in_flight_seconds", Unit::Seconds, &[METHOD],
        "Age of the oldest call in flight; absent when there is none.");
    RPC_STUCK = Metric::counter("rpc_stuck_total", &[METHOD],
        "Calls that passed half of their deadline, or of what is allowed to a call without one: 10 seconds to polls, 2 minutes to ExecSync, 5 to PullImage, 1 to others.");
    RPC_STUCK_IN_FLIGHT = Metric::gauge("rpc_stuck_in_flight", Unit::Count, &[METHOD],
        "Calls in flight that passed half of their deadline, or of what is allowed to a call without one; absent when there is none.");
    RPC_RESPONSE_BYTES = Metric::histogram("rpc_response_bytes", Unit::Bytes, &[METHOD], SIZE_BUCKETS,
        "Size of complete answers to List and Stream calls, gRPC frame headers included; the kubelet refuses more than 16 MiB.");

    BACKEND_RPC_DURATION = Metric::histogram("backend_rpc_duration_seconds", Unit::Seconds, &[BACKEND, METHOD, OUTCOME], BACKEND_BUCKETS,
        "Time from handing the request to the backend to the end of its answer.").with_exemplars();
    PROXY_OVERHEAD = Metric::histogram("proxy_overhead_seconds", Unit::Seconds, &[], OVERHEAD_BUCKETS,
        "Time of a call not spent in the backend; unary calls that ended ok.");
    BACKEND_UP = Metric::gauge("backend_up", Unit::Flag, &[BACKEND],
        "Whether the backend is connected and answers.");
    BACKEND_RECONNECTS = Metric::counter("backend_reconnects_total", &[BACKEND],
        "Connections made to the backend after the first.");
    ROUTE_DECISIONS = Metric::counter("route_decisions_total", &[BACKEND, REASON],
        "Calls by the backend they went to and why.");

    POD_START_DURATION = Metric::histogram("pod_start_duration_seconds", Unit::Seconds,
        &[TOLD, fixed("image_pull", &["none", "some"]), RUNTIME_HANDLER], START_BUCKETS,
        "Time from the first call of a pod's start to the end of its last, counted once no call follows for `story.quiet`.").with_exemplars();
    POD_START_PHASE = Metric::histogram("pod_start_phase_seconds", Unit::Seconds, &[START_PHASE], PHASE_BUCKETS,
        "Parts of the same time; they add up to it, and a part that did not occur is not counted.");
    POD_START_FAILURES = Metric::counter("pod_start_failures_total", &[START_CALL],
        "Calls of pod starts that failed, each at once.");
    POD_STARTS_OPEN = Metric::gauge("pod_starts_open", Unit::Count, &[],
        "Pod starts that have not come to their end.");
    POD_START_OLDEST_OPEN = Metric::gauge("pod_start_oldest_open_seconds", Unit::Seconds, &[],
        "Age of the oldest of them; absent when there is none.");
    POD_STOP_DURATION = Metric::histogram("pod_stop_duration_seconds", Unit::Seconds, &[TOLD], START_BUCKETS,
        "Time from the first call that stops a pod to the end of the last.");
    CONTAINER_RESTARTS = Metric::counter("container_restarts_total", &[],
        "Containers that were started again.");
    CONTAINER_EXITS = Metric::counter("container_exits_total", &[fixed("reason", &EXIT_NAMES)],
        "Containers that ended, as far as the kubelet asked how they are.");
    STORY_EPISODES = Metric::gauge("story_episodes", Unit::Count, &[fixed("kind", &EPISODE_NAMES)],
        "Starts, restarts and stops that are remembered.");

    CONNECTIONS_OPEN = Metric::gauge("connections_open", Unit::Count, &[],
        "Connections of callers that are open.");
    CONNECTIONS_TOTAL = Metric::counter("connections_total", &[CLIENT],
        "Connections of callers that were accepted.");
    IDENTITY_ENTRIES = Metric::gauge("identity_entries", Unit::Count, &[fixed("kind", &["sandbox", "container"])],
        "Sandboxes and containers whose pod is known.");
    IDENTITY_LOOKUPS = Metric::counter("identity_lookups_total", &[fixed("result", &["hit", "miss"])],
        "Look-ups of the pod behind an id.");

    STREAM_SESSIONS = Metric::gauge("stream_sessions", Unit::Count, &[STREAM_KIND, STREAM_TRANSPORT],
        "Sessions of exec, attach and port-forward that are open.");
    STREAM_SESSIONS_ENDED = Metric::counter("stream_sessions_ended_total", &[STREAM_KIND, STREAM_TRANSPORT, STREAM_OUTCOME],
        "Sessions that ended, by how: the command or container ended or the client was done, the client went away before, it could not be run or reached, the client did not open its streams or broke the protocol, nothing was sent for too long, this program stopped.");
    STREAM_SESSION_DURATION = Metric::histogram("stream_session_duration_seconds", Unit::Seconds, &[STREAM_KIND], SESSION_BUCKETS,
        "Time from the request for a session to its end.");
    STREAM_BYTES = Metric::new(Kind::Counter, "stream_bytes_total", Unit::Bytes, &[STREAM_KIND, fixed("direction", &["in", "out"])],
        "Bytes that sessions carried to containers and pods (in) and from them (out); without what the protocols add, or with it, TLS included, if an upstream serves the session.");
    STREAM_CONNECTIONS = Metric::counter("stream_connections_total", &[],
        "Connections into pods that ended sessions of port-forward have asked for; not counted where an upstream serves the session.");
    STREAM_TOKENS = Metric::counter("stream_tokens_total", &[fixed("result", &["issued", "used", "expired", "refused", "full"])],
        "Tokens of URLs of sessions: given out, used, too old, asked for and not there, not given out because too many are.");

    STREAM_URLS = Metric::counter("stream_urls_total", &[fixed("result", &["proxied", "not_loopback", "unparsable", "unread", "limit_reached", "unavailable"])],
        "URLs of sessions that upstreams gave: proxied by this program, or passed on unchanged: because the address is not loopback, because the URL was not parsed, because the request or the answer was not read, because too many sessions are open or pending, or because the proxy is not available.");
    STREAM_UPSTREAM_ANSWERS = Metric::counter("stream_upstream_answers_total", &[fixed("status", &["101", "2xx", "3xx", "4xx", "5xx", "other", "none"])],
        "Answers of upstreams to the requests for sessions that this program proxies, by HTTP status, which cannot be read under TLS; none if the upstream could not be reached or hung up.");
    STREAM_UPSTREAM_UPGRADE = Metric::histogram("stream_upstream_upgrade_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "Time from dialling the upstream to its 101.");

    SAMPLER_ENABLED = Metric::gauge("sampler_enabled", Unit::Flag, &[],
        "Whether processes are scanned while calls take long; 0 if that is turned off or not possible.");
    SAMPLER_SCANS = Metric::counter("sampler_scans_total", &[],
        "Scans of the processes of the node.");
    SAMPLER_SCAN = Metric::histogram("sampler_scan_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "CPU time of one scan; scans are made less often the longer they take.");
    SAMPLER_OBSERVATIONS = Metric::counter("sampler_observations_total", &[fixed("work", &["cni", "oci"])],
        "CNI plugins and OCI runtimes that were seen at work for a call.");
    RECEIVER_SPANS = Metric::counter("receiver_spans_total", &[fixed("result", &["attributed", "unknown", "dropped"])],
        "Spans of the runtime that were received: part of a call, part of none that is known, or lost.");
    RECEIVER_PASSED_ON = Metric::counter("receiver_passed_on_total", &[],
        "Spans of the runtime that were passed on and that the collector took.");

    RUNTIME_PHASE = Metric::histogram("runtime_phase_duration_seconds", Unit::Seconds, &[fixed("phase", &RUNTIME_PHASE_NAMES), STEP_OUTCOME], STEP_BUCKETS,
        "Steps of the built-in runtime's work; some are parts of others.");
    RUNTIME_CNI_PLUGIN = Metric::histogram("runtime_cni_plugin_duration_seconds", Unit::Seconds,
        &[fixed("plugin", PLUGINS), fixed("verb", PLUGIN_VERBS), STEP_OUTCOME], STEP_BUCKETS,
        "CNI plugins of the built-in runtime by their type, as far as it is well known.");
    RUNTIME_IMAGE_PULLS = Metric::counter("runtime_image_pulls_total", &[STEP_OUTCOME],
        "Pulls of the built-in runtime that ended.");
    RUNTIME_IMAGE_PULLS_IN_PROGRESS = Metric::gauge("runtime_image_pulls_in_progress", Unit::Count, &[],
        "Pulls of the built-in runtime that go on.");
    RUNTIME_IMAGE_PULL_BYTES = Metric::counter("runtime_image_pull_bytes_total", &[],
        "Bytes of layers that came from registries, those of pulls that failed included.");
    RUNTIME_IMAGES = Metric::gauge("runtime_images", Unit::Count, &[],
        "Images in the built-in runtime's store.");
    RUNTIME_IMAGE_BYTES = Metric::gauge("runtime_image_bytes", Unit::Bytes, &[],
        "Bytes of its unpacked layers; one that several images share counts once.");
    RUNTIME_SANDBOXES = Metric::gauge("runtime_sandboxes", Unit::Count, &[fixed("state", &["making", "ready", "stopped"])],
        "Sandboxes of the built-in runtime.");
    RUNTIME_CONTAINERS = Metric::gauge("runtime_containers", Unit::Count, &[fixed("state", &["making", "created", "starting", "running", "exited"])],
        "Containers of the built-in runtime.");
    RUNTIME_SHIMS = Metric::gauge("runtime_shims", Unit::Count, &[],
        "Shims that the built-in runtime is connected to.");
    RUNTIME_SHIMS_LOST = Metric::counter("runtime_shims_lost_total", &[fixed("how", &["died", "killed"])],
        "Shims that ended before their pod, and its containers with them: by themselves, or killed because they did not answer.");
    RUNTIME_LAYERS_INCOMPLETE = Metric::counter("runtime_writable_layers_incomplete_total", &[fixed("reason", &["time", "moved", "depth"])],
        "Times that a writable layer was larger than what could be counted of it: its use is at least what the statistics say.");
    RUNTIME_SHIM_MESSAGES_UNREADABLE = Metric::counter("runtime_shim_messages_unreadable_total",
        &[fixed("what", &["unknown_event", "event", "answer", "frame", "request"])],
        "Messages between the built-in runtime and a shim that could not be read, because one of them is newer or the message is damaged. The state of the shim is asked for instead.");
    RUNTIME_EVENTS_DROPPED = Metric::counter("runtime_events_dropped_total", &[],
        "Events of containers that a listener was too slow for.");
    RUNTIME_RECOVERY_PROBLEMS = Metric::gauge("runtime_recovery_problems", Unit::Count, &[],
        "Things an earlier run left that the built-in runtime could neither use nor take away when it started.");

    TELEMETRY_SPANS = Metric::counter("telemetry_spans_total", &[fixed("decision", &["exported", "failed", "dropped"])],
        "Finished spans by what became of them: taken by the collector, refused or unreachable, never sent.");
    TELEMETRY_DROPPED = Metric::counter("telemetry_dropped_total",
        &[fixed("signal", &["span", "log", "story", "observation", "passed_span", "dump"]), fixed("reason", &["queue_full", "export_failed", "shutdown", "rate_limited", "episodes_full", "journal_queue_full", "journal_failed", "journal_damaged", "write_failed"])],
        "What was lost, and why: spans, log lines, calls of the stories of pods and lines of their journal, observations, spans of the runtime that were to be passed on, dumps.");
    BUILD_INFO = Metric::gauge("build_info", Unit::Flag,
        &[one("version", "version of the program"), one("commit", "commit it was built from, or `unknown`")],
        "The program that runs; always 1.");
    CONFIG_HASH_INFO = Metric::gauge("config_hash_info", Unit::Flag, &[one("hash", "hash of the configuration in force")],
        "The configuration in force; always 1.");
    START_TIME = Metric::gauge("start_time_seconds", Unit::Seconds, &[],
        "When this program was ready to set up its telemetry.");
    TOKIO_WORKERS = Metric::gauge("tokio_workers", Unit::Count, &[],
        "Worker threads of the async runtimes.");
    TOKIO_ALIVE_TASKS = Metric::gauge("tokio_alive_tasks", Unit::Count, &[],
        "Tasks alive in the async runtimes.");
    TOKIO_GLOBAL_QUEUE_DEPTH = Metric::gauge("tokio_global_queue_depth", Unit::Count, &[],
        "Tasks that wait in the global queues of the async runtimes.");

    PROCESS_CPU = Metric::process(Kind::Counter, "process_cpu_seconds_total", Unit::Seconds,
        "User and system CPU time used.");
    PROCESS_RESIDENT_MEMORY = Metric::process(Kind::Gauge, "process_resident_memory_bytes", Unit::Bytes,
        "Resident memory.");
    PROCESS_VIRTUAL_MEMORY = Metric::process(Kind::Gauge, "process_virtual_memory_bytes", Unit::Bytes,
        "Virtual memory.");
    PROCESS_OPEN_FDS = Metric::process(Kind::Gauge, "process_open_fds", Unit::Count,
        "Open file descriptors.");
    PROCESS_MAX_FDS = Metric::process(Kind::Gauge, "process_max_fds", Unit::Count,
        "Soft limit of open file descriptors.");
    PROCESS_THREADS = Metric::process(Kind::Gauge, "process_threads", Unit::Count,
        "Threads of the process.");
    PROCESS_START_TIME = Metric::process(Kind::Gauge, "process_start_time_seconds", Unit::Seconds,
        "When the kernel started the process.");
}
