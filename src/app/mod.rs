//! The composition root: builds every part, starts them in order, and stops them in order.
//!
//! Two threads. The main thread carries the calls, alone: on one thread a call costs fewer wake-ups than on two, and
//! nothing else can get in its way. The side thread does all the rest: admin endpoint, probes, export of spans, signals
//! of the system. The log has a writer thread of its own.

mod build;
mod builtin;
pub mod load;
mod observer;
mod recording;
mod sessions;
mod sight;

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::build::{Built, build};
use self::builtin::Builtin;
use self::sessions::Relaying;
use crate::admin;
use crate::call::Peer;
use crate::config::{Config, Loaded};
use crate::lifecycle::otlp_receiver;
use crate::lifecycle::recorder::Dumps;
use crate::lifecycle::recorder::dumps::Reason;
use crate::proxy::listener::{self, Socket};
use crate::proxy::sessions::SessionProxy;
use crate::proxy::stack;
use crate::reload::Reloader;
use crate::streaming;
use crate::telemetry::Drops;
use crate::telemetry::logging::{self, LogError};
use crate::telemetry::otlp::Otlp;
use crate::telemetry::registry::RegistryError;
use crate::watchdog;

/// Permission bits of the admin socket.
const ROOT_ONLY: u32 = 0o600;

/// How long the last spans may take to leave.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long the aggregator may take to write down what has ended.
const LAST_STORIES: Duration = Duration::from_secs(2);

/// Why it did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The built-in runtime cannot be had.
    #[error("built-in runtime: {0}")]
    Builtin(#[from] builtin::BuiltinError),
    /// A runtime or a thread could not be had.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    /// The log cannot be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A metric is registered twice: a mistake in this program.
    #[error(transparent)]
    Metrics(#[from] RegistryError),
    /// There is no CRI socket.
    #[error(transparent)]
    Socket(#[from] listener::Error),
    /// There is no admin endpoint.
    #[error(transparent)]
    Admin(#[from] admin::BindError),
    /// There is no receiver of spans.
    #[error(transparent)]
    Receiver(#[from] otlp_receiver::BindError),
    /// There is no server for exec, attach and port-forward.
    #[error("streaming: {0}")]
    Streaming(#[from] streaming::BindError),
    /// The routing or a backend names what is not configured: a mistake in the checks of the configuration.
    #[error("{0}")]
    Backends(String),
    /// The listener broke.
    #[error("cannot serve: {0}")]
    Serve(#[source] io::Error),
}

impl Error {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match (self, self.kernel()?) {
            (_, io::ErrorKind::PermissionDenied) => Some("run criscope as root"),
            (Self::Admin(_), io::ErrorKind::AddrInUse) => Some(
                "another program, or another criscope, has it: choose with --admin or admin.listen, or turn it \"off\"",
            ),
            _ => None,
        }
    }

    /// Whether store and state are not for this daemon: it touched nothing, and starts when they are.
    pub fn is_refusal(&self) -> bool {
        let Self::Builtin(builtin::BuiltinError::Runtime(error)) = self else {
            return false;
        };
        matches!(error, crate::runtime::Error::Refused(_))
    }

    /// What the kernel said, if it was the kernel that refused.
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

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Whatever kept it from starting, or from going on.
pub fn serve(loaded: Loaded) -> Result<(), Error> {
    let config = loaded.config.clone();
    let main = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Start)?;
    let side = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("side")
        .enable_all()
        .build()
        .map_err(Error::Start)?;

    let drops = Arc::new(Drops::default());
    let otlp = {
        let _inside = side.enter();
        Otlp::start(&config.telemetry.otlp, Arc::clone(&drops))
    };
    // A proxy without traces is better than none.
    let (otlp, no_traces) = match otlp {
        Ok(otlp) => (otlp, None),
        Err(error) => (None, Some(error)),
    };
    let tracer = otlp.as_ref().map(Otlp::tracer);
    let (log, log_guard) = logging::install(&config.telemetry.log, tracer, &drops)?;
    if let Some(error) = no_traces {
        tracing::error!(event = "config.otlp", error.message = %error, "traces are off");
    }
    raise_descriptor_limit();

    // All addresses are taken before anything runs: a second instance fails here and disturbs nothing.
    let socket = Socket::open(&config.server)?;
    let admin_listener = config.admin.listen.map(admin::bind).transpose()?;
    let admin_socket = config.admin.socket.as_deref();
    let admin_socket = admin_socket.map(|path| Socket::bind(path, ROOT_ONLY, None));
    let admin_socket = admin_socket.transpose()?.map(Socket::into_parts);
    let receiver_listener = config
        .receiver
        .listen
        .map(otlp_receiver::bind)
        .transpose()?;

    let builtin = config
        .runtime
        .as_deref()
        .map(|runtime| Builtin::start(runtime, config.server.max_message_bytes))
        .transpose()?;

    let sink = otlp.as_ref().map(Otlp::sink);
    let mut parts = build(
        &config,
        sink.clone(),
        &drops,
        [main.handle(), side.handle()],
        builtin.as_ref().map(Builtin::service),
    )?;
    if let Some(builtin) = &builtin {
        builtin.measure(&parts.registry)?;
        parts.pulling = Some(builtin.pulls());
    }
    let stop = CancellationToken::new();
    let observers = sessions::observers(&parts, &config.streaming, &drops, sink)?;
    let mut serving = Vec::new();
    if let Some(builtin) = &builtin {
        serving.push(builtin.stream(&config.streaming, observers.clone(), stop.clone())?);
    }
    let mut relaying = Relaying::start(&parts, &config.streaming, observers, stop.clone())?;
    serving.extend(relaying.as_mut().and_then(Relaying::serving));
    let relay = relaying.as_ref().map(Relaying::relay).cloned();
    parts.start_background(&side, &stop);
    let told = CancellationToken::new();
    let aggregator = parts
        .aggregator
        .take()
        .map(|k| side.spawn(k.run(told.clone())));
    let sampler = parts.sampler(&config, &drops)?;
    side.spawn(stop.clone().run_until_cancelled_owned(sampler.run()));
    if let Some(listener) = receiver_listener {
        let receiver = parts.receiver(listener, &config, &drops)?;
        side.spawn(stop.clone().run_until_cancelled_owned(receiver.run()));
    }
    if let Some(listener) = admin_listener {
        let sources = parts.sources(log.clone());
        let served = admin::serve(listener, sources, config.admin.clone(), stop.clone());
        side.spawn(served);
    }
    // The file of the socket goes when we do.
    let _admin_file = admin_socket.map(|(listener, file)| {
        let sources = parts.sources(log.clone());
        side.spawn(admin::serve_socket(listener, sources, stop.clone()));
        file
    });
    let reloader = Reloader::new(
        loaded,
        log,
        Arc::clone(&parts.signals),
        parts.hash.clone(),
        Arc::clone(&parts.config),
    );
    side.spawn(watch_signals(
        reloader,
        Arc::clone(&parts.dumps),
        stop.clone(),
    ));
    let last_dump = recording::on_panic(&parts.dumps);

    let result = main.block_on(carry(&config, socket, &parts, relay, stop.clone()));

    // Last words: the calls and sessions that have ended are still to be told.
    stop.cancel();
    side.block_on(sessions::last_words(serving));
    if let Some(relaying) = relaying {
        relaying.stop();
    }
    told.cancel();
    if let Some(aggregator) = aggregator {
        let _ = side.block_on(async { timeout(LAST_STORIES, aggregator).await });
    }
    if let Some(otlp) = otlp {
        side.block_on(otlp.shutdown(LAST_SPANS));
    }
    if let Some(builtin) = builtin {
        builtin.stop();
    }
    side.shutdown_timeout(LAST_SPANS);
    drop(last_dump);
    tracing::info!(event = "stopped", "stopped");
    drop(log_guard);
    result
}

/// Carries calls until `stop`, then drains.
async fn carry(
    config: &Config,
    socket: Socket,
    built: &Built,
    relay: Option<SessionProxy>,
    stop: CancellationToken,
) -> Result<(), Error> {
    tokio::spawn(Arc::clone(&built.heartbeat).run());
    let activated = socket.is_activated();
    let (listener, _file) = socket.into_parts();
    tracing::info!(
        event = "started",
        service.version = env!("CARGO_PKG_VERSION"),
        server.address = %config.server.listen.display(),
        socket_activation = activated,
        "serving"
    );
    watchdog::notify(&[NotifyState::Ready]);

    let parts = built.connection_parts(config.server.max_message_bytes, relay);
    let make = move |peer: Arc<Peer>| stack::stack(&parts, peer);
    let connections = Arc::clone(&built.connections);
    let drain = config.server.drain_timeout;
    let cut = listener::serve(listener, make, connections, stop, drain)
        .await
        .map_err(Error::Serve)?;
    if cut > 0 {
        tracing::warn!(
            event = "drain.cut",
            connections = cut,
            "connections had calls in flight after the drain timeout and were cut"
        );
    }
    Ok(())
}

/// SIGTERM and SIGINT stop, SIGHUP reloads, SIGUSR2 has the flight recorder written down.
async fn watch_signals(
    mut reloader: Reloader,
    dumps: Arc<Dumps>,
    stop: CancellationToken,
) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut user2 = signal(SignalKind::user_defined2())?;
    loop {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = hangup.recv() => {
                reloader.reload();
                continue;
            }
            _ = user2.recv() => {
                dumps.ask(Reason::Signal, None);
                continue;
            }
        };
        tracing::info!(
            event = "stopping",
            signal = name,
            "stopping: calls in flight may end"
        );
        watchdog::notify(&[NotifyState::Stopping]);
        stop.cancel();
        return Ok(());
    }
}

/// Each connection takes two descriptors or three; the usual soft limit of 1024 is soon reached.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        tracing::warn!(error.message = %error, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refused_has_a_hint() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let socket = listener::Error::Io {
            action: "bind",
            path: "/run/a.sock".into(),
            source: refused(),
        };
        for error in [Error::Socket(socket), Error::Serve(refused())] {
            assert_eq!(error.hint(), Some("run criscope as root"), "{error}");
        }
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("bound");
        let error = Error::Admin(admin::bind(address).expect_err("taken"));
        assert!(
            error.hint().is_some_and(|hint| hint.contains("--admin")),
            "{error}"
        );
        let odd = Error::Serve(io::Error::from(io::ErrorKind::OutOfMemory));
        assert_eq!(odd.hint(), None);
    }
}
