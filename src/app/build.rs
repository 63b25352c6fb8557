//! Builds every part from the configuration, without starting any.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_util::sync::CancellationToken;

use super::listed_pods::ListedPodsWriter;
use super::node::NodeStateReader;
use super::observer::LifecycleObserver;
use super::supervise::supervised;
use super::{ServeError, recording};
use crate::admin;
use crate::call::Call;
use crate::config::{self, Config, RoutingSettings};
use crate::cri::secrets::Secrets;
use crate::grpc::CriService;
use crate::lifecycle::capture::requests::RequestRecording;
use crate::lifecycle::containerd::PullProgress;
use crate::lifecycle::node::BypassFiles;
use crate::lifecycle::process_scanner::Observations;
use crate::lifecycle::rates::CallRates;
use crate::lifecycle::recorder::{DumpWriter, FlightRecorder};
use crate::lifecycle::{Aggregator, AggregatorEvent, CallSink, EpisodeTracer, Stories, aggregator};
use crate::proxy::backend::resync::{self, ResyncParts};
use crate::proxy::backend::{self, Backend, probe};
use crate::proxy::faults::ActiveFaults;
use crate::proxy::inspect::Inspector;
use crate::proxy::instrument::signals::{CallSignals, SignalSettings, watch_in_flight};
use crate::proxy::instrument::stuck::StuckCallWatch;
use crate::proxy::instrument::{CallObserver, InFlightCalls, InstrumentState};
use crate::proxy::listener::metrics::ConnectionMetrics;
use crate::proxy::pod_index::{self, PodIndex};
use crate::proxy::router::RoutingTable;
use crate::proxy::router::rules::{BackendIndex, RoutingRules};
use crate::proxy::sessions::SessionProxy;
use crate::proxy::stack::StackParts;
use crate::settings::EffectiveSettings;
use crate::telemetry::Drops;
use crate::telemetry::logging;
use crate::telemetry::otlp::SpanSink;
use crate::telemetry::process::{self, ConfigHash};
use crate::telemetry::registry::Registry;
use crate::watchdog::Heartbeat;

/// Parts with the lifetime of the process.
pub(super) struct ProcessParts {
    pub(super) registry: Arc<Registry>,
    pub(super) signals: Arc<CallSignals>,
    pub(super) stories: Arc<Stories>,
    pub(super) aggregator: Option<Aggregator>,
    pub(super) recorder: Arc<FlightRecorder>,
    pub(super) observations: Arc<Observations>,
    pub(super) feed: Sender<AggregatorEvent>,
    pub(super) dumps: Arc<DumpWriter>,
    pub(super) requests: Arc<RequestRecording>,
    pub(super) rates: Arc<CallRates>,
    pub(super) config: Arc<ArcSwap<EffectiveSettings>>,
    pub(super) routing: Arc<RoutingSettings>,
    pub(super) hash: ConfigHash,
    pub(super) in_flight: Arc<InFlightCalls>,
    observer: Arc<dyn CallObserver>,
    pub(super) index: Arc<PodIndex>,
    pub(super) backends: Vec<Arc<Backend>>,
    pub(super) table: Arc<RoutingTable>,
    pub(super) faults: Option<Arc<ActiveFaults>>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) connections: Arc<ConnectionMetrics>,
    /// The image pulls of the built-in runtime.
    pub(super) pulling: Option<admin::PullProgressReader>,
    /// The image pulls of containerd.
    pub(super) pull_progress: Arc<PullProgress>,
    pub(super) started: Instant,
}

pub(super) fn build(
    config: &Config,
    sink: Option<SpanSink>,
    drops: &Arc<Drops>,
    runtimes: [&Handle; 2],
    builtin: Option<&CriService>,
) -> Result<ProcessParts, ServeError> {
    let registry = registry(config);
    let hash = ConfigHash::default();
    hash.set(&config.fingerprint());
    process::register(
        &registry,
        hash.clone(),
        runtimes.map(Handle::clone).to_vec(),
    )?;
    drops.register(&registry)?;

    let backends = config.backends.iter();
    let backends: Vec<_> = backends
        .map(|settings| backend(settings, builtin).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let connections = Arc::new(ConnectionMetrics::new(&registry)?);
    let in_flight = Arc::new(InFlightCalls::default());
    watch_in_flight(&registry, &in_flight)?;
    let records = RecordReceivers::new(config, &in_flight, &hash, drops);
    let signals = CallSignals::new(
        &registry,
        &config.into(),
        sink.clone(),
        Arc::clone(&records.observer),
    )?;
    let signals = Arc::new(signals);
    let stories = Stories::new(&config.story, Arc::clone(&records.observations));
    let stories = Arc::new(stories);
    let trace = sink.map(|sink| EpisodeTracer::new(sink, signals.sampling()));
    let node = NodeStateReader {
        backends: backends.clone(),
        connections: Arc::clone(&connections),
    };
    let inputs = (Arc::clone(&stories), records.events, reading(&in_flight));
    let aggregator = aggregator(config, inputs, trace, node, drops);
    let aggregator = Aggregator::new(aggregator, &registry)?;
    let (index, table) = table(config, &backends, &registry)?;
    let faults = if config.faults.enabled {
        Some(Arc::new(ActiveFaults::new(&registry)?))
    } else {
        None
    };
    Ok(ProcessParts {
        connections,
        registry: Arc::new(registry),
        rates: Arc::new(CallRates::new(signals.durations(), signals.routine())),
        signals,
        stories,
        aggregator: Some(aggregator),
        recorder: records.recorder,
        observations: records.observations,
        feed: records.feed,
        dumps: records.dumps,
        requests: records.requests,
        config: Arc::new(ArcSwap::from_pointee(config.settings())),
        routing: Arc::new(config.routing.clone()),
        hash,
        in_flight,
        observer: records.observer,
        index,
        backends,
        table,
        faults,
        heartbeat: Arc::default(),
        pulling: None,
        pull_progress: Arc::default(),
        started: Instant::now(),
    })
}

/// Receivers of the records of calls.
struct RecordReceivers {
    recorder: Arc<FlightRecorder>,
    observations: Arc<Observations>,
    dumps: Arc<DumpWriter>,
    requests: Arc<RequestRecording>,
    observer: Arc<dyn CallObserver>,
    /// To the aggregator, and its end.
    feed: Sender<AggregatorEvent>,
    events: Receiver<AggregatorEvent>,
}

impl RecordReceivers {
    fn new(
        config: &Config,
        in_flight: &Arc<InFlightCalls>,
        hash: &ConfigHash,
        drops: &Arc<Drops>,
    ) -> Self {
        let recorder = Arc::new(FlightRecorder::new(
            config.recorder.calls,
            config.recorder.polls,
        ));
        let (sink, events) = CallSink::new(Arc::clone(&recorder), Arc::clone(drops));
        let feed = sink.feed();
        let observations = Arc::<Observations>::default();
        let dumps = recording::dumps(config, &recorder, in_flight, &observations, hash, drops);
        let requests = Arc::<RequestRecording>::default();
        let observer = LifecycleObserver {
            sink,
            observations: Arc::clone(&observations),
            dumps: Arc::clone(&dumps),
            requests: Arc::clone(&requests),
        };
        Self {
            recorder,
            observations,
            dumps,
            requests,
            observer: Arc::new(observer),
            feed,
            events,
        }
    }
}

/// The parts of the aggregator. `trace` exports finished episodes.
fn aggregator(
    config: &Config,
    (stories, events, in_flight): (Arc<Stories>, Receiver<AggregatorEvent>, CallsInFlight),
    trace: Option<EpisodeTracer>,
    node: NodeStateReader,
    drops: &Arc<Drops>,
) -> aggregator::AggregatorParts {
    aggregator::AggregatorParts {
        stories,
        events,
        in_flight,
        state_dir: Some(config.story.state_dir.clone()),
        kubelet_dir: Some(config.story.kubelet_dir.clone()),
        drops: Arc::clone(drops),
        subscriber: trace.map(|trace| Arc::new(trace) as _),
        node: Arc::new(node),
        bypass: bypass_files(config),
        clock: Arc::new(SystemTime::now),
    }
}

/// The files of the bypass are where agents see them: next to their socket.
fn bypass_files(config: &Config) -> BypassFiles {
    let socket = config.admin.agent_socket.as_deref();
    let directory = socket.and_then(Path::parent);
    directory.map(BypassFiles::at).unwrap_or_default()
}

/// The index of pods, and which backend a call goes to.
fn table(
    config: &Config,
    backends: &[Arc<Backend>],
    registry: &Registry,
) -> Result<(Arc<PodIndex>, Arc<RoutingTable>), ServeError> {
    let limits = config.telemetry.identity;
    let index = Arc::new(PodIndex::new(limits.sandboxes, limits.containers));
    backend::metrics::register(registry, backends)?;
    pod_index::metrics::register(registry, &index)?;
    let names = backends.iter().map(|b| Arc::clone(b.name())).collect();
    let table = RoutingTable::new(rules(config)?, Arc::clone(&index), names);
    Ok((index, Arc::new(table)))
}

/// A registry with the names in the configuration, which may be label values.
fn registry(config: &Config) -> Registry {
    let names: Vec<_> = config.backends.iter().map(|b| b.name.clone()).collect();
    // The name of calls that go to every backend.
    let all = names.join("+");
    let handlers = config.routing.rules.iter();
    Registry::new(prometheus::Registry::new(), names.into_iter().chain([all]))
        .with_handlers(handlers.map(|rule| rule.runtime_handler.as_str()))
}

/// Returns the calls in flight.
type CallsInFlight = Arc<dyn Fn() -> Vec<Arc<Call>> + Send + Sync>;

/// Reads the calls in flight, for `lifecycle`, which does not know their table.
pub(super) fn reading(in_flight: &Arc<InFlightCalls>) -> CallsInFlight {
    let in_flight = Arc::clone(in_flight);
    Arc::new(move || in_flight.calls())
}

impl From<&Config> for SignalSettings {
    fn from(config: &Config) -> Self {
        let endpoints = config.backends.iter().filter_map(|backend| {
            let endpoint = backend.endpoint.as_deref()?.to_string_lossy();
            Some((backend.name.clone(), endpoint.into()))
        });
        Self {
            sampling: config.telemetry.sampling.clone(),
            receives_spans: config.receiver.listen.is_some(),
            listen: config.server.listen.to_string_lossy().into(),
            endpoints: endpoints.collect(),
        }
    }
}

/// The backend with these settings.
fn backend(
    settings: &config::BackendSettings,
    builtin: Option<&CriService>,
) -> Result<Backend, ServeError> {
    let name = &settings.name;
    match (settings.endpoint.as_deref(), builtin) {
        (Some(endpoint), _) => Ok(Backend::remote(name, endpoint.to_owned())
            .answering_runtime_config(settings.answer_runtime_config)
            .joining_retries(settings.join_retries)),
        (None, Some(service)) => Ok(Backend::local(name, service.clone())),
        (None, None) => Err(ServeError::Backends(format!(
            "backend {name}: the built-in runtime is not configured"
        ))),
    }
}

/// The routing settings, with indices of backends in place of names.
fn rules(config: &Config) -> Result<RoutingRules, ServeError> {
    let mut handlers = HashMap::new();
    for rule in &config.routing.rules {
        let backend = backend_index(config, &rule.backend)?;
        // The first match wins.
        handlers
            .entry(rule.runtime_handler.as_str().into())
            .or_insert(backend);
    }
    Ok(RoutingRules {
        backends: config.backends.len(),
        default: backend_index(config, &config.routing.default)?,
        images: backend_index(config, &config.routing.images)?,
        handlers,
    })
}

fn backend_index(config: &Config, name: &str) -> Result<BackendIndex, ServeError> {
    let index = config.backends.iter().position(|b| b.name == name);
    index.ok_or_else(|| ServeError::Backends(format!("routing: no backend is named {name}")))
}

/// Spawns a task that begins anew after a panic, until `stop`.
fn spawn<F>(
    side: &Runtime,
    stop: &CancellationToken,
    name: &'static str,
    task: impl Fn() -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let task = supervised(name, task);
    side.spawn(stop.clone().run_until_cancelled_owned(task));
}

impl ProcessParts {
    pub(super) fn start_background(&self, side: &Runtime, stop: &CancellationToken) {
        for backend in &self.backends {
            let came_up = Arc::new(Notify::new());
            let parts = Arc::new(ResyncParts {
                backend: Arc::clone(backend),
                index: Arc::clone(&self.index),
                receiver: Arc::new(ListedPodsWriter(Arc::clone(&self.stories))),
                wanted: Arc::clone(&came_up),
            });
            spawn(side, stop, "resync", move || {
                resync::run(Arc::clone(&parts))
            });
            let backend = Arc::clone(backend);
            spawn(side, stop, "probe", move || {
                let came_up = Arc::clone(&came_up);
                probe::run(Arc::clone(&backend), move || came_up.notify_one())
            });
        }
        let rates = Arc::clone(&self.rates);
        spawn(side, stop, "rates", move || Arc::clone(&rates).run());
        let watch = StuckCallWatch {
            in_flight: Arc::clone(&self.in_flight),
            signals: Arc::clone(&self.signals),
            observer: Arc::clone(&self.observer),
        };
        spawn(side, stop, "stuck calls", move || watch.clone().run());
    }

    pub(super) fn sources(&self, config: &Config, log: logging::LogHandle) -> admin::PageSources {
        admin::PageSources {
            registry: Arc::clone(&self.registry),
            in_flight: Arc::clone(&self.in_flight),
            backends: self.backends.clone(),
            stories: Arc::clone(&self.stories),
            recorder: Arc::clone(&self.recorder),
            rates: Arc::clone(&self.rates),
            dumps: Arc::clone(&self.dumps),
            config: Arc::clone(&self.config),
            routing: Arc::clone(&self.routing),
            heartbeat: Arc::clone(&self.heartbeat),
            pulling: self.pulling.clone(),
            pull_progress: Arc::clone(&self.pull_progress),
            faults: self.faults.clone(),
            requests: Arc::clone(&self.requests),
            state_dir: config.story.state_dir.as_path().into(),
            kubelet_dir: config.story.kubelet_dir.clone(),
            trace_url: config.admin.trace_url.clone(),
            log,
            started: self.started,
        }
    }

    /// The factory for the request path of each new connection.
    pub(super) fn connection_parts(
        &self,
        max_message_bytes: usize,
        sessions: Option<SessionProxy>,
    ) -> StackParts {
        let secrets = Arc::<Secrets>::default();
        let inspector = Inspector {
            index: Arc::clone(&self.index),
            secrets: Arc::clone(&secrets),
            backends: self.backends.clone(),
            limit: max_message_bytes,
        };
        StackParts {
            shared: InstrumentState {
                signals: Arc::clone(&self.signals),
                in_flight: Arc::clone(&self.in_flight),
                seq: Arc::default(),
                secrets,
            },
            inspector: Arc::new(inspector),
            faults: self.faults.clone(),
            table: Arc::clone(&self.table),
            backends: self.backends.clone(),
            sessions,
        }
    }
}
