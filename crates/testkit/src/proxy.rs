//! criscope as a process: started with any configuration, stopped, scraped, and its log read.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::client::Client;
use crate::fake::Fake;
use crate::lock;
pub use crate::ports::free_port;
use crate::scrape::Scrape;
use crate::{soon, until, until_true};

/// Returns whether a log line is about a call of this method, named without its service.
pub fn is_call(line: &Value, method: &str) -> bool {
    let name = line["rpc.method"].as_str().unwrap_or_default();
    name.rsplit('/').next() == Some(method)
}

/// `criscope serve`.
fn serve(criscope: &Path) -> Command {
    let mut command = Command::new(criscope);
    // The environment must not enable exporters.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command.arg("serve").stdin(Stdio::null());
    command
}

/// A running criscope. Dropping it kills it.
pub struct Proxy {
    dir: TempDir,
    listen: PathBuf,
    command: Mutex<Command>,
    child: Mutex<Child>,
    admin: u16,
    log: Arc<Mutex<Vec<String>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

/// Builder of [`Proxy`].
pub struct Start {
    dir: TempDir,
    listen: PathBuf,
    admin: Option<u16>,
    command: Command,
}

impl Start {
    /// Runs this binary with a private socket and admin port.
    pub fn new(criscope: impl AsRef<Path>) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        Self {
            listen: dir.path().join("criscope.sock"),
            dir,
            admin: None,
            command: serve(criscope.as_ref()),
        }
    }

    /// Runs this binary in front of a fake runtime.
    pub fn before(criscope: impl AsRef<Path>, fake: &Fake) -> Self {
        Self::new(criscope).upstream(fake.path())
    }

    /// Sets the socket.
    pub fn listen(mut self, path: &Path) -> Self {
        self.listen = path.to_owned();
        self
    }

    /// Sets the port of the admin endpoint.
    pub fn admin(mut self, port: u16) -> Self {
        self.admin = Some(port);
        self
    }

    /// Sets the runtime behind it.
    pub fn upstream(mut self, path: &Path) -> Self {
        let uri = format!("unix://{}", path.display());
        self.command.args(["--upstream", &uri]);
        self
    }

    /// Sets the configuration file.
    pub fn config(mut self, toml: &str) -> Self {
        let path = config_path(&self.dir);
        std::fs::write(&path, toml).expect("write");
        self.command.arg("--config").arg(path);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it through another command, such as `nsenter`, which gets program and arguments appended.
    pub fn wrapped(mut self, mut outer: Command) -> Self {
        let inner = &self.command;
        outer.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer.stdin(Stdio::null());
        self.command = outer;
        self
    }

    /// Sets the standard input.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Starts it without waiting.
    pub fn spawn(mut self) -> Proxy {
        let admin = self.admin.unwrap_or_else(free_port);
        self.command
            .args(["--listen", &format!("unix://{}", self.listen.display())])
            .args(["--admin", &format!("127.0.0.1:{admin}")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let log = Arc::default();
        let (child, reader) = run(&mut self.command, &log);
        Proxy {
            dir: self.dir,
            listen: self.listen,
            command: Mutex::new(self.command),
            child: Mutex::new(child),
            admin,
            log,
            reader: Mutex::new(Some(reader)),
        }
    }

    /// Starts it and waits until it listens, whether or not its backends respond.
    pub async fn serving(self) -> Proxy {
        let proxy = self.spawn();
        proxy.wait_event("started").await;
        proxy
    }

    /// Starts it and waits until it and its backends are ready.
    pub async fn ready(self) -> Proxy {
        let proxy = self.serving().await;
        proxy.wait_ready().await;
        proxy
    }
}

/// Starts criscope; a thread appends its log lines to `log` until it ends.
fn run(command: &mut Command, log: &Arc<Mutex<Vec<String>>>) -> (Child, JoinHandle<()>) {
    let mut child = command.spawn().expect("start criscope");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let log = Arc::clone(log);
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            lock(&log).push(line);
        }
    });
    (child, reader)
}

/// Sends a request and reads the response.
async fn exchange<T>(mut stream: T, method: &str, path: &str, body: &str) -> Option<String>
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

/// Status and body of a response; status 0 if there is none.
fn split(answer: Option<String>) -> (u16, String) {
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
        self.kill();
        if std::thread::panicking() {
            eprintln!("log of criscope:\n{}", lock(&self.log).join("\n"));
        }
    }
}

impl Proxy {
    /// Starts criscope in front of this runtime and waits until it is ready.
    pub async fn before(criscope: impl AsRef<Path>, fake: &Fake) -> Self {
        Start::before(criscope, fake).ready().await
    }

    pub fn socket(&self) -> PathBuf {
        self.listen.clone()
    }

    /// The port of its admin endpoint on loopback.
    pub fn admin_port(&self) -> u16 {
        self.admin
    }

    /// Replaces its configuration file and sends SIGHUP.
    pub fn reload(&self, toml: &str) {
        std::fs::write(config_path(&self.dir), toml).expect("write");
        self.signal(Signal::SIGHUP);
    }

    /// Replaces or removes a drop-in file and sends SIGHUP.
    pub fn reload_drop_in(&self, name: &str, toml: Option<&str>) {
        let dir = self.dir.path().join("conf.d");
        std::fs::create_dir_all(&dir).expect("create");
        match toml {
            Some(toml) => std::fs::write(dir.join(name), toml).expect("write"),
            None => std::fs::remove_file(dir.join(name)).expect("remove"),
        }
        self.signal(Signal::SIGHUP);
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(lock(&self.child).id().try_into().expect("pid"))
    }

    /// Kills it with SIGKILL.
    pub fn kill(&self) {
        let mut child = lock(&self.child);
        // It may have exited already.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts it again after [`Proxy::kill`], with the same configuration and files, and waits until it is ready.
    pub async fn start_again(&self) {
        let (child, reader) = run(&mut lock(&self.command), &self.log);
        *lock(&self.child) = child;
        *lock(&self.reader) = Some(reader);
        self.wait_ready().await;
    }

    /// Connects as a caller.
    pub async fn client(&self) -> Client {
        Client::connect(&self.socket()).await
    }

    pub async fn wait_ready(&self) {
        until_true("readiness", async || self.get("/readyz").await.0 == 200).await;
    }

    /// Gets a page of the admin endpoint; returns HTTP status and body.
    pub async fn get(&self, path: &str) -> (u16, String) {
        self.http("GET", path, "").await
    }

    /// Gets the response headers of a page of the admin endpoint, in lower case.
    pub async fn head(&self, path: &str) -> String {
        let answer = self.response("GET", path, "").await.expect("an answer");
        let (head, _) = answer.split_once("\r\n\r\n").expect("http");
        head.to_ascii_lowercase()
    }

    /// Sends a request to the admin endpoint; the status is 0 if it does not respond.
    pub async fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        split(self.response(method, path, body).await)
    }

    async fn response(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let stream = TcpStream::connect(("127.0.0.1", self.admin)).await.ok()?;
        exchange(stream, method, path, body).await
    }

    /// Gets a page of the admin endpoint as JSON; null if it is absent.
    pub async fn json(&self, path: &str) -> Value {
        let separator = if path.contains('?') { '&' } else { '?' };
        let (status, text) = self.get(&format!("{path}{separator}format=json")).await;
        if status != 200 {
            return Value::Null;
        }
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"))
    }

    /// The Unix socket of the admin endpoint.
    pub fn admin_socket(&self) -> PathBuf {
        self.listen.with_extension("admin.sock")
    }

    /// Like [`Proxy::http`], over the Unix socket.
    pub async fn by_socket(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let stream = UnixStream::connect(self.admin_socket()).await;
        match stream {
            Ok(stream) => split(exchange(stream, method, path, body).await),
            Err(_) => split(None),
        }
    }

    /// Changes the log level.
    pub async fn set_log_level(&self, level: &str) {
        let (status, text) = self.by_socket("PUT", "/debug/log-level", level).await;
        assert_eq!(status, 204, "{text}");
    }

    pub async fn scrape(&self) -> Scrape {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        Scrape::parse(&text)
    }

    /// Waits for a scrape for which `good` holds. A scrape reads metrics one after the other, so it may lack events that
    /// preceded the condition; the next one has them, and is returned if `good` holds for it too.
    pub async fn wait_scrape(&self, what: &str, good: impl Fn(&Scrape) -> bool) -> Scrape {
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

    /// Asserts that this number of calls has entered and that each has ended exactly once: invariant 2.
    pub async fn wait_balanced(&self, entered: usize) -> Scrape {
        let scrape = self
            .wait_scrape("the end of every call", |scrape| {
                // A scrape is not a snapshot: a call may end between two of its metrics.
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
    pub fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// The JSON lines of the log so far.
    pub fn events(&self) -> Vec<Value> {
        let lines = self.log();
        let parsed = lines.iter().filter_map(|l| serde_json::from_str(l).ok());
        parsed.collect()
    }

    /// Waits for a log line.
    pub async fn wait_line(&self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        until(what, || async {
            self.events().into_iter().find(|line| matches(line))
        })
        .await
    }

    /// Waits for a log line with this event.
    pub async fn wait_event(&self, event: &str) -> Value {
        self.wait_line(event, |line| line["event"] == event).await
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("signal");
    }

    /// The default directory of the flight recorder's dumps.
    pub fn dumps(&self) -> PathBuf {
        self.listen.with_extension("state").join("dumps")
    }

    /// Waits for a dump with this reason; returns its JSON and its trace.
    pub async fn wait_dump(&self, reason: &str) -> [Vec<u8>; 2] {
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

    /// Waits until it exits; returns its exit status and the complete log.
    pub async fn ended(self) -> (ExitStatus, Vec<String>) {
        let status = until("end of criscope", || async {
            lock(&self.child).try_wait().expect("wait")
        })
        .await;
        if let Some(reader) = lock(&self.reader).take() {
            reader.join().expect("reader");
        }
        (status, self.log())
    }

    /// Stops it like a service manager; asserts that it exits with 0.
    pub async fn stop(self) -> Vec<String> {
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
