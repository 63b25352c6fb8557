//! The composition root: builds every part, starts them in order, and stops them in order.
//!
//! The main thread runs the request path alone: on one thread a call costs fewer wake-ups than on two, and nothing else can
//! delay it. The side thread runs the rest: admin endpoint, probes, export of spans, signals. The built-in runtime, sessions
//! and the writers of files have threads of their own (`docs/ARCHITECTURE.md`, "Threads").

mod admin_endpoint;
mod build;
mod builtin;
mod calls;
pub mod captured;
mod containerd_socket;
pub mod export;
mod handover;
mod heap;
mod listed_pods;
pub mod load;
mod node;
mod observer;
mod recording;
mod runtime_events;
mod sessions;
mod shutdown;
mod signals;
mod supervise;
mod watchers;

use std::error::Error as StdError;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use self::builtin::unusable_image_files;
pub use crate::admin::remote::{WebConfigError, check as check_web_config};
pub use crate::runtime::classes::{ClassFileError, blockio, rdt};
pub use crate::runtime::oci::spec::hooks::Registry as Hooks;
pub use crate::runtime::oci::version::Version as OciVersion;

use self::admin_endpoint::AdminSockets;
use self::build::build;
use self::builtin::BuiltinRuntime;
use self::calls::serve_calls;
use self::handover::HandoverParts;
use self::sessions::SessionThread;
use self::shutdown::ShutdownStages;
use crate::admin;
use crate::config::{self, Config, LoadedConfig};
use crate::lifecycle::otlp_receiver;
use crate::proxy::listener::{self, BoundSocket};
use crate::reload::{ConfigReloader, RuntimeReload};
use crate::streaming;
use crate::telemetry::Drops;
use crate::telemetry::logging::{self, LogError, LogGuard, LogHandle};
use crate::telemetry::otlp::{self, OtlpExports};
use crate::telemetry::registry::RegistryError;
use crate::tls::{CertificateMetrics, TlsCertificate};

/// Permission bits of the admin socket and of the one that stands in for containerd's.
const ROOT_ONLY_MODE: u32 = 0o600;

/// How long the export of the last spans may take.
const LAST_SPANS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the aggregator may take to write the last lines of the journal.
const LAST_STORIES_TIMEOUT: Duration = Duration::from_secs(2);

/// Why `serve` failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The built-in runtime cannot start.
    #[error("built-in runtime: {0}")]
    Builtin(#[from] builtin::BuiltinRuntimeError),
    /// An async runtime or a thread could not be created.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    /// The log cannot be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A metric is registered twice: a bug.
    #[error(transparent)]
    Metrics(#[from] RegistryError),
    /// The CRI socket could not be bound.
    #[error(transparent)]
    Socket(#[from] listener::SocketBindError),
    /// The admin endpoint could not be bound.
    #[error(transparent)]
    Admin(#[from] admin::AdminBindError),
    /// The OTLP receiver could not be bound.
    #[error(transparent)]
    Receiver(#[from] otlp_receiver::BindError),
    /// The streaming server could not be started.
    #[error("streaming: {0}")]
    Streaming(#[from] streaming::StreamingBindError),
    /// Routing or a backend refer to unknown names: a bug in the checks of the configuration.
    #[error("{0}")]
    Backends(String),
    /// Accepting connections failed.
    #[error("cannot serve: {0}")]
    Serve(#[source] io::Error),
}

impl ServeError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match (self, self.kernel()?) {
            (_, io::ErrorKind::PermissionDenied) => Some("run criscope as root"),
            (Self::Admin(_), io::ErrorKind::AddrInUse) => Some(
                "the address is in use by another program or another criscope: choose one with --admin, admin.listen or metrics.listen, or \"off\"",
            ),
            _ => None,
        }
    }

    /// Returns whether store or state belong to another daemon: this one changed nothing, and starts once that is resolved.
    pub fn is_refusal(&self) -> bool {
        let Self::Builtin(builtin::BuiltinRuntimeError::Runtime(error)) = self else {
            return false;
        };
        matches!(error, crate::runtime::Error::Refused(_))
    }

    /// The error of the system call, if it was one.
    fn kernel(&self) -> Option<io::ErrorKind> {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return Some(error.kind());
            }
            cause = error.source();
        }
        None
    }
}

/// The threads of the process.
struct ProcessThreads {
    main: Runtime,
    side: Runtime,
}

impl ProcessThreads {
    fn start() -> Result<Self, ServeError> {
        let main = Builder::new_current_thread().enable_all().build();
        let side = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("side")
            .enable_all()
            .build();
        Ok(Self {
            main: main.map_err(ServeError::Start)?,
            side: side.map_err(ServeError::Start)?,
        })
    }
}

/// The exporter, if it could be started, and the log.
struct TelemetryOutputs {
    otlp: Option<OtlpExports>,
    log: LogHandle,
    /// Writes the last lines when it is dropped.
    log_guard: LogGuard,
}

impl TelemetryOutputs {
    fn start(
        config: &config::TelemetrySettings,
        side: &Runtime,
        drops: &Arc<Drops>,
    ) -> Result<Self, ServeError> {
        let otlp = {
            let _inside = side.enter();
            OtlpExports::start(&config.otlp, Arc::clone(drops))
        };
        // Failed export of traces must not stop the proxy.
        let (otlp, no_export) = match otlp {
            Ok(otlp) => (Some(otlp), None),
            Err(error) => (None, Some(error)),
        };
        let exports = logging::LogExports {
            tracer: otlp.as_ref().and_then(OtlpExports::tracer),
            records: otlp.as_ref().and_then(OtlpExports::records),
        };
        let (log, log_guard) = logging::install(&config.log, exports, drops)?;
        if let Some(error) = no_export {
            tracing::error!(event = "config.otlp", error.message = %error, "nothing is exported over OTLP");
        }
        otlp::report_ignored_variables();
        Ok(Self {
            otlp,
            log,
            log_guard,
        })
    }
}

/// All sockets of the daemon.
struct DaemonSockets {
    cri: BoundSocket,
    /// The socket in place of containerd's.
    containerd: Option<BoundSocket>,
    admin: AdminSockets,
    receiver: Option<TcpListener>,
}

impl DaemonSockets {
    fn bind(config: &Config) -> Result<Self, ServeError> {
        let cri = BoundSocket::open(&config.server)?;
        let containerd = config.containerd_socket();
        let containerd = containerd.map(|path| BoundSocket::bind(path, ROOT_ONLY_MODE, None));
        let receiver = config.receiver.listen;
        Ok(Self {
            cri,
            containerd: containerd.transpose()?,
            admin: AdminSockets::bind(config)?,
            receiver: receiver.map(otlp_receiver::bind).transpose()?,
        })
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Whatever prevented the start or ended the service.
pub fn serve(loaded: LoadedConfig) -> Result<(), ServeError> {
    heap::give_memory_back();
    let config = loaded.config.clone();
    let ProcessThreads { main, side } = ProcessThreads::start()?;
    let drops = Arc::new(Drops::default());
    let TelemetryOutputs {
        mut otlp,
        log,
        log_guard,
    } = TelemetryOutputs::start(&config.telemetry, &side, &drops)?;
    raise_descriptor_limit();

    // All addresses are bound before anything starts: a second instance fails here and disturbs nothing.
    let sockets = DaemonSockets::bind(&config)?;
    let builtin = { config.runtime.as_deref() }
        .map(|runtime| BuiltinRuntime::start(runtime, config.server.max_message_bytes))
        .transpose()?;

    let sink = otlp.as_ref().and_then(OtlpExports::sink);
    let mut parts = build(
        &config,
        sink.clone(),
        &drops,
        [main.handle(), side.handle()],
        builtin.as_ref().map(BuiltinRuntime::service),
    )?;
    if let Some(builtin) = &builtin {
        builtin.measure(&parts.registry)?;
        builtin.start_plugins();
        parts.pulling = Some(builtin.pulls());
    }
    if let Some(otlp) = &mut otlp {
        let _inside = side.enter();
        otlp.push_metrics(&parts.registry);
    }
    let stages = ShutdownStages::default();
    let stop = stages.release.clone();
    let observers = sessions::observers(&parts, &config.streaming, &drops, sink)?;
    let certificates = CertificateMetrics::register(&parts.registry)?;
    if let Some((cert, key)) = otlp::client_certificate(&config.telemetry.otlp) {
        let pair = Arc::new(TlsCertificate::for_client("otlp", &cert, &key));
        certificates.measure(Arc::clone(&pair));
        side.spawn(pair.watch(stages.calls_ended.clone()));
    }
    let mut serving = Vec::new();
    if let Some(builtin) = &builtin {
        let (settings, observers) = (&config.streaming, observers.clone());
        builtin.watch_registry_certificates(&certificates, stop.clone());
        let cut = stages.cut_sessions.clone();
        serving.push(builtin.stream(settings, observers, &certificates, cut)?);
        let events = parts.runtime_events(builtin, &drops);
        side.spawn(stop.clone().run_until_cancelled_owned(events));
    }
    let mut session_thread = SessionThread::start(&parts, &config.streaming, observers, &stages)?;
    serving.extend(session_thread.as_mut().and_then(SessionThread::serving));
    let proxy = session_thread.as_ref().map(SessionThread::proxy).cloned();
    parts.start_background(&side, &stages.drain);
    let trimming = heap::trim_when_grown();
    side.spawn(stop.clone().run_until_cancelled_owned(trimming));
    let end_aggregator = CancellationToken::new();
    let aggregator = { parts.aggregator.take() }
        .map(|aggregator| aggregator.with_handover(stages.handover.clone()))
        .map(|aggregator| side.spawn(aggregator.run(end_aggregator.clone())));
    let receiver = parts.start_watchers(&config, sockets.receiver, &drops, &side, &stages)?;
    let admin = sockets
        .admin
        .serve(&parts, &config, &log, certificates, &side, &stop);
    let reloader = ConfigReloader::new(
        loaded,
        log,
        Arc::clone(&parts.signals),
        parts.hash.clone(),
        Arc::clone(&parts.config),
        RuntimeReload(builtin.as_ref().map(BuiltinRuntime::reconfigure)),
    );
    side.spawn(signals::reload(reloader, stages.release.clone()));
    let handover = HandoverParts {
        stages: stages.clone(),
        is_possible: handover::is_possible(&sockets.cri, builtin.is_some()),
        server: config.server.clone(),
        state_dir: config.story.state_dir.clone(),
        heartbeat: Arc::clone(&parts.heartbeat),
        in_flight: Arc::clone(&parts.in_flight),
        admin,
        receiver,
    };
    side.spawn(signals::watch(Arc::clone(&parts.dumps), handover));
    let last_dump = recording::on_panic(&parts.dumps);

    let containerd = builtin.as_ref().map(BuiltinRuntime::containerd);
    let second = sockets.containerd.zip(containerd);
    let calls = serve_calls(&config, sockets.cri, second, &parts, proxy, &stages);
    let result = main.block_on(calls);

    stages.end_calls();
    side.block_on(sessions::wait_for_sessions(serving, &stages.cut_sessions));
    // The last calls and sessions have ended; they are still to be reported.
    if let Some(session_thread) = session_thread {
        session_thread.stop();
    }
    end_aggregator.cancel();
    if let Some(aggregator) = aggregator {
        let _ = side.block_on(async { timeout(LAST_STORIES_TIMEOUT, aggregator).await });
    }
    if let Some(otlp) = otlp {
        side.block_on(otlp.shutdown(LAST_SPANS_TIMEOUT));
    }
    if let Some(builtin) = builtin {
        builtin.stop();
    }
    side.shutdown_timeout(LAST_SPANS_TIMEOUT);
    drop(last_dump);
    tracing::info!(event = "stopped", "stopped");
    drop(log_guard);
    result
}

/// Each connection takes two or three descriptors; the usual soft limit of 1024 is soon reached.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        } else {
            Ok(())
        }
    });
    if let Err(error) = raised {
        tracing::warn!(error.message = %error, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_system_calls_have_a_hint() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let socket = listener::SocketBindError::Io {
            action: "bind",
            path: "/run/a.sock".into(),
            source: refused(),
        };
        for error in [ServeError::Socket(socket), ServeError::Serve(refused())] {
            assert_eq!(error.hint(), Some("run criscope as root"), "{error}");
        }
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("bound");
        let error = ServeError::Admin(admin::bind(address).expect_err("taken"));
        assert!(
            error.hint().is_some_and(|hint| hint.contains("--admin")),
            "{error}"
        );
        let odd = ServeError::Serve(io::Error::from(io::ErrorKind::OutOfMemory));
        assert_eq!(odd.hint(), None);
    }
}
