//! Typed configuration. Every value here has been validated; nothing downstream parses text.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// All settings of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The CRI socket.
    pub server: Server,
    /// The HTTP endpoint for metrics, health and pages.
    pub admin: Admin,
    /// At least one, in the order of the file.
    pub backends: Vec<Backend>,
    /// Which backend serves which call.
    pub routing: Routing,
    /// Logs, traces and limits of what is remembered.
    pub telemetry: Telemetry,
}

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where the kubelet connects (`unix:///path`).
    pub listen: PathBuf,
    /// Permission bits of the socket file.
    pub mode: u32,
    /// Owner of the socket file, if it is to be changed.
    pub owner: Option<Owner>,
    /// Largest request message that is read whole to look at it; larger ones are passed on unseen.
    pub max_message_bytes: usize,
    /// How long calls in flight may take after SIGTERM.
    pub drain_timeout: Duration,
}

/// Owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// TCP address; `None` turns the endpoint off.
    pub listen: Option<SocketAddr>,
    /// Whether the `/debug` pages are served.
    pub debug: bool,
}

/// `[backends.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The name; a metric label.
    pub name: String,
    /// What serves it.
    pub kind: BackendKind,
}

/// What serves a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// Another CRI runtime behind a unix socket.
    Upstream {
        /// Path of its socket.
        endpoint: PathBuf,
    },
}

/// `[routing]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Backend of everything no rule names.
    pub default: String,
    /// Backend of images.
    pub images: String,
    /// First match wins.
    pub rules: Vec<Rule>,
}

/// `[[routing.rules]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Runtime handler of the sandbox.
    pub runtime_handler: String,
    /// Where it goes.
    pub backend: String,
}

/// `[telemetry]`
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// `[telemetry.log]`
    pub log: Log,
    /// `[telemetry.otlp]`
    pub otlp: Otlp,
    /// `[telemetry.sampling]`
    pub sampling: Sampling,
    /// `[telemetry.identity]`
    pub identity: IdentityLimits,
}

/// `[telemetry.log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line is written.
    pub format: LogFormat,
    /// An `EnvFilter` directive: `info`, `debug`, `info,criscope::rpc=debug`. Reloadable.
    pub level: String,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// `[telemetry.otlp]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// OTLP/gRPC endpoint (`http://host:4317`); `None`, and no `OTEL_EXPORTER_OTLP_ENDPOINT`, turns traces off.
    pub endpoint: Option<String>,
    /// Deadline of one export.
    pub timeout: Duration,
}

/// `[telemetry.sampling]`: which calls become spans. Errors, cancelled and slow calls always do. Reloadable.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Share of mutating calls, 0 to 1.
    pub mutating: f64,
    /// Share of polls, 0 to 1.
    pub polls: f64,
    /// A call that took longer is kept.
    pub slow: Duration,
}

/// `[telemetry.identity]`: how many objects the identity index remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityLimits {
    /// Sandboxes.
    pub sandboxes: usize,
    /// Containers.
    pub containers: usize,
}

impl Config {
    /// The defaults with one upstream and nothing else set: `criscope serve --upstream unix:///...`.
    pub fn with_upstream(endpoint: PathBuf) -> Self {
        let name = "upstream".to_owned();
        Self {
            server: Server {
                listen: PathBuf::from("/run/criscope/criscope.sock"),
                mode: 0o660,
                owner: None,
                max_message_bytes: 16 << 20,
                drain_timeout: Duration::from_secs(10),
            },
            admin: Admin {
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 9478))),
                debug: true,
            },
            backends: vec![Backend {
                name: name.clone(),
                kind: BackendKind::Upstream { endpoint },
            }],
            routing: Routing {
                default: name.clone(),
                images: name,
                rules: Vec::new(),
            },
            telemetry: Telemetry {
                log: Log {
                    format: LogFormat::Json,
                    level: "info".to_owned(),
                },
                otlp: Otlp {
                    endpoint: None,
                    timeout: Duration::from_secs(10),
                },
                sampling: Sampling {
                    mutating: 1.0,
                    polls: 0.0,
                    slow: Duration::from_secs(1),
                },
                identity: IdentityLimits {
                    sandboxes: 8192,
                    containers: 32768,
                },
            },
        }
    }
}
