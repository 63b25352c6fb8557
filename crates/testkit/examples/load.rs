//! What a restart of criscope must not cut, for `tests/v2/handover.sh`: calls in flight, one of them a pull; exec sessions; and a
//! forwarded port. Data flows through the sessions and the port in both directions all the time.
//!
//! usage: load ENDPOINT CALLS SESSIONS SECONDS
//!
//! Uses the first running container, with busybox, in a pod with the network of the host. Prints `started` when everything is in progress,
//! and `ended` with what it has counted. It fails if a call or a session fails, or if bytes are lost.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use cri_streaming::client::{CommandEvent, run_command};
use cri_streaming::{StreamOptions, Transport};
use criscope::client;
use criscope::cri::v1;
use criscope_testkit::registry::{Registry, trickle};
use criscope_testkit::session::{ForwardedPort, connect, in_time, refused};
use criscope_testkit::{image, requests};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Channel;

type Failure = Box<dyn Error + Send + Sync>;

const BUSYBOX: &str = "/bin/busybox";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two lines of a session.
const PAUSE: Duration = Duration::from_millis(200);
/// A registry that trickles sends a piece every 100 ms.
const PIECES_PER_SECOND: usize = 10;

/// The pod and the container of the load.
#[derive(Clone)]
struct Target {
    channel: Channel,
    pod: v1::PodSandbox,
    container: String,
    duration: Duration,
    started: mpsc::Sender<()>,
}

/// Lines that one end sends, and the other end sends back.
struct Lines {
    sent: usize,
    expected: Vec<u8>,
    until: Instant,
}

impl Lines {
    fn new(duration: Duration) -> Self {
        Self {
            sent: 0,
            expected: Vec::new(),
            until: Instant::now() + duration,
        }
    }

    /// The next line, after a pause, or none when the time is over.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if Instant::now() > self.until {
            return None;
        }
        if self.sent > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        self.sent += 1;
        let line = format!("line {}\n", self.sent).into_bytes();
        self.expected.extend_from_slice(&line);
        Some(line)
    }

    /// Checks bytes that came back. Returns whether all have.
    fn check(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if !self.expected.starts_with(bytes) {
            let got = String::from_utf8_lossy(bytes);
            return Err(io::Error::other(format!(
                "{got:?} after line {}",
                self.sent
            )));
        }
        self.expected.drain(..bytes.len());
        Ok(self.expected.is_empty())
    }
}

impl Target {
    /// A call that takes as long as the load.
    async fn exec_sync(self) -> Result<usize, Failure> {
        let seconds = self.duration.as_secs().to_string();
        let command = [BUSYBOX, "sleep", &seconds].map(str::to_owned).to_vec();
        let exec = requests::exec_sync(&self.container, command, 0);
        self.started.send(()).await?;
        let ended = client::runtime(self.channel).exec_sync(exec).await?;
        match ended.into_inner().exit_code {
            0 => Ok(0),
            code => Err(format!("exit code {code}").into()),
        }
    }

    /// A pull that takes as long as the load.
    async fn pull(self) -> Result<usize, Failure> {
        let registry = Registry::start().await;
        let pieces = self.duration.as_secs() as usize * PIECES_PER_SECOND;
        let content = image::noise(std::process::id(), 1000 * pieces);
        let layered = image::with_file(&content);
        let name = registry.push("load", &std::process::id().to_string(), &layered);
        let layer = layered.layers[0].clone();
        let digest = image::digest(&layer);
        registry.hook(move |asked| {
            let is_layer = asked.path.ends_with(digest.as_str()) && asked.method == "GET";
            is_layer.then(|| trickle(&layer, 0, layer.len().div_ceil(pieces)))
        });
        self.started.send(()).await?;
        let pull = v1::PullImageRequest {
            image: Some(requests::image_spec(&name)),
            sandbox_config: Some(v1::PodSandboxConfig {
                metadata: self.pod.metadata,
                ..Default::default()
            }),
            ..Default::default()
        };
        client::images(self.channel).pull_image(pull).await?;
        Ok(0)
    }

    /// A session of `cat`. Returns the number of lines that came back.
    async fn exec(self) -> Result<usize, Failure> {
        let command = [BUSYBOX, "cat"].map(str::to_owned).to_vec();
        let exec = requests::exec(&self.container, command, "io");
        let url = client::runtime(self.channel).exec(exec).await?;
        let url = url.into_inner().url;
        let streams = StreamOptions {
            stdin: true,
            stdout: true,
            stderr: false,
            tty: false,
        };
        let tcp = in_time(connect(&url)).await?;
        let begun = run_command(tcp, &url, Transport::Spdy, streams).await;
        let (mut input, mut output) = begun.map_err(refused)?;
        let mut lines = Lines::new(self.duration);
        while let Some(line) = lines.next().await {
            in_time(input.send(&line)).await?;
            loop {
                match in_time(output.next()).await? {
                    Some(CommandEvent::Stdout(bytes)) if lines.check(&bytes)? => break,
                    Some(CommandEvent::Stdout(_)) => {}
                    other => return Err(format!("{other:?} after line {}", lines.sent).into()),
                }
            }
            if lines.sent == 1 {
                self.started.send(()).await?;
            }
        }
        in_time(input.finish()).await?;
        while let Some(event) = in_time(output.next()).await? {
            match event {
                CommandEvent::Status(status) if contains(&status, "Success") => {}
                other => return Err(format!("{other:?} at the end").into()),
            }
        }
        Ok(lines.sent)
    }

    /// A port of the pod that sends everything back. Returns the number of lines that came back.
    async fn forward(self) -> Result<usize, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port().to_string();
        tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await?;
            let (mut read, mut write) = tcp.split();
            tokio::io::copy(&mut read, &mut write).await
        });
        let forward = requests::forward(&self.pod.id);
        let url = client::runtime(self.channel).port_forward(forward).await?;
        let mut port = ForwardedPort::connect(&url.into_inner().url, &port).await?;
        let mut lines = Lines::new(self.duration);
        while let Some(line) = lines.next().await {
            port.send(&line, false).await?;
            loop {
                let (bytes, is_last) = port.next().await?;
                // The end of the error stream has no bytes.
                if lines.check(&bytes)? {
                    break;
                }
                if is_last {
                    return Err(format!("it ends after line {}", lines.sent).into());
                }
            }
            if lines.sent == 1 {
                self.started.send(()).await?;
            }
        }
        Ok(lines.sent)
    }
}

fn contains(bytes: &[u8], words: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(words)
}

async fn find(
    endpoint: &str,
    duration: Duration,
    started: mpsc::Sender<()>,
) -> Result<Target, Failure> {
    let channel = client::connect(&client::socket_path(endpoint)?, CONNECT_TIMEOUT).await?;
    let running = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning.into(),
        }),
        ..Default::default()
    };
    let request = v1::ListContainersRequest {
        filter: Some(running),
    };
    let listed = client::runtime(channel.clone())
        .list_containers(request)
        .await?;
    let container = listed.into_inner().containers.into_iter().next();
    let container = container.ok_or("no container runs")?;
    let filter = v1::PodSandboxFilter {
        id: container.pod_sandbox_id,
        ..Default::default()
    };
    let request = v1::ListPodSandboxRequest {
        filter: Some(filter),
    };
    let listed = client::runtime(channel.clone())
        .list_pod_sandbox(request)
        .await?;
    let pod = listed.into_inner().items.into_iter().next();
    Ok(Target {
        channel,
        pod: pod.ok_or("the container has no pod")?,
        container: container.id,
        duration,
        started,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [endpoint, calls, sessions, seconds] = &arguments[..] else {
        return Err("usage: load ENDPOINT CALLS SESSIONS SECONDS".into());
    };
    let (calls, sessions): (usize, usize) = (calls.parse()?, sessions.parse()?);
    let duration = Duration::from_secs(seconds.parse()?);
    let all = calls + sessions + 1;
    let (started, mut starts) = mpsc::channel(all);
    let target = find(endpoint, duration, started).await?;
    let mut load = JoinSet::new();
    load.spawn(target.clone().pull());
    for _ in 1..calls {
        load.spawn(target.clone().exec_sync());
    }
    for _ in 0..sessions {
        load.spawn(target.clone().exec());
    }
    load.spawn(target.forward());
    let (mut are_started, mut lines) = (0, 0);
    while !load.is_empty() {
        tokio::select! {
            Some(()) = starts.recv() => {
                are_started += 1;
                if are_started == all {
                    println!("started");
                }
            }
            Some(ended) = load.join_next() => lines += ended??,
        }
    }
    println!("ended: {calls} calls, {sessions} sessions and a forwarded port with {lines} lines");
    Ok(())
}
