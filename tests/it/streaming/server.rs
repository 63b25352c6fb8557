//! A server for one test, and a record of its sessions.

use cri_streaming::{
    AttachRequest, Direction, ExecRequest, InvalidRequest, SessionBegin, SessionEnd, SessionKind,
    SessionObserver, SessionOutcome, SessionRequest, SessionServer, StreamOptions, TokenOutcome,
    TrafficCounters, Transport, UrlError,
};
use criscope::config::StreamingSettings;
use criscope::streaming::StreamingListener;
use http::Extensions;
use tokio::task::JoinHandle;

use super::target::{Fake, Seen};
use crate::prelude::*;

/// The end of a session.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) kind: SessionKind,
    pub(super) id: String,
    pub(super) protocol: &'static str,
    pub(super) transport: Transport,
    pub(super) outcome: SessionOutcome,
    pub(super) exit_code: Option<i32>,
    pub(super) bytes: (u64, u64),
    pub(super) connections: u64,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) ends: Mutex<Vec<End>>,
    pub(super) tokens: Mutex<Vec<TokenOutcome>>,
    bytes: Mutex<(u64, u64)>,
    /// Open sessions by number, with their traffic.
    open: Mutex<BTreeMap<u64, Arc<TrafficCounters>>>,
    begun: Mutex<usize>,
}

impl SessionObserver for Watch {
    fn token(&self, outcome: TokenOutcome, n: u64) {
        for _ in 0..n {
            self.tokens.lock().expect("no panic").push(outcome);
        }
    }

    fn began(&self, begin: &SessionBegin<'_>) {
        assert_eq!(begin.carried.so_far(), Some((0, 0)));
        let carried = Arc::clone(begin.carried);
        let mut open = self.open.lock().expect("no panic");
        assert!(open.insert(begin.number, carried).is_none());
        *self.begun.lock().expect("no panic") += 1;
    }

    fn bytes(&self, _: SessionKind, direction: Direction, n: u64) {
        let mut bytes = self.bytes.lock().expect("no panic");
        match direction {
            Direction::In => bytes.0 += n,
            Direction::Out => bytes.1 += n,
        }
    }

    fn ended(&self, begin: &SessionBegin<'_>, end: &SessionEnd) {
        let begun = self.open.lock().expect("no panic").remove(&begin.number);
        assert_eq!(begun.expect("its begin").so_far(), None);
        self.ends.lock().expect("no panic").push(End {
            kind: begin.kind,
            id: begin.id.to_owned(),
            protocol: begin.protocol,
            transport: begin.transport,
            outcome: end.outcome,
            exit_code: end.exit_code,
            bytes: (end.bytes_in, end.bytes_out),
            connections: end.connections,
        });
    }
}

/// The defaults, on an ephemeral port.
pub(super) fn settings() -> StreamingSettings {
    StreamingSettings {
        listen: "127.0.0.1:0".parse().expect("an address"),
        base_url: None,
        tls_cert: None,
        tls_key: None,
        idle_timeout: Duration::from_secs(4 * 3600),
        creation_timeout: Duration::from_secs(30),
        max_sessions: 1000,
        audit_commands: false,
        observe: true,
    }
}

pub(super) struct Fixture {
    pub(super) server: SessionServer,
    pub(super) watch: Arc<Watch>,
    pub(super) seen: Arc<Seen>,
    pub(super) stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        Self::with(settings()).await
    }

    pub(super) async fn with(settings: StreamingSettings) -> Self {
        let (watch, fake) = (Arc::new(Watch::default()), Fake::default());
        let seen = Arc::clone(&fake.0);
        let observers: Vec<Arc<dyn SessionObserver>> = vec![watch.clone()];
        let listener = StreamingListener::bind(&settings, Arc::new(fake), observers)
            .await
            .expect("bound");
        let (server, stop) = (listener.server().clone(), CancellationToken::new());
        let serving = tokio::spawn(listener.serve(stop.clone()));
        Self {
            server,
            watch,
            seen,
            stop,
            serving,
        }
    }

    /// A URL for a command; `streams` has the letters of its streams: `i`, `o`, `e`, `t`.
    pub(super) fn exec(&self, argv: &[&str], streams: &str) -> String {
        let wanted = StreamOptions {
            stdin: streams.contains('i'),
            stdout: streams.contains('o'),
            stderr: streams.contains('e'),
            tty: streams.contains('t'),
        };
        let exec = ExecRequest {
            container: "app".into(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            tty: wanted.tty,
        };
        self.url(SessionRequest::exec(exec, wanted)).expect("a URL")
    }

    pub(super) fn attach(&self, container: &str) -> String {
        let wanted = StreamOptions {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: false,
        };
        let attach = AttachRequest {
            container: container.into(),
            tty: wanted.tty,
        };
        let request = SessionRequest::attach(attach, wanted);
        self.url(request).expect("a URL")
    }

    pub(super) fn forward(&self, pod: &str, port: &[u16]) -> String {
        let ports: Vec<_> = port.iter().map(|&port| port.into()).collect();
        let request = SessionRequest::port_forward(pod.into(), &ports);
        self.url(request).expect("a URL")
    }

    /// A URL for a request.
    pub(super) fn url(
        &self,
        request: Result<SessionRequest, InvalidRequest>,
    ) -> Result<String, UrlError> {
        self.server.issue(request?, Extensions::new())
    }

    /// Waits until this number of sessions have ended; returns them.
    pub(super) async fn ends(&self, n: usize) -> Vec<End> {
        let count = || self.watch.ends.lock().expect("no panic").len();
        until_true(&format!("{n} ends"), async || count() >= n).await;
        self.watch.ends.lock().expect("no panic").clone()
    }

    /// The end of the only session.
    pub(super) async fn end(&self) -> End {
        let ends = self.ends(1).await;
        assert_eq!(ends.len(), 1, "{ends:?}");
        ends[0].clone()
    }

    /// Stops the server and checks that nothing is left.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        soon("the server's end", self.serving)
            .await
            .expect("no panic");
        until_true("no command runs", async || {
            self.seen.running.load(Ordering::SeqCst) == 0
        })
        .await;
        let ends = self.watch.ends.lock().expect("no panic").clone();
        assert_eq!(*self.watch.begun.lock().expect("no panic"), ends.len());
        assert!(self.watch.open.lock().expect("no panic").is_empty());
        let sum = ends.iter().fold((0, 0), |sum, end| {
            (sum.0 + end.bytes.0, sum.1 + end.bytes.1)
        });
        assert_eq!(*self.watch.bytes.lock().expect("no panic"), sum);
    }
}
