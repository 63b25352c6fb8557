//! A server that runs commands of this machine, and a client that runs `cat` over SPDY and over WebSocket.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use cri_streaming::client::{CommandEvent, CommandResult, run_command, split_url};
use cri_streaming::{
    AttachRequest, ExecRequest, RuntimeError, ServerConfig, SessionObservers, SessionRequest,
    SessionServer, SessionStreams, StreamOptions, StreamingRuntime, Transport,
};
use futures_util::future::BoxFuture;
use http::Extensions;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Runs commands of this machine, without a container.
struct Local;

impl StreamingRuntime for Local {
    fn exec(
        &self,
        exec: ExecRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, Result<i32, RuntimeError>> {
        Box::pin(async move { Ok(run(&exec.argv, streams).await?) })
    }

    fn attach(
        &self,
        _: AttachRequest,
        _: SessionStreams,
    ) -> BoxFuture<'static, Result<(), RuntimeError>> {
        Box::pin(async { Err(RuntimeError::NotRunning("there is no container".into())) })
    }

    fn dial(&self, _: &str, port: u16) -> BoxFuture<'static, Result<TcpStream, RuntimeError>> {
        Box::pin(async move { Ok(TcpStream::connect(("127.0.0.1", port)).await?) })
    }
}

async fn run(argv: &[String], streams: SessionStreams) -> io::Result<i32> {
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let input = async {
        if let (Some(mut from), Some(mut to)) = (streams.stdin, stdin) {
            tokio::io::copy(&mut from, &mut to).await?;
        }
        io::Result::Ok(())
    };
    let output = async {
        if let (Some(mut from), Some(mut to)) = (stdout, streams.stdout) {
            tokio::io::copy(&mut from, &mut to).await?;
        }
        io::Result::Ok(())
    };
    tokio::try_join!(input, output)?;
    Ok(child.wait().await?.code().unwrap_or(128))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = ServerConfig {
        base_url: format!("http://{}", listener.local_addr()?),
        idle_timeout: Duration::from_secs(60),
        creation_timeout: Duration::from_secs(10),
        max_sessions: 10,
    };
    let server = SessionServer::new(config, Arc::new(Local), SessionObservers(Arc::new([])));
    let http = server.http(CancellationToken::new(), TaskTracker::new());
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let http = http.clone();
            tokio::spawn(async move { http.serve_connection(tcp).await });
        }
    });

    let streams = StreamOptions {
        stdin: true,
        stdout: true,
        stderr: false,
        tty: false,
    };
    for transport in [Transport::Spdy, Transport::WebSocket] {
        let exec = ExecRequest {
            container: "any".into(),
            argv: vec!["cat".into()],
            tty: false,
        };
        let url = server.issue(SessionRequest::exec(exec, streams)?, Extensions::new())?;
        let tcp = TcpStream::connect(split_url(&url)?.0).await?;
        let (mut input, mut output) = run_command(tcp, &url, transport, streams).await?;
        input.send(b"hello\n").await?;
        input.finish().await?;
        while let Some(event) = output.next().await? {
            match event {
                CommandEvent::Stdout(bytes) => print!("{}", String::from_utf8_lossy(&bytes)),
                CommandEvent::Stderr(bytes) => eprint!("{}", String::from_utf8_lossy(&bytes)),
                CommandEvent::Status(status) => {
                    println!("{}: {:?}", transport.name(), CommandResult::parse(&status));
                }
            }
        }
    }
    Ok(())
}
