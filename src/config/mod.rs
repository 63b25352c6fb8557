//! Typed configuration. Every value here has been validated; nothing downstream parses text.
//!
//! A file goes through `document` (TOML with positions), `shape` (only keys there are) and `assemble` (typed values,
//! flags on top, checks across values). All three read the one table in `schema`, and so do the list of what a reload
//! changes and the reference in `docs/CONFIG.md`.

mod assemble;
mod document;
mod error;
mod fingerprint;
mod load;
mod programs;
mod reference;
mod reload;
mod runtime;
mod schema;
mod shape;
mod streaming;
mod suggest;
mod value;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub use error::{ConfigError, ConfigErrors, Hint, Place, Problem};
pub use load::{Loaded, Overrides};
pub use programs::{HandlerPrograms, ProgramError};
pub use reference::{EXAMPLE, reference_markdown};
pub use reload::{ReloadDiff, Setting, reload_diff};
pub use runtime::{
    CgroupDriver, Cni, Handler, ImagePattern, Images, IpPreference, Loopback, Platform,
    PodDefaults, Runtime, SeccompProfile,
};
pub use schema::Reload;
pub use streaming::{Streaming, StreamingTls};
pub use value::ValueError;

pub(crate) use value::{lexical, show_endpoint};

use crate::cri::Method;
/// The settings in effect, for those who show them. A reload puts others in their place.
pub type InEffect = Arc<ArcSwap<Config>>;

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
    /// The stories of pods.
    pub story: Story,
    /// The look at processes.
    pub sampler: Sampler,
    /// The receiver of the runtime's spans: `None` turns it off.
    pub receiver: Option<SocketAddr>,
    /// The flight recorder.
    pub recorder: Recorder,
    /// Exec, attach and port-forward.
    pub streaming: Streaming,
    /// The built-in runtime: there if a backend is [`BackendKind::Builtin`], else `None`.
    pub runtime: Option<Box<Runtime>>,
}

/// `[story]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Directory of what survives a restart.
    pub state_dir: PathBuf,
    /// Episodes that are remembered.
    pub episodes: usize,
    /// Silence after which a start is over.
    pub quiet: Duration,
    /// Age at which a start that has not come to its end has failed.
    pub give_up: Duration,
}

/// `[sampler]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Whether processes are looked at.
    pub enabled: bool,
    /// Age of a call from which on they are.
    pub after: Duration,
    /// How often.
    pub period: Duration,
}

/// `[recorder]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorder {
    /// Calls that matter.
    pub calls: usize,
    /// Other calls.
    pub polls: usize,
    /// Dumps that are kept.
    pub dumps: usize,
    /// Largest dump, in bytes.
    pub max_dump_bytes: usize,
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
    /// Whether the live page and the `/debug` pages are served over TCP.
    pub debug: bool,
    /// Unix socket for root; `None` turns it off.
    pub socket: Option<PathBuf>,
    /// Names of this node that a request over TCP may be for, in lower case; one that begins with a dot stands for all
    /// names below it.
    pub allowed_hosts: Vec<String>,
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
    /// The built-in runtime. At most one backend is.
    Builtin,
}

impl Backend {
    /// The socket of the runtime behind it, if it is another.
    #[must_use]
    pub fn endpoint(&self) -> Option<&Path> {
        match &self.kind {
            BackendKind::Upstream { endpoint } => Some(endpoint),
            BackendKind::Builtin => None,
        }
    }
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

/// `[telemetry.sampling]`: which calls become spans. Calls that failed, were cancelled, stuck or slow always do.
/// Reloadable.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Share of mutating calls that are no part of an episode, 0 to 1.
    pub mutating: f64,
    /// Share of polls, 0 to 1.
    pub polls: f64,
    /// A call that took longer is kept.
    pub slow: Duration,
    /// Share of episodes, 0 to 1.
    pub episodes: f64,
    /// What is done if the caller has a trace and does not sample it.
    pub on_unsampled_parent: OnUnsampledParent,
    /// Methods with settings of their own, each once.
    pub methods: Vec<MethodSampling>,
}

/// What is done with a call whose caller has a trace and does not sample it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnsampledParent {
    /// It is treated as if there were no trace, and linked to the caller's span.
    Episode,
    /// It is not sampled either.
    Respect,
}

/// `[[telemetry.sampling.methods]]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodSampling {
    /// The method.
    pub method: Method,
    /// Share of its calls, 0 to 1, instead of that of their class.
    pub ratio: Option<f64>,
    /// A call that took longer is kept, instead of the common limit.
    pub slow: Option<Duration>,
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
        Self::with_one(Backend {
            name: assemble::UPSTREAM.to_owned(),
            kind: BackendKind::Upstream { endpoint },
        })
    }

    /// The defaults with the built-in runtime and nothing else set: `criscope serve`.
    pub fn builtin() -> Self {
        Self::with_one(Backend {
            name: assemble::BUILTIN.to_owned(),
            kind: BackendKind::Builtin,
        })
    }

    fn with_one(backend: Backend) -> Self {
        let mut nothing = document::Reader::empty();
        let name = backend.name.clone();
        let server = assemble::server(&mut nothing);
        let builtin = backend.kind == BackendKind::Builtin;
        Self {
            story: assemble::story(&mut nothing, &server.listen),
            sampler: assemble::sampler(&mut nothing),
            receiver: assemble::receiver(&mut nothing),
            recorder: assemble::recorder(&mut nothing),
            streaming: assemble::streaming(&mut nothing),
            admin: assemble::admin(&mut nothing, &server.listen),
            server,
            backends: vec![backend],
            routing: Routing {
                default: name.clone(),
                images: name,
                rules: Vec::new(),
            },
            telemetry: assemble::telemetry(&mut nothing),
            runtime: builtin.then(|| Box::new(assemble::runtime(&mut nothing))),
        }
    }
}
