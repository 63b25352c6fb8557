//! Builds and starts the observers beyond calls: the process scanner, the watches over containerd and the
//! built-in runtime, and the OTLP receiver. They belong to `lifecycle`, which knows neither the table of calls in flight
//! nor the runtime.

use std::net::TcpListener;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::build::{ProcessParts, reading};
use super::builtin::BuiltinRuntime;
use super::runtime_events;
use super::shutdown::ShutdownStages;
use super::supervise::supervised;
use crate::call::episode::is_episodic;
use crate::config::Config;
use crate::lifecycle::containerd::PullWatch;
use crate::lifecycle::containerd::events::EventWatch;
use crate::lifecycle::containerd::metrics::EventMetrics;
use crate::lifecycle::otlp_receiver::OtlpReceiver;
use crate::lifecycle::otlp_receiver::metrics::ReceiverMetrics;
use crate::lifecycle::process_scanner::metrics::ScanMetrics;
use crate::lifecycle::process_scanner::{ScannerTask, Upstream, Upstreams};
use crate::telemetry::Drops;
use crate::telemetry::otlp::{Collector, Signal};
use crate::telemetry::registry::RegistryError;

impl ProcessParts {
    /// Starts all of them but the events of the built-in runtime. The watches over calls run until the last call has ended. Returns the task
    /// of the OTLP receiver, which owns a bound listener.
    pub(super) fn start_watchers(
        &self,
        config: &Config,
        receiver: Option<TcpListener>,
        drops: &Arc<Drops>,
        side: &Runtime,
        stages: &ShutdownStages,
    ) -> Result<Option<JoinHandle<()>>, RegistryError> {
        let (release, ended) = (&stages.release, &stages.calls_ended);
        let sampler = self.sampler(config, drops)?;
        side.spawn(ended.clone().run_until_cancelled_owned(sampler.run()));
        let pulls = self.pull_watch(config);
        side.spawn(ended.clone().run_until_cancelled_owned(pulls.run()));
        let events = self.event_watch(config, drops)?;
        let events = supervised("containerd events", move || Arc::clone(&events).run());
        side.spawn(release.clone().run_until_cancelled_owned(events));
        let Some(listener) = receiver else {
            return Ok(None);
        };
        let receiver = self.receiver(listener, config, drops)?;
        let release = release.clone();
        Ok(Some(side.spawn(async move {
            release.run_until_cancelled_owned(receiver.run()).await;
        })))
    }

    /// The process scanner. It scans if the settings and the permissions on the node allow it.
    fn sampler(&self, config: &Config, drops: &Arc<Drops>) -> Result<ScannerTask, RegistryError> {
        Ok(ScannerTask::new(
            config.sampler.clone(),
            reading(&self.in_flight),
            self.upstreams(),
            Arc::clone(&self.observations),
            ScanMetrics::new(&self.registry)?,
            Arc::clone(drops),
        ))
    }

    /// The watch over the pulls of containerd.
    fn pull_watch(&self, config: &Config) -> PullWatch {
        PullWatch {
            settings: config.containerd.clone(),
            calls: reading(&self.in_flight),
            upstreams: self.upstreams(),
            observations: Arc::clone(&self.observations),
            progress: Arc::clone(&self.pull_progress),
        }
    }

    /// The subscription to the events of containerd.
    fn event_watch(
        &self,
        config: &Config,
        drops: &Arc<Drops>,
    ) -> Result<Arc<EventWatch>, RegistryError> {
        let index = Arc::clone(&self.index);
        Ok(Arc::new(EventWatch {
            settings: config.containerd.clone(),
            upstreams: self.upstreams(),
            identify: Arc::new(move |id| index.subject_of(id)),
            feed: self.feed.clone(),
            drops: Arc::clone(drops),
            metrics: EventMetrics::new(&self.registry)?,
        }))
    }

    /// The task that passes on the events of the built-in runtime.
    pub(super) fn runtime_events(
        &self,
        builtin: &BuiltinRuntime,
        drops: &Arc<Drops>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (index, feed) = (Arc::clone(&self.index), self.feed.clone());
        let (listen, drops) = (builtin.events(), Arc::clone(drops));
        supervised("runtime events", move || {
            let (index, drops) = (Arc::clone(&index), Arc::clone(&drops));
            runtime_events::pass_on(listen(), index, feed.clone(), drops)
        })
    }

    /// The runtimes behind the proxy.
    fn upstreams(&self) -> Upstreams {
        let backends = self.backends.clone();
        Arc::new(move || {
            let remote = backends.iter().filter_map(|backend| {
                Some(Upstream {
                    backend: Arc::clone(backend.name()),
                    socket: backend.socket()?.to_owned(),
                    pid: backend.health().pid(),
                    is_containerd: backend.health().is_runtime("containerd"),
                })
            });
            remote.collect()
        })
    }

    /// The receiver of the runtime's spans on a bound listener.
    fn receiver(
        &self,
        listener: TcpListener,
        config: &Config,
        drops: &Arc<Drops>,
    ) -> Result<OtlpReceiver, RegistryError> {
        let (in_flight, recorder) = (Arc::clone(&self.in_flight), Arc::clone(&self.recorder));
        Ok(OtlpReceiver {
            listener,
            call_spans: Arc::new(move || {
                let calls = in_flight.calls();
                let records = recorder.calls();
                let flying = calls.iter().filter(|call| is_episodic(call.method));
                let flying = flying.filter_map(|call| call.placement());
                let ended = records.iter().filter(|record| is_episodic(record.method));
                let ended = ended.filter_map(|record| record.spans.as_ref());
                flying
                    .map(|spans| (spans.trace_id, spans.client))
                    .chain(ended.map(|spans| (spans.trace_id, spans.client)))
                    .collect()
            }),
            feed: self.feed.clone(),
            // A wrong one was logged at the start.
            collector: Collector::for_signal(&config.telemetry.otlp, Signal::Traces)
                .ok()
                .flatten(),
            drops: Arc::clone(drops),
            metrics: ReceiverMetrics::new(&self.registry)?,
            allowed_uids: config.receiver.allowed_uids.clone(),
        })
    }
}
