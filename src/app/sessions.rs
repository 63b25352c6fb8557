//! Sessions of exec, attach and port-forward: who observes them, whoever serves them, and the relay in front of
//! upstreams.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use cri_streaming::{Observer, SessionBegin, SessionEnd, SessionKind};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::build::Built;
use crate::call::Call;
use crate::config::Streaming;
use crate::cri::subject::Subject;
use crate::lifecycle::{Event, sessions};
use crate::proxy::pod_index::Index;
use crate::proxy::sessions::{SessionProxy, SessionProxyMetrics};
use crate::streaming::{self, AuditLog, SessionMetrics, SessionSpans};
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;
use crate::telemetry::otlp::SpanSink;
use crate::telemetry::registry::RegistryError;

/// How long sessions may take to end with the process: a little longer than a session itself gives its client to hang up.
const LAST_SESSIONS: Duration = Duration::from_secs(6);

/// Waits until what serves sessions is done with them, each of which tells of its end.
pub(super) async fn last_words(serving: impl IntoIterator<Item = JoinHandle<()>>) {
    let _ = timeout(LAST_SESSIONS, join_all(serving)).await;
}

/// All who want to know of sessions.
pub(super) fn observers(
    built: &Built,
    settings: &Streaming,
    drops: &Arc<Drops>,
    sink: Option<SpanSink>,
) -> Result<Vec<Arc<dyn Observer>>, RegistryError> {
    let mut all: Vec<Arc<dyn Observer>> = vec![
        Arc::new(SessionMetrics::register(&built.registry)?),
        Arc::new(AuditLog {
            commands: settings.audit_commands,
        }),
        Arc::new(Teller {
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

/// Tells the story of the pod.
struct Teller {
    feed: Sender<Event>,
    index: Arc<Index>,
    drops: Arc<Drops>,
}

impl Observer for Teller {
    fn began(&self, begin: &SessionBegin<'_>) {
        let subject = self.subject(begin.kind, begin.id, streaming::call(begin.extensions));
        let carried = Arc::clone(begin.carried);
        self.tell(Event::SessionBegan(Box::new(sessions::Open {
            number: begin.number,
            id: begin.id.to_owned(),
            pod: subject.pod,
            asked: sessions::SessionRequest {
                container: subject.container,
                kind: begin.kind.name(),
                carrier: (begin.transport.name(), begin.protocol),
                client: streaming::call(begin.extensions).map(|call| call.peer.client),
                program: begin.program().map(str::to_owned),
                began: SystemTime::now(),
            },
            since: Instant::now(),
            carried: sessions::Carried::new(move || carried.so_far()),
        })));
    }

    fn ended(&self, end: &SessionEnd<'_>) {
        let subject = self.subject(end.kind, end.id, streaming::call(end.extensions));
        // A session of nobody who is known is part of no story, but it was open.
        let session = subject.pod.map(|pod| sessions::Session {
            pod,
            asked: sessions::SessionRequest {
                container: subject.container,
                kind: end.kind.name(),
                carrier: (end.transport.name(), end.protocol),
                client: streaming::call(end.extensions).map(|call| call.peer.client),
                program: end.program().map(str::to_owned),
                began: SystemTime::now() - end.duration,
            },
            elapsed: end.duration,
            bytes: (end.bytes_in, end.bytes_out),
            outcome: end.outcome.name(),
            exit_code: end.exit_code,
        });
        self.tell(Event::SessionEnded(end.number, session.map(Box::new)));
    }
}

impl Teller {
    fn tell(&self, event: Event) {
        if self.feed.try_send(event).is_err() {
            self.drops.add(DropReason::StoryQueueFull, 1);
        }
    }

    /// Whom it is about: as the call knew it, or as it is known by now.
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

/// The relay, on a thread of its own: what a session carries must hold up neither calls nor what tells of them.
pub(super) struct Relaying {
    thread: Runtime,
    relay: SessionProxy,
    serving: Option<JoinHandle<()>>,
}

impl Relaying {
    /// Begins to relay until `stop`, if the settings want it and there is an upstream. Without it sessions are not seen,
    /// which is no reason not to start.
    pub(super) fn start(
        built: &Built,
        settings: &Streaming,
        observers: Vec<Arc<dyn Observer>>,
        stop: CancellationToken,
    ) -> Result<Option<Self>, Error> {
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
            .map_err(Error::Start)?;
        let bound = SessionProxy::bind(settings.max_sessions, metrics, observers);
        match thread.block_on(bound) {
            Ok((relay, listener)) => {
                tracing::debug!(event = "stream.relay", server.address = %listener.address(), "sessions of upstreams are seen");
                let serving = Some(thread.spawn(listener.serve(stop)));
                Ok(Some(Self {
                    thread,
                    relay,
                    serving,
                }))
            }
            Err(error) => {
                tracing::warn!(event = "stream.relay", error.message = %error, "sessions of upstreams are not seen");
                Ok(None)
            }
        }
    }

    /// What leads sessions.
    pub(super) fn relay(&self) -> &SessionProxy {
        &self.relay
    }

    /// What serves it, until its sessions have ended. There is one.
    pub(super) fn serving(&mut self) -> Option<JoinHandle<()>> {
        self.serving.take()
    }

    /// Ends it.
    pub(super) fn stop(self) {
        self.thread.shutdown_background();
    }
}
