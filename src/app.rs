//! The composition root: builds every part, starts them in order, and stops them in order.
//!
//! Two threads. The main thread carries the calls, alone: on one thread a call costs fewer wake-ups than on two, and
//! nothing else can get in its way. The side thread does all the rest: admin endpoint, probes, export of spans, signals
//! of the system. The log has a writer thread of its own.

mod recording;
mod sight;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::config::{BackendKind, Config, InEffect, Loaded};
use crate::cri::call::Peer;
use crate::identity::Index;
use crate::instrument::InFlight;
use crate::instrument::layer::Shared;
use crate::instrument::signals::{Signals, watch_in_flight};
use crate::instrument::stuck::Watch;
use crate::listener::{self, Socket};
use crate::reload::Reloader;
use crate::router::rules::Rules;
use crate::router::{Router, Table};
use crate::stack::{self, Parts};
use crate::story::rates::Rates;
use crate::story::receiver;
use crate::story::recorder::dumps::Reason;
use crate::story::recorder::{Dumps, Recorder};
use crate::story::sampler::Sightings;
use crate::story::{Chronicle, Event, Keeper, Stories, Trace, keeper};
use crate::telemetry::handles::Connections;
use crate::telemetry::logging::{self, LogError};
use crate::telemetry::otlp::Otlp;
use crate::telemetry::process::{self, ConfigHash};
use crate::telemetry::registry::{Registry, RegistryError};
use crate::telemetry::{Accounts, catalogue};
use crate::upstream::{Forward, Upstream, probe, resync};
use crate::watchdog::{self, Heartbeat};
use crate::wire::CriService;

/// How long the last spans may take to leave.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long the keeper may take to write down what has ended.
const LAST_STORIES: Duration = Duration::from_secs(2);

/// Why it did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    Receiver(#[from] receiver::BindError),
    /// The listener broke.
    #[error("cannot serve: {0}")]
    Serve(#[source] io::Error),
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

    let accounts = Arc::new(Accounts::default());
    let otlp = {
        let _inside = side.enter();
        Otlp::start(&config.telemetry.otlp, Arc::clone(&accounts))
    };
    // A proxy without traces is better than none.
    let (otlp, no_traces) = match otlp {
        Ok(otlp) => (otlp, None),
        Err(error) => (None, Some(error)),
    };
    let tracer = otlp.as_ref().map(Otlp::tracer);
    let (log, log_guard) = logging::install(&config.telemetry.log, tracer, &accounts)?;
    if let Some(error) = no_traces {
        tracing::error!(event = "config.otlp", %error, "traces are off");
    }
    raise_descriptor_limit();

    // Both addresses are taken before anything runs: a second instance fails here and disturbs nothing.
    let socket = Socket::open(&config.server)?;
    let admin_listener = config.admin.listen.map(admin::bind).transpose()?;

    let receiver_listener = config.receiver.map(receiver::bind).transpose()?;

    let sink = otlp.as_ref().map(Otlp::sink);
    let mut parts = build(&config, sink, &accounts, [main.handle(), side.handle()])?;
    let stop = CancellationToken::new();
    parts.start_background(&side, &stop);
    let told = CancellationToken::new();
    let keeper = parts.keeper.take().map(|k| side.spawn(k.run(told.clone())));
    let sampler = parts.sampler(&config, &accounts)?;
    side.spawn(stop.clone().run_until_cancelled_owned(sampler.run()));
    if let Some(listener) = receiver_listener {
        let receiver = parts.receiver(listener, &config, &accounts)?;
        side.spawn(stop.clone().run_until_cancelled_owned(receiver.run()));
    }
    if let Some(listener) = admin_listener {
        let sources = parts.sources(log.clone());
        let served = admin::serve(listener, sources, config.admin.debug, stop.clone());
        side.spawn(served);
    }
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

    let result = main.block_on(carry(&config, socket, &parts, stop.clone()));

    // Last words: the calls that have ended are still to be told.
    stop.cancel();
    told.cancel();
    if let Some(keeper) = keeper {
        let _ = side.block_on(async { timeout(LAST_STORIES, keeper).await });
    }
    if let Some(otlp) = otlp {
        side.block_on(otlp.shutdown(LAST_SPANS));
    }
    side.shutdown_timeout(LAST_SPANS);
    drop(last_dump);
    tracing::info!(event = "stopped", "stopped");
    drop(log_guard);
    result
}

/// Everything that lives as long as the process.
struct Built {
    registry: Arc<Registry>,
    signals: Arc<Signals>,
    stories: Arc<Stories>,
    keeper: Option<Keeper>,
    recorder: Arc<Recorder>,
    sightings: Arc<Sightings>,
    feed: Sender<Event>,
    dumps: Arc<Dumps>,
    rates: Arc<Rates>,
    config: InEffect,
    hash: ConfigHash,
    in_flight: Arc<InFlight>,
    index: Arc<Index>,
    upstreams: Vec<Arc<Upstream>>,
    table: Arc<Table>,
    heartbeat: Arc<Heartbeat>,
    connections: Arc<Connections>,
    started: Instant,
}

fn build(
    config: &Config,
    sink: Option<crate::telemetry::otlp::SpanSink>,
    accounts: &Arc<Accounts>,
    runtimes: [&Handle; 2],
) -> Result<Built, Error> {
    let names = config.backends.iter().map(|b| b.name.clone());
    // Calls that go to every backend have a name of their own.
    let all = config
        .backends
        .iter()
        .map(|b| b.name.as_str())
        .collect::<Vec<_>>()
        .join("+");
    let handlers = config.routing.rules.iter();
    let registry = Registry::new(prometheus::Registry::new(), names.chain([all]))
        .with_handlers(handlers.map(|rule| rule.runtime_handler.as_str()));
    let hash = ConfigHash::default();
    hash.set(&config.fingerprint());
    process::register(
        &registry,
        hash.clone(),
        runtimes.map(Handle::clone).to_vec(),
    )?;
    accounts.register(&registry)?;

    let recorder = Arc::new(Recorder::new(config.recorder.calls, config.recorder.polls));
    let (chronicle, events) = Chronicle::new(Arc::clone(&recorder), Arc::clone(accounts));
    let feed = chronicle.feed();
    let signals = Arc::new(Signals::new(&registry, config, sink.clone(), chronicle)?);
    let in_flight = Arc::new(InFlight::default());
    watch_in_flight(&registry, Arc::clone(&in_flight) as _)?;
    let sightings = Arc::<Sightings>::default();
    let stories = Arc::new(Stories::new(&config.story, Arc::clone(&sightings)));
    let keeper = keeper::Parts {
        stories: Arc::clone(&stories),
        events,
        in_flight: Arc::new({
            let in_flight = Arc::clone(&in_flight);
            move || in_flight.calls()
        }),
        state_dir: Some(config.story.state_dir.clone()),
        accounts: Arc::clone(accounts),
        tell: sink.map(|sink| Arc::new(Trace::new(sink, signals.sampling())) as _),
        clock: Arc::new(SystemTime::now),
    };
    let keeper = Keeper::new(keeper, &registry)?;
    let dumps = recording::dumps(config, &recorder, &in_flight, &sightings, &hash, accounts);

    let limits = config.telemetry.identity;
    let index = Arc::new(Index::new(limits.sandboxes, limits.containers));
    let upstreams: Vec<_> = config
        .backends
        .iter()
        .map(|backend| {
            let BackendKind::Upstream { endpoint } = &backend.kind;
            Arc::new(Upstream::new(&backend.name, endpoint.clone()))
        })
        .collect();
    register_backends(&registry, &upstreams)?;
    register_identity(&registry, &index)?;
    let names = upstreams.iter().map(|u| Arc::clone(u.name())).collect();
    let table = Table::new(rules(config), Arc::clone(&index), names);
    Ok(Built {
        connections: Arc::new(Connections::new(&registry)?),
        registry: Arc::new(registry),
        rates: Arc::new(Rates::new(signals.durations())),
        signals,
        stories,
        keeper: Some(keeper),
        recorder,
        sightings,
        feed,
        dumps,
        config: Arc::new(ArcSwap::from_pointee(config.clone())),
        hash,
        in_flight,
        index,
        upstreams,
        table: Arc::new(table),
        heartbeat: Arc::default(),
        started: Instant::now(),
    })
}

/// The routing settings with backends as numbers.
fn rules(config: &Config) -> Rules {
    let number = |name: &str| {
        let found = config.backends.iter().position(|b| b.name == name);
        // The configuration was checked: every name is one of the backends.
        found.unwrap_or_default()
    };
    let mut rules = Rules {
        backends: config.backends.len(),
        default: number(&config.routing.default),
        images: number(&config.routing.images),
        handlers: Default::default(),
    };
    for rule in &config.routing.rules {
        let handler = rule.runtime_handler.as_str().into();
        // The first match wins.
        rules
            .handlers
            .entry(handler)
            .or_insert_with(|| number(&rule.backend));
    }
    rules
}

fn register_backends(
    registry: &Registry,
    upstreams: &[Arc<Upstream>],
) -> Result<(), RegistryError> {
    let backends = upstreams.to_vec();
    registry.computed(&catalogue::BACKEND_UP, move |out| {
        for upstream in &backends {
            out.put(
                &[upstream.name()],
                f64::from(u8::from(upstream.health().is_up())),
            );
        }
    })?;
    let backends = upstreams.to_vec();
    registry.computed(&catalogue::BACKEND_RECONNECTS, move |out| {
        for upstream in &backends {
            out.put(&[upstream.name()], upstream.health().reconnects() as f64);
        }
    })
}

fn register_identity(registry: &Registry, index: &Arc<Index>) -> Result<(), RegistryError> {
    let entries = Arc::clone(index);
    registry.computed(&catalogue::IDENTITY_ENTRIES, move |out| {
        let (sandboxes, containers) = entries.len();
        out.put(&["sandbox"], sandboxes as f64);
        out.put(&["container"], containers as f64);
    })?;
    let lookups = Arc::clone(index);
    registry.computed(&catalogue::IDENTITY_LOOKUPS, move |out| {
        let (hits, misses) = lookups.lookups();
        out.put(&["hit"], hits as f64);
        out.put(&["miss"], misses as f64);
    })
}

impl Built {
    fn start_background(&self, side: &Runtime, stop: &CancellationToken) {
        for upstream in &self.upstreams {
            let came_up = Arc::new(Notify::new());
            let filling = resync::run(
                Arc::clone(upstream),
                Arc::clone(&self.index),
                Arc::clone(&came_up),
            );
            side.spawn(stop.clone().run_until_cancelled_owned(filling));
            let watching = probe::run(Arc::clone(upstream), move || came_up.notify_one());
            side.spawn(stop.clone().run_until_cancelled_owned(watching));
        }
        let counting = Arc::clone(&self.rates).run();
        side.spawn(stop.clone().run_until_cancelled_owned(counting));
        side.spawn(watchdog::feed(Arc::clone(&self.heartbeat)));
        let watch = Watch {
            in_flight: Arc::clone(&self.in_flight),
            signals: Arc::clone(&self.signals),
            sightings: Arc::clone(&self.sightings),
            dumps: Arc::clone(&self.dumps),
        };
        side.spawn(stop.clone().run_until_cancelled_owned(watch.run()));
    }

    fn sources(&self, log: logging::LogHandle) -> admin::Sources {
        admin::Sources {
            registry: Arc::clone(&self.registry),
            in_flight: Arc::clone(&self.in_flight),
            upstreams: self.upstreams.clone(),
            stories: Arc::clone(&self.stories),
            recorder: Arc::clone(&self.recorder),
            rates: Arc::clone(&self.rates),
            dumps: Arc::clone(&self.dumps),
            sightings: Arc::clone(&self.sightings),
            config: Arc::clone(&self.config),
            heartbeat: Arc::clone(&self.heartbeat),
            log,
            started: self.started,
        }
    }

    /// What makes the request path of each new connection.
    fn connection_parts(&self, max_message_bytes: usize) -> Parts {
        Parts {
            shared: Shared {
                observer: Arc::clone(&self.signals) as _,
                in_flight: Arc::clone(&self.in_flight),
                seq: Arc::default(),
            },
            index: Arc::clone(&self.index),
            max_message_bytes,
        }
    }
}

/// Carries calls until `stop`, then drains.
async fn carry(
    config: &Config,
    socket: Socket,
    built: &Built,
    stop: CancellationToken,
) -> Result<(), Error> {
    tokio::spawn(Arc::clone(&built.heartbeat).run());
    let activated = socket.is_activated();
    let (listener, _file) = socket.into_parts();
    tracing::info!(
        event = "started",
        version = env!("CARGO_PKG_VERSION"),
        listen = %config.server.listen.display(),
        socket_activation = activated,
        "serving"
    );
    watchdog::notify(&[NotifyState::Ready]);

    let parts = built.connection_parts(config.server.max_message_bytes);
    let (table, upstreams) = (Arc::clone(&built.table), built.upstreams.clone());
    let make = move |peer: Arc<Peer>| {
        let backends = upstreams
            .iter()
            .map(|upstream| CriService::new(Forward::new(Arc::clone(upstream))))
            .collect();
        let router = Router::new(Arc::clone(&table), backends);
        stack::stack(&parts, peer, router)
    };
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
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
