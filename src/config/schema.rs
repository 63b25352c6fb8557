//! Every key there is, in one table: where it stands, what it takes, its default, whether SIGHUP reloads it, and what
//! it does. The reader, the check for unknown keys, the list of what a reload changes and `docs/CONFIG.md` are all made
//! from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::LogFormat;
use super::value::{
    Address, BackendName, Choice, CollectorUrl, Count, Directive, Handler, Kind, Mode, OwnerOf,
    Ratio, Size, SocketPath, Span, Switch,
};

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// On SIGHUP.
    Live,
    /// On the next start.
    Restart,
}

/// One key.
pub(crate) struct Key<K, D> {
    /// The table it stands in; `NAME` stands for any name, `[]` for an array of tables.
    pub(crate) section: &'static str,
    /// Its name in that table.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: K,
    /// What holds if it is not given.
    pub(crate) default: D,
    /// When a change takes effect.
    pub(crate) reload: Reload,
    /// What it does, for the reference.
    pub(crate) help: &'static str,
}

/// A value that holds if the key is not given.
pub(crate) struct Is<T>(pub(crate) fn() -> T);
/// What is done if the key is not given, in words.
pub(crate) struct Unset(pub(crate) &'static str);
/// The key must be given.
pub(crate) struct Required;

/// What holds if a key is not given, for the reference.
pub(crate) trait Fallback<K> {
    fn show(&self, kind: &K) -> String;
}

impl<K: Kind> Fallback<K> for Is<K::Value> {
    fn show(&self, kind: &K) -> String {
        format!("`{}`", kind.show(&(self.0)()))
    }
}

impl<K> Fallback<K> for Unset {
    fn show(&self, _: &K) -> String {
        self.0.to_owned()
    }
}

impl<K> Fallback<K> for Required {
    fn show(&self, _: &K) -> String {
        "required".to_owned()
    }
}

/// A key of any type.
pub(crate) trait Described: Sync {
    fn section(&self) -> &'static str;
    fn name(&self) -> &'static str;
    fn words(&self) -> String;
    fn fallback(&self) -> String;
    fn reload(&self) -> Reload;
    fn help(&self) -> &'static str;
}

impl<K: Kind + Sync, D: Fallback<K> + Sync> Described for Key<K, D> {
    fn section(&self) -> &'static str {
        self.section
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn words(&self) -> String {
        self.kind.words()
    }

    fn fallback(&self) -> String {
        self.default.show(&self.kind)
    }

    fn reload(&self) -> Reload {
        self.reload
    }

    fn help(&self) -> &'static str {
        self.help
    }
}

/// What a section is for, in the order of the reference.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("server", "The socket that the kubelet talks to."),
    (
        "admin",
        "The HTTP endpoint for metrics, health and the live pages.",
    ),
    (
        "backends.NAME",
        "A runtime that calls are passed on to. There must be at least one. NAME is a label in metrics and logs: 1 to 32 of `a-z`, `0-9` and `-`.",
    ),
    (
        "routing",
        "Which backend serves which call. Not needed with one backend.",
    ),
    (
        "routing.rules[]",
        "A rule by runtime handler, written `[[routing.rules]]`. The first that matches wins.",
    ),
    ("telemetry.log", "The log."),
    ("telemetry.otlp", "Where spans are sent."),
    (
        "telemetry.sampling",
        "Which calls become spans. Errors, cancelled calls and slow calls always do, and so does a call whose caller sampled it.",
    ),
    (
        "telemetry.identity",
        "How many objects are remembered to name the pod of a call that carries only an id. The oldest are forgotten first.",
    ),
];

/// Kinds of backend. `builtin` is known so that it can be refused with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindOfBackend {
    Upstream,
    Builtin,
}

macro_rules! keys {
    ($($name:ident: $kind:ty, $default:ty = $key:expr;)*) => {
        $(pub(crate) const $name: Key<$kind, $default> = $key;)*
        /// Every key, in the order of the reference.
        pub(crate) const ALL: &[&dyn Described] = &[$(&$name),*];
    };
}

keys! {
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
        help: "Address of the endpoint. It has no authentication and its pages show pod and image names, so think before you bind it elsewhere than to loopback.",
    };
    ADMIN_DEBUG: Switch, Is<bool> = Key {
        section: "admin",
        name: "debug",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Whether the pages under `/debug` are served.",
    };
    BACKEND_KIND: Choice<KindOfBackend>, Required = Key {
        section: "backends.NAME",
        name: "kind",
        kind: Choice(&[("upstream", KindOfBackend::Upstream), ("builtin", KindOfBackend::Builtin)]),
        default: Required,
        reload: Reload::Restart,
        help: "`upstream` is another CRI runtime behind a socket. `builtin` is kept for the built-in runtime, which this version does not have yet.",
    };
    BACKEND_ENDPOINT: SocketPath, Required = Key {
        section: "backends.NAME",
        name: "endpoint",
        kind: SocketPath,
        default: Required,
        reload: Reload::Restart,
        help: "The runtime's socket. It need not exist when criscope starts.",
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
        help: "Share of the calls that change something.",
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_key_stands_in_a_described_section_once() {
        let mut seen = HashSet::new();
        for key in ALL {
            assert!(
                SECTIONS
                    .iter()
                    .any(|(section, _)| *section == key.section()),
                "{}",
                key.section()
            );
            assert!(seen.insert((key.section(), key.name())), "{}", key.name());
            assert!(key.help().ends_with('.'), "{}", key.name());
        }
        for (section, _) in SECTIONS {
            assert!(ALL.iter().any(|key| key.section() == *section), "{section}");
        }
    }
}
