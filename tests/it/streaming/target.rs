//! A target without containers: commands by name, and ports of this machine.

use std::io;

use cri_streaming::{AttachRequest, ExecRequest, RuntimeError, SessionStreams, StreamingRuntime};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::prelude::*;

/// Counters of what the commands did.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Commands that are running.
    pub(super) running: AtomicUsize,
    /// Commands that saw the client disconnect.
    pub(super) gone: AtomicUsize,
    /// Bytes that `flood` has written.
    pub(super) flooded: AtomicUsize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fake(pub(super) Arc<Seen>);

impl Fake {
    async fn run(
        self,
        argv: Vec<String>,
        mut streams: SessionStreams,
    ) -> Result<i32, RuntimeError> {
        let argument = argv.get(1).cloned().unwrap_or_default();
        let number = argument.parse().unwrap_or(0);
        match argv[0].rsplit('/').next().unwrap_or_default() {
            "exit" => return Ok(number),
            "fail" => return Err(RuntimeError::Failed("no such file".into())),
            "panic" => panic!("as the test wants"),
            // Copies its input to its output.
            "cat" => {
                let (mut stdin, mut stdout) = both(&mut streams);
                tokio::io::copy(&mut stdin, &mut stdout).await?;
            }
            // Like `cat`, after this many milliseconds without reading.
            "late" => {
                let (mut stdin, mut stdout) = both(&mut streams);
                stdout.write_all(b"begun").await?;
                tokio::time::sleep(Duration::from_millis(u64::try_from(number).unwrap_or(0))).await;
                tokio::io::copy(&mut stdin, &mut stdout).await?;
            }
            // Reads its input in small pieces with this many milliseconds between; prints the length.
            "sip" => {
                let (mut stdin, mut stdout) = both(&mut streams);
                let (mut all, mut buffer) = (0, vec![0; 16 << 10]);
                while let n @ 1.. = stdin.read(&mut buffer).await? {
                    all += n;
                    tokio::time::sleep(Duration::from_millis(u64::try_from(number).unwrap_or(0)))
                        .await;
                }
                stdout.write_all(all.to_string().as_bytes()).await?;
            }
            // Prints on both outputs, without waiting for input.
            "say" => {
                if let Some(out) = &mut streams.stdout {
                    out.write_all(format!("out:{argument}").as_bytes()).await?;
                }
                if let Some(err) = &mut streams.stderr {
                    err.write_all(format!("err:{argument}").as_bytes()).await?;
                }
            }
            // Prints this many bytes.
            "flood" => {
                let (mut left, block) = (usize::try_from(number).unwrap_or(0), [b'x'; 32 << 10]);
                let out = streams.stdout.as_mut().expect("stdout");
                while left > 0 {
                    let n = left.min(block.len());
                    out.write_all(&block[..n]).await?;
                    self.0.flooded.fetch_add(n, Ordering::SeqCst);
                    left -= n;
                }
            }
            // Prints the sizes of the terminal until the input ends, then the last one.
            "sizes" => {
                let mut stdin = streams.stdin.take().expect("stdin");
                let out = streams.stdout.as_mut().expect("stdout");
                let mut rest = Vec::new();
                let read = stdin.read_to_end(&mut rest);
                tokio::pin!(read);
                let mut last = None;
                loop {
                    tokio::select! {
                        biased;
                        Some(size) = streams.resize.recv() => {
                            let text = format!("{}x{}\n", size.width, size.height);
                            out.write_all(text.as_bytes()).await?;
                            last = Some(text);
                        }
                        _ = &mut read => break,
                    }
                }
                out.write_all(format!("last {}", last.unwrap_or_default()).as_bytes())
                    .await?;
            }
            // Runs until the client disconnects.
            "wait" => {
                if let Some(out) = &mut streams.stdout {
                    out.write_all(b"begun").await?;
                }
                streams.gone.cancelled().await;
                self.0.gone.fetch_add(1, Ordering::SeqCst);
            }
            other => return Err(RuntimeError::Failed(format!("no command {other}"))),
        }
        Ok(0)
    }
}

fn both(streams: &mut SessionStreams) -> (cri_streaming::InputStream, cri_streaming::OutputStream) {
    let stdin = streams.stdin.take().expect("stdin");
    (stdin, streams.stdout.take().expect("stdout"))
}

/// Decrements the counter when a command ends, however it ends.
struct Running(Arc<Seen>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StreamingRuntime for Fake {
    fn exec(
        &self,
        exec: ExecRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, Result<i32, RuntimeError>> {
        let fake = self.clone();
        fake.0.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&fake.0));
        Box::pin(async move {
            let _running = running;
            fake.run(exec.argv, streams).await
        })
    }

    fn attach(
        &self,
        attach: AttachRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, Result<(), RuntimeError>> {
        let fake = self.clone();
        Box::pin(async move {
            if attach.container == "gone" {
                return Err(RuntimeError::NotRunning(
                    "container gone is not running".into(),
                ));
            }
            fake.run(vec!["cat".into()], streams).await.map(|_| ())
        })
    }

    fn dial(
        &self,
        sandbox: &str,
        port: u16,
    ) -> BoxFuture<'static, Result<TcpStream, RuntimeError>> {
        let known = sandbox == "pod";
        Box::pin(async move {
            if !known {
                return Err(RuntimeError::NotRunning("no such pod".into()));
            }
            let connected = match TcpStream::connect(("127.0.0.1", port)).await {
                Err(_) => TcpStream::connect(("::1", port)).await,
                connected => connected,
            };
            connected.map_err(|e: io::Error| e.into())
        })
    }
}
