//! The real program, and a view of it from outside.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::client::Client;
use super::fake::{Fake, lock};
use super::scrape::Scrape;
use super::{alone, soon, until};

/// `criscope serve`.
fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criscope"));
    // Nothing of the machine's may turn exporters on.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command.arg("serve").stdin(Stdio::null());
    command
}

/// Where the ports of tests begin.
const FIRST_PORT: u32 = 20_000;

/// Ports that one process hands out.
const PORTS: u32 = 1000;

/// Processes that hand out different ones; all are below 32768.
const PROCESSES: u32 = 12;

/// A port below the ephemeral range, so that no outgoing connection takes it meanwhile. It is handed out once in a
/// thousand times, because nobody may listen at it for a while: it may be for what is not there, or is to come back.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // In a PID namespace of its own every program would have the same.
    let process = alone::number().unwrap_or_else(std::process::id);
    let base = FIRST_PORT + process % PROCESSES * PORTS;
    // Those that have the same ports do not begin with the same.
    let first = process / PROCESSES * 100;
    loop {
        let offset = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(base + offset).expect("below 32768");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running criscope. Dropping it kills it.
pub(crate) struct Proxy {
    dir: TempDir,
    listen: PathBuf,
    child: Child,
    admin: u16,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

/// How to start one.
pub(crate) struct Start {
    dir: TempDir,
    listen: PathBuf,
    /// One of its own unless it is said.
    admin: Option<u16>,
    command: Command,
}

impl Start {
    /// With a socket and an admin port of its own, and nothing else.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        Self {
            listen: dir.path().join("criscope.sock"),
            dir,
            admin: None,
            command: binary(),
        }
    }

    /// Listens there.
    pub(crate) fn listen(mut self, path: &Path) -> Self {
        self.listen = path.to_owned();
        self
    }

    /// With its admin endpoint at this port.
    pub(crate) fn admin(mut self, port: u16) -> Self {
        self.admin = Some(port);
        self
    }

    /// In front of this runtime.
    pub(crate) fn upstream(mut self, path: &Path) -> Self {
        let uri = format!("unix://{}", path.display());
        self.command.args(["--upstream", &uri]);
        self
    }

    /// With this configuration file.
    pub(crate) fn config(mut self, toml: &str) -> Self {
        let path = config_path(&self.dir);
        std::fs::write(&path, toml).expect("write");
        self.command.arg("--config").arg(path);
        self
    }

    /// With this in its environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs another command in its place, which is given this one's arguments.
    pub(crate) fn wrapped(mut self, wrap: impl FnOnce(&Command) -> Command) -> Self {
        self.command = wrap(&self.command);
        self
    }

    /// Starts it; it may not have come far yet.
    pub(crate) fn spawn(mut self) -> Proxy {
        let admin = self.admin.unwrap_or_else(free_port);
        let mut child = self
            .command
            .args(["--listen", &format!("unix://{}", self.listen.display())])
            .args(["--admin", &format!("127.0.0.1:{admin}")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start criscope");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let reader = {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    lock(&log).push(line);
                }
            })
        };
        Proxy {
            dir: self.dir,
            listen: self.listen,
            child,
            admin,
            log,
            reader: Some(reader),
        }
    }

    /// Starts it and waits until it serves, whether or not the runtime is there.
    pub(crate) async fn serving(self) -> Proxy {
        let proxy = self.spawn();
        proxy.wait_event("started").await;
        proxy
    }

    /// Starts it and waits until it is ready, runtimes included.
    pub(crate) async fn ready(self) -> Proxy {
        let proxy = self.serving().await;
        proxy.wait_ready().await;
        proxy
    }
}

/// Sends a request and reads the answer, if there is one.
async fn asked<T>(mut stream: T, method: &str, path: &str, body: &str) -> Option<String>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes()).await;
    let read = soon("admin endpoint", stream.read_to_string(&mut answer)).await;
    (asked.is_ok() && read.is_ok()).then_some(answer)
}

/// Status and body of an answer; status 0 if there is none.
fn parted(answer: Option<String>) -> (u16, String) {
    let Some(answer) = answer else {
        return (0, String::new());
    };
    let (head, body) = answer.split_once("\r\n\r\n").expect("http");
    let status = head.split(' ').nth(1).expect("status");
    (status.parse().expect("number"), body.to_owned())
}

fn config_path(dir: &TempDir) -> PathBuf {
    dir.path().join("criscope.toml")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of criscope:\n{}", lock(&self.log).join("\n"));
        }
    }
}

impl Proxy {
    /// In front of this runtime, ready.
    pub(crate) async fn before(fake: &Fake) -> Self {
        Start::new().upstream(fake.path()).ready().await
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.listen.clone()
    }

    /// The port of its admin endpoint on loopback.
    pub(crate) fn admin_port(&self) -> u16 {
        self.admin
    }

    /// Writes its configuration file anew and tells it.
    pub(crate) fn reload(&self, toml: &str) {
        std::fs::write(config_path(&self.dir), toml).expect("write");
        self.signal(Signal::SIGHUP);
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("pid"))
    }

    /// A connection of a caller.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.socket()).await
    }

    pub(crate) async fn wait_ready(&self) {
        until("readiness", || async {
            (self.get("/readyz").await.0 == 200).then_some(())
        })
        .await;
    }

    /// A page of the admin endpoint: HTTP status and text.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        self.http("GET", path, "").await
    }

    /// The head of the answer for a page of the admin endpoint, in lower case.
    pub(crate) async fn head(&self, path: &str) -> String {
        let answer = self.answer("GET", path, "").await.expect("an answer");
        let (head, _) = answer.split_once("\r\n\r\n").expect("http");
        head.to_ascii_lowercase()
    }

    /// A request to the admin endpoint; status 0 if it does not answer.
    pub(crate) async fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        parted(self.answer(method, path, body).await)
    }

    async fn answer(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let stream = TcpStream::connect(("127.0.0.1", self.admin)).await.ok()?;
        asked(stream, method, path, body).await
    }

    /// The socket of its admin endpoint.
    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.listen.with_extension("admin.sock")
    }

    /// The same as [`Proxy::http`] over the socket.
    pub(crate) async fn by_socket(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let stream = UnixStream::connect(self.admin_socket()).await;
        match stream {
            Ok(stream) => parted(asked(stream, method, path, body).await),
            Err(_) => parted(None),
        }
    }

    /// Changes its log level.
    pub(crate) async fn set_log_level(&self, level: &str) {
        let (status, text) = self.by_socket("PUT", "/debug/log-level", level).await;
        assert_eq!(status, 204, "{text}");
    }

    pub(crate) async fn scrape(&self) -> Scrape {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        Scrape::parse(&text)
    }

    /// Waits for a scrape that satisfies. Metrics are read one after the other, in any order, so what happened before the
    /// condition came true need not be in all of that scrape; it is in the next, which is given if it satisfies too.
    pub(crate) async fn wait_scrape(&self, what: &str, good: impl Fn(&Scrape) -> bool) -> Scrape {
        let first = until(what, || async {
            let scrape = self.scrape().await;
            good(&scrape).then_some(scrape)
        })
        .await;
        match self.try_scrape().await {
            Some(next) if good(&next) => next,
            _ => first,
        }
    }

    async fn try_scrape(&self) -> Option<Scrape> {
        let (status, text) = self.get("/metrics").await;
        (status == 200).then(|| Scrape::parse(&text))
    }

    /// Every call that entered has ended, and there were so many: invariant 2.
    pub(crate) async fn wait_balanced(&self, entered: usize) -> Scrape {
        let scrape = self
            .wait_scrape("the end of every call", |scrape| {
                // A scrape is no snapshot: a call may end between two of its metrics.
                let counts = ["criscope_rpc_total", "criscope_rpc_duration_seconds_count"];
                let has_all = |name| scrape.metric(name).sum() >= entered as f64;
                scrape.metric("criscope_rpc_in_flight").sum() == 0.0
                    && counts.into_iter().all(has_all)
            })
            .await;
        let total = scrape.metric("criscope_rpc_total").sum();
        assert_eq!(total, entered as f64, "each call ends once");
        let timed = scrape.metric("criscope_rpc_duration_seconds_count").sum();
        assert_eq!(timed, entered as f64, "each end is measured once");
        scrape
    }

    /// The log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// The log so far; lines that are no JSON are left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.log();
        let parsed = lines.iter().filter_map(|l| serde_json::from_str(l).ok());
        parsed.collect()
    }

    /// Waits for a log line.
    pub(crate) async fn wait_line(&self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        until(what, || async {
            self.events().into_iter().find(|line| matches(line))
        })
        .await
    }

    /// Waits for a log line of this event.
    pub(crate) async fn wait_event(&self, event: &str) -> Value {
        self.wait_line(event, |line| line["event"] == event).await
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("signal");
    }

    /// Where dumps of the flight recorder go, unless the configuration says otherwise.
    pub(crate) fn dumps(&self) -> PathBuf {
        self.listen.with_extension("state").join("dumps")
    }

    /// Waits for a dump for this reason: its JSON and its trace.
    pub(crate) async fn wait_dump(&self, reason: &str) -> [Vec<u8>; 2] {
        let endings = [".json", ".trace.json"].map(|ending| format!("-{reason}{ending}"));
        let find = |ending: &String| {
            let mut entries = std::fs::read_dir(self.dumps()).ok()?.flatten();
            let ours = |name: &str| name.ends_with(ending.as_str());
            let found = entries.find(|e| e.file_name().to_str().is_some_and(ours))?;
            std::fs::read(found.path()).ok()
        };
        // The trace is written last.
        let trace = until("a dump", || async { find(&endings[1]) }).await;
        [find(&endings[0]).expect("json"), trace]
    }

    /// Waits for its end, and gives its exit status and all of its log.
    pub(crate) async fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let cell = Mutex::new(&mut self.child);
        let status = until("end of criscope", || async {
            lock(&cell).try_wait().expect("wait")
        })
        .await;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reader");
        }
        (status, self.log())
    }

    /// Stops it as a service manager does; it has to end well.
    pub(crate) async fn stop(self) -> Vec<String> {
        self.signal(Signal::SIGTERM);
        let (status, log) = self.ended().await;
        assert_eq!(
            (status.code(), status.signal()),
            (Some(0), None),
            "{}",
            log.join("\n")
        );
        log
    }
}
