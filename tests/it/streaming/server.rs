//! A server for one test, and a record of its sessions.

use cri_streaming::{
    Direction, SessionBegin, SessionEnd, SessionKind, SessionObserver, SessionOutcome,
    TokenOutcome, TrafficCounters, Transport,
};
use criscope::config::StreamingSettings;
use criscope::streaming::StreamingServer;
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

    fn ended(&self, end: &SessionEnd<'_>) {
        let begun = self.open.lock().expect("no panic").remove(&end.number);
        assert_eq!(begun.expect("its begin").so_far(), None);
        self.ends.lock().expect("no panic").push(End {
            kind: end.kind,
            id: end.id.to_owned(),
            protocol: end.protocol,
            transport: end.transport,
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
    pub(super) server: StreamingServer,
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
        let (server, listener) = StreamingServer::bind(&settings, Arc::new(fake), observers)
            .await
            .expect("bound");
        let stop = CancellationToken::new();
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
        let request = v1::ExecRequest {
            container_id: "app".into(),
            cmd: argv.iter().map(|&word| word.to_owned()).collect(),
            stdin: streams.contains('i'),
            stdout: streams.contains('o'),
            stderr: streams.contains('e'),
            tty: streams.contains('t'),
        };
        self.server.exec(request, None).expect("a URL")
    }

    pub(super) fn attach(&self, container: &str) -> String {
        let request = requests::attach(container, "ioe");
        self.server.attach(request, None).expect("a URL")
    }

    pub(super) fn forward(&self, pod: &str, port: &[u16]) -> String {
        let request = v1::PortForwardRequest {
            pod_sandbox_id: pod.into(),
            port: port.iter().map(|&port| port.into()).collect(),
        };
        self.server.port_forward(request, None).expect("a URL")
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
