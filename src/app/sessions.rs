//! Sessions of exec, attach and port-forward: their observers, and the session proxy in front of upstreams.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use cri_streaming::{SessionBegin, SessionEnd, SessionKind, SessionObserver};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use super::build::ProcessParts;
use super::shutdown::ShutdownStages;
use crate::call::Call;
use crate::config::StreamingSettings;
use crate::cri::subject::{PodIdentity, Subject};
use crate::lifecycle::{AggregatorEvent, sessions};
use crate::proxy::pod_index::PodIndex;
use crate::proxy::sessions::{SessionProxy, SessionProxyMetrics};
use crate::streaming::{self, SessionAuditLog, SessionMetrics, SessionSpans};
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;
use crate::telemetry::otlp::SpanSink;
use crate::telemetry::registry::RegistryError;

/// How long sessions may take to end at shutdown: a little longer than a session waits for its client to close.
const LAST_SESSIONS_TIMEOUT: Duration = Duration::from_secs(6);

/// Waits until the last session has ended and its observers know: for any time until `cut`, and then for a moment.
pub(super) async fn wait_for_sessions(
    serving: impl IntoIterator<Item = JoinHandle<()>>,
    cut: &CancellationToken,
) {
    let limit = async {
        cut.cancelled().await;
        sleep(LAST_SESSIONS_TIMEOUT).await;
    };
    tokio::select! {
        _ = join_all(serving) => {}
        () = limit => {}
    }
}

/// The observers of all sessions.
pub(super) fn observers(
    built: &ProcessParts,
    settings: &StreamingSettings,
    drops: &Arc<Drops>,
    sink: Option<SpanSink>,
) -> Result<Vec<Arc<dyn SessionObserver>>, RegistryError> {
    let mut all: Vec<Arc<dyn SessionObserver>> = vec![
        Arc::new(SessionMetrics::register(&built.registry)?),
        Arc::new(SessionAuditLog {
            commands: settings.audit_commands,
        }),
        Arc::new(SessionStoryObserver {
            feed: built.feed.clone(),
            index: Arc::clone(&built.index),
            drops: Arc::clone(drops),
        }),
    ];
    if let Some(sink) = sink {
        all.push(Arc::new(SessionSpans::new(sink)));
    }
    Ok(all)
}

/// Reports sessions to the aggregator, which adds them to the episodes of their pod.
struct SessionStoryObserver {
    feed: Sender<AggregatorEvent>,
    index: Arc<PodIndex>,
    drops: Arc<Drops>,
}

impl SessionObserver for SessionStoryObserver {
    fn began(&self, begin: &SessionBegin<'_>) {
        let (pod, request) = self.request(begin, SystemTime::now());
        let counters = Arc::clone(begin.carried);
        self.send(AggregatorEvent::SessionBegan(Box::new(
            sessions::ActiveSession {
                number: begin.number,
                id: begin.id.to_owned(),
                pod,
                request,
                since: Instant::now(),
                bytes: sessions::SessionBytes::new(move || counters.so_far()),
            },
        )));
    }

    fn ended(&self, begin: &SessionBegin<'_>, end: &SessionEnd) {
        let (pod, request) = self.request(begin, SystemTime::now() - end.duration);
        // Without a known pod it belongs to no episode, but the list of open sessions must drop it.
        let session = pod.map(|pod| sessions::EndedSession {
            pod,
            request,
            elapsed: end.duration,
            bytes: (end.bytes_in, end.bytes_out),
            outcome: end.outcome.name(),
            exit_code: end.exit_code,
        });
        self.send(AggregatorEvent::SessionEnded(
            begin.number,
            session.map(Box::new),
        ));
    }
}

impl SessionStoryObserver {
    fn send(&self, event: AggregatorEvent) {
        if self.feed.try_send(event).is_err() {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
    }

    /// The pod of a session, and the request for it.
    fn request(
        &self,
        begin: &SessionBegin<'_>,
        began: SystemTime,
    ) -> (Option<Arc<PodIdentity>>, sessions::SessionRequest) {
        let call = streaming::call(begin.extensions);
        let subject = self.subject(begin.kind, begin.id, call);
        let request = sessions::SessionRequest {
            container: subject.container,
            kind: begin.kind.name(),
            carrier: (begin.transport.name(), begin.protocol),
            client: call.map(|call| call.peer.client),
            program: begin.program().map(str::to_owned),
            began,
        };
        (subject.pod, request)
    }

    /// The subject of the call; if its pod was unknown then, the one in the pod index now.
    fn subject(&self, kind: SessionKind, id: &str, call: Option<&Call>) -> Subject {
        let known = call.and_then(|call| call.subject.get());
        if let Some(known) = known.filter(|subject| subject.pod.is_some()) {
            return known.clone();
        }
        let id = Some(id.into());
        let mut subject = match kind {
            SessionKind::Exec | SessionKind::Attach => Subject {
                container_id: id,
                ..Subject::default()
            },
            SessionKind::PortForward => Subject {
                sandbox_id: id,
                ..Subject::default()
            },
        };
        self.index.complete(&mut subject);
        subject
    }
}

/// The session proxy on a separate thread, so that copying bytes delays neither calls nor their signals.
pub(super) struct SessionThread {
    thread: Runtime,
    proxy: SessionProxy,
    serving: Option<JoinHandle<()>>,
}

impl SessionThread {
    /// Starts the session proxy until sessions are cut, if the settings enable it and there is an upstream. A failure to bind is
    /// only logged: sessions then go to the upstream directly.
    pub(super) fn start(
        built: &ProcessParts,
        settings: &StreamingSettings,
        observers: Vec<Arc<dyn SessionObserver>>,
        stages: &ShutdownStages,
    ) -> Result<Option<Self>, ServeError> {
        let wanted = built.backends.iter().any(|backend| !backend.is_local());
        if !(settings.observe && wanted) {
            return Ok(None);
        }
        let metrics = SessionProxyMetrics::register(&built.registry)?;
        let thread = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sessions")
            .enable_all()
            .build()
            .map_err(ServeError::Start)?;
        let bound = SessionProxy::bind(settings.max_sessions, metrics, observers);
        match thread.block_on(bound) {
            Ok((proxy, listener)) => {
                tracing::debug!(event = "stream.relay", server.address = %listener.address(), "sessions of upstreams are proxied");
                let serving =
                    listener.serve(stages.calls_ended.clone(), stages.cut_sessions.clone());
                let serving = Some(thread.spawn(serving));
                Ok(Some(Self {
                    thread,
                    proxy,
                    serving,
                }))
            }
            Err(error) => {
                tracing::warn!(event = "stream.relay", error.message = %error, "sessions of upstreams are not proxied");
                Ok(None)
            }
        }
    }

    /// The session proxy.
    pub(super) fn proxy(&self) -> &SessionProxy {
        &self.proxy
    }

    /// The task that serves it, which ends after its sessions; `None` on the second call.
    pub(super) fn serving(&mut self) -> Option<JoinHandle<()>> {
        self.serving.take()
    }

    /// Stops the thread.
    pub(super) fn stop(self) {
        self.thread.shutdown_background();
    }
}
