//! The table itself. See [`super`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::super::value::{
    Address, BackendName, Choice, CollectorUrl, Count, DirPath, Directive, Handler, HostName, List,
    MaybeSocket, MethodName, Mode, OwnerOf, Ratio, Size, SocketPath, Span, Switch,
};
use super::super::{LogFormat, OnUnsampledParent};
use super::{Described, Is, Key, KindOfBackend, Reload, Required, Unset, table};

table! {
    LISTEN: SocketPath, Is<PathBuf> = Key {
        section: "server",
        name: "listen",
        kind: SocketPath,
        default: Is(|| PathBuf::from("/run/criscope/criscope.sock")),
        reload: Reload::Restart,
        help: "The unix socket to listen on; at most 107 bytes of path. With systemd socket activation the socket that systemd hands over is used.",
    };
    MODE: Mode, Is<u32> = Key {
        section: "server",
        name: "mode",
        kind: Mode,
        default: Is(|| 0o660),
        reload: Reload::Restart,
        help: "Permission bits of the socket. Whoever may write to it is root on this node. With socket activation the socket unit says.",
    };
    OWNER: OwnerOf, Unset = Key {
        section: "server",
        name: "owner",
        kind: OwnerOf,
        default: Unset("not changed"),
        reload: Reload::Restart,
        help: "Owner of the socket. Names are looked up on this machine. With socket activation the socket unit says.",
    };
    MAX_MESSAGE_BYTES: Size, Is<usize> = Key {
        section: "server",
        name: "max_message_bytes",
        kind: Size { least: 64 << 10, most: 1 << 30 },
        default: Is(|| 16 << 20),
        reload: Reload::Restart,
        help: "The largest request that is read whole to see what it is about. A larger one is passed on all the same, without its pod's name.",
    };
    DRAIN_TIMEOUT: Span, Is<Duration> = Key {
        section: "server",
        name: "drain_timeout",
        kind: Span { least: Duration::ZERO, most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(10)),
        reload: Reload::Restart,
        help: "How long calls in flight may take to end after SIGTERM. Keep it below the unit's `TimeoutStopSec`.",
    };
    ADMIN_LISTEN: Address, Is<Option<SocketAddr>> = Key {
        section: "admin",
        name: "listen",
        kind: Address,
        default: Is(|| Some(SocketAddr::from(([127, 0, 0, 1], 9478)))),
        reload: Reload::Restart,
        help: "Address of the endpoint, which only reads. It has no authentication and its pages show pod and image names to every user of the node, so think before you bind it elsewhere than to loopback.",
    };
    ADMIN_DEBUG: Switch, Is<bool> = Key {
        section: "admin",
        name: "debug",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Whether the live page and the pages under `/debug`, which show names of pods, images and commands, are served at `admin.listen` too. The socket always has them.",
    };
    ADMIN_SOCKET: MaybeSocket, Unset = Key {
        section: "admin",
        name: "socket",
        kind: MaybeSocket,
        default: Unset("the path of `server.listen` with the ending `.admin.sock`"),
        reload: Reload::Restart,
        help: "The unix socket of the same endpoint for root alone (mode 0600, and the kernel is asked who connects). Only there the log level can be changed. `criscope pods`, `explain` and `calls` use it if they may.",
    };
    ADMIN_ALLOWED_HOSTS: List<HostName>, Is<Vec<String>> = Key {
        section: "admin",
        name: "allowed_hosts",
        kind: List { of: HostName, words: "an array of host names" },
        default: Is(Vec::new),
        reload: Reload::Restart,
        help: "Names, beside IP addresses, `localhost` and the node's own host name, by which clients such as Prometheus reach `admin.listen`; `.example.com` allows every name below it. A request for another host is refused with 421, so that no web page can read the endpoint through DNS rebinding.",
    };
    BACKEND_KIND: Choice<KindOfBackend>, Required = Key {
        section: "backends.NAME",
        name: "kind",
        kind: Choice(&[("upstream", KindOfBackend::Upstream), ("builtin", KindOfBackend::Builtin)]),
        default: Required,
        reload: Reload::Restart,
        help: "`upstream` is another CRI runtime behind a socket. `builtin` is the built-in runtime, which at most one backend is; `[runtime]` has its settings.",
    };
    BACKEND_ENDPOINT: SocketPath, Unset = Key {
        section: "backends.NAME",
        name: "endpoint",
        kind: SocketPath,
        default: Unset("required for an upstream"),
        reload: Reload::Restart,
        help: "The runtime's socket. It need not exist when criscope starts. The built-in runtime has none.",
    };
    ROUTING_DEFAULT: BackendName, Unset = Key {
        section: "routing",
        name: "default",
        kind: BackendName,
        default: Unset("the only backend; required if there are several"),
        reload: Reload::Restart,
        help: "The backend of every call that no rule sends elsewhere.",
    };
    ROUTING_IMAGES: BackendName, Unset = Key {
        section: "routing",
        name: "images",
        kind: BackendName,
        default: Unset("that of `routing.default`"),
        reload: Reload::Restart,
        help: "The backend of the calls of the image service.",
    };
    RULE_HANDLER: Handler, Required = Key {
        section: "routing.rules[]",
        name: "runtime_handler",
        kind: Handler,
        default: Required,
        reload: Reload::Restart,
        help: "The handler that the pod's RuntimeClass names.",
    };
    RULE_BACKEND: BackendName, Required = Key {
        section: "routing.rules[]",
        name: "backend",
        kind: BackendName,
        default: Required,
        reload: Reload::Restart,
        help: "The backend of its pods.",
    };
    LOG_FORMAT: Choice<LogFormat>, Is<LogFormat> = Key {
        section: "telemetry.log",
        name: "format",
        kind: Choice(&[("json", LogFormat::Json), ("text", LogFormat::Text)]),
        default: Is(|| LogFormat::Json),
        reload: Reload::Restart,
        help: "`json` writes one object a line, `text` lines for people.",
    };
    LOG_LEVEL: Directive, Is<String> = Key {
        section: "telemetry.log",
        name: "level",
        kind: Directive,
        default: Is(|| "info".to_owned()),
        reload: Reload::Live,
        help: "What is logged: calls that change something at `info`, polls at `debug`.",
    };
    OTLP_ENDPOINT: CollectorUrl, Unset = Key {
        section: "telemetry.otlp",
        name: "endpoint",
        kind: CollectorUrl,
        default: Unset("`OTEL_EXPORTER_OTLP_ENDPOINT` of the environment; without either no spans are sent"),
        reload: Reload::Restart,
        help: "An OTLP/gRPC collector, without TLS.",
    };
    OTLP_TIMEOUT: Span, Is<Duration> = Key {
        section: "telemetry.otlp",
        name: "timeout",
        kind: Span { least: Duration::from_millis(100), most: Duration::from_secs(300) },
        default: Is(|| Duration::from_secs(10)),
        reload: Reload::Restart,
        help: "Deadline of one export. No call ever waits for one.",
    };
    SAMPLE_MUTATING: Ratio, Is<f64> = Key {
        section: "telemetry.sampling",
        name: "mutating",
        kind: Ratio,
        default: Is(|| 1.0),
        reload: Reload::Live,
        help: "Share of the calls that change something and are no part of an episode.",
    };
    SAMPLE_POLLS: Ratio, Is<f64> = Key {
        section: "telemetry.sampling",
        name: "polls",
        kind: Ratio,
        default: Is(|| 0.0),
        reload: Reload::Live,
        help: "Share of the calls that only ask. A kubelet makes several a second.",
    };
    SAMPLE_SLOW: Span, Is<Duration> = Key {
        section: "telemetry.sampling",
        name: "slow",
        kind: Span { least: Duration::from_millis(1), most: Duration::from_secs(3600) },
        default: Is(|| Duration::from_secs(1)),
        reload: Reload::Live,
        help: "A call that took longer than this is slow.",
    };
    SAMPLE_EPISODES: Ratio, Is<f64> = Key {
        section: "telemetry.sampling",
        name: "episodes",
        kind: Ratio,
        default: Is(|| 1.0),
        reload: Reload::Live,
        help: "Share of the starts, restarts and stops of pods. Each is chosen or not as a whole, with all calls that make it.",
    };
    ON_UNSAMPLED_PARENT: Choice<OnUnsampledParent>, Is<OnUnsampledParent> = Key {
        section: "telemetry.sampling",
        name: "on_unsampled_parent",
        kind: Choice(&[("episode", OnUnsampledParent::Episode), ("respect", OnUnsampledParent::Respect)]),
        default: Is(|| OnUnsampledParent::Episode),
        reload: Reload::Live,
        help: "What is done with a call whose caller has a trace and does not sample it, as a kubelet with tracing on and no sampling rate does with every call. `episode` decides as if it had none, and links to the caller's span; `respect` exports it only if it failed, was cancelled, stuck or slow.",
    };
    METHOD_NAME: MethodName, Required = Key {
        section: "telemetry.sampling.methods[]",
        name: "method",
        kind: MethodName,
        default: Required,
        reload: Reload::Live,
        help: "The call.",
    };
    METHOD_RATIO: Ratio, Unset = Key {
        section: "telemetry.sampling.methods[]",
        name: "ratio",
        kind: Ratio,
        default: Unset("`mutating` or `polls`"),
        reload: Reload::Live,
        help: "Share of these calls. Calls of an episode that is chosen become spans whatever it says.",
    };
    METHOD_SLOW: Span, Unset = Key {
        section: "telemetry.sampling.methods[]",
        name: "slow",
        kind: Span { least: Duration::from_millis(1), most: Duration::from_secs(3600) },
        default: Unset("that of `telemetry.sampling`; a call that stays open for as long as its caller likes is never slow"),
        reload: Reload::Live,
        help: "One that took longer than this is slow.",
    };
    STATE_DIR: DirPath, Unset = Key {
        section: "story",
        name: "state_dir",
        kind: DirPath,
        default: Unset("the path of `server.listen` with the ending `.state`"),
        reload: Reload::Restart,
        help: "The directory of what survives a restart: the journal of the stories, and dumps of the recorder. If it cannot be written, that is logged and stories begin anew with each start.",
    };
    STORY_EPISODES: Count, Is<usize> = Key {
        section: "story",
        name: "episodes",
        kind: Count { least: 16, most: 1 << 16 },
        default: Is(|| 512),
        reload: Reload::Restart,
        help: "How many starts, restarts and stops are remembered. The oldest are forgotten first.",
    };
    STORY_QUIET: Span, Is<Duration> = Key {
        section: "story",
        name: "quiet",
        kind: Span { least: Duration::from_millis(100), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(10)),
        reload: Reload::Restart,
        help: "How long after its last call a start counts as over. The CRI does not say how many containers a pod has, so the end of a start can only be told by the silence after it, which is not counted.",
    };
    STORY_GIVE_UP: Span, Is<Duration> = Key {
        section: "story",
        name: "give_up",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(86400) },
        default: Is(|| Duration::from_secs(1800)),
        reload: Reload::Restart,
        help: "How long after its begin a start that has not come to its end counts as failed.",
    };
    SAMPLER_ENABLED: Switch, Is<bool> = Key {
        section: "sampler",
        name: "enabled",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Whether processes are looked at. It costs nothing while calls are fast, and switches itself off where it may not look.",
    };
    SAMPLER_AFTER: Span, Is<Duration> = Key {
        section: "sampler",
        name: "after",
        kind: Span { least: Duration::from_millis(10), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_millis(500)),
        reload: Reload::Restart,
        help: "How long a call that changes something must have taken before processes are looked at for it.",
    };
    SAMPLER_PERIOD: Span, Is<Duration> = Key {
        section: "sampler",
        name: "period",
        kind: Span { least: Duration::from_millis(10), most: Duration::from_secs(60) },
        default: Is(|| Duration::from_millis(100)),
        reload: Reload::Restart,
        help: "How often. A node with many processes is looked at less often, so that it never takes more than a twentieth of a core.",
    };
    RECEIVER_LISTEN: Address, Is<Option<SocketAddr>> = Key {
        section: "receiver",
        name: "listen",
        kind: Address,
        default: Is(|| None),
        reload: Reload::Restart,
        help: "Address to take OTLP/gRPC on.",
    };
    RECORDER_CALLS: Count, Is<usize> = Key {
        section: "recorder",
        name: "calls",
        kind: Count { least: 1, most: 1 << 20 },
        default: Is(|| 2048),
        reload: Reload::Restart,
        help: "Calls that changed something, failed or were slow.",
    };
    RECORDER_POLLS: Count, Is<usize> = Key {
        section: "recorder",
        name: "polls",
        kind: Count { least: 1, most: 1 << 20 },
        default: Is(|| 1024),
        reload: Reload::Restart,
        help: "Other calls; a kubelet makes several a second.",
    };
    RECORDER_DUMPS: Count, Is<usize> = Key {
        section: "recorder",
        name: "dumps",
        kind: Count { least: 0, most: 1000 },
        default: Is(|| 8),
        reload: Reload::Restart,
        help: "How many dumps are kept in `story.state_dir`; the oldest makes room. A dump is written on SIGUSR2, on a panic, and when a call is stuck. 0 writes none.",
    };
    RECORDER_DUMP_BYTES: Size, Is<usize> = Key {
        section: "recorder",
        name: "max_dump_bytes",
        kind: Size { least: 64 << 10, most: 1 << 30 },
        default: Is(|| 8 << 20),
        reload: Reload::Restart,
        help: "Largest dump; older calls are left out of one that would be larger.",
    };
    IDENTITY_SANDBOXES: Count, Is<usize> = Key {
        section: "telemetry.identity",
        name: "sandboxes",
        kind: Count { least: 1, most: 1 << 20 },
        default: Is(|| 8192),
        reload: Reload::Restart,
        help: "Pod sandboxes.",
    };
    IDENTITY_CONTAINERS: Count, Is<usize> = Key {
        section: "telemetry.identity",
        name: "containers",
        kind: Count { least: 1, most: 1 << 20 },
        default: Is(|| 32768),
        reload: Reload::Restart,
        help: "Containers.",
    };
}
