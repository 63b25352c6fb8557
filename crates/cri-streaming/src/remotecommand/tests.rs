//! The order in which a session ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Extensions;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::serve_spdy;
use crate::client::{SpdyFrame, SpdyReceiver, SpdySender};
use crate::context::{SessionContext, StopSignal};
use crate::observe::{SessionKind, SessionObservers, SessionOutcome, Transport};
use crate::request::{SessionTarget, StreamOptions};
use crate::runtime::{AttachRequest, ExecRequest, RuntimeError, SessionStreams, StreamingRuntime};
use crate::session::{ConnectionActivity, ObservedSession, SessionInfo};

const HOUR: Duration = Duration::from_secs(3600);

/// More than a connection has room for at once, and less than is accepted while the client does not read.
const OUTPUT_LEN: usize = 220_000;

/// Writes [`OUTPUT_LEN`] bytes and exits.
struct WritingRuntime;

impl StreamingRuntime for WritingRuntime {
    fn exec(
        &self,
        _: ExecRequest,
        mut streams: SessionStreams,
    ) -> BoxFuture<'static, Result<i32, RuntimeError>> {
        Box::pin(async move {
            let stdout = streams.stdout.as_mut().expect("stdout");
            stdout.write_all(&[b'x'; OUTPUT_LEN]).await?;
            Ok(0)
        })
    }

    fn attach(
        &self,
        _: AttachRequest,
        _: SessionStreams,
    ) -> BoxFuture<'static, Result<(), RuntimeError>> {
        Box::pin(async { Ok(()) })
    }

    fn dial(&self, _: &str, _: u16) -> BoxFuture<'static, Result<TcpStream, RuntimeError>> {
        Box::pin(async { Err(RuntimeError::Failed("nothing listens".to_owned())) })
    }
}

async fn context(stop: StopSignal) -> SessionContext {
    let info = SessionInfo {
        kind: SessionKind::Exec,
        id: "c".into(),
        command: vec![],
        extensions: Extensions::new(),
    };
    let session =
        ObservedSession::begin(info, Transport::Spdy, "p", &SessionObservers(Arc::new([])));
    let permits = Arc::new(Semaphore::new(1));
    SessionContext {
        runtime: Arc::new(WritingRuntime),
        meter: session.meter(),
        activity: ConnectionActivity::new(),
        creation_timeout: HOUR,
        stop,
        idle_timeout: HOUR,
        permit: Arc::new(permits.acquire_owned().await.expect("a permit")),
    }
}

#[tokio::test(start_paused = true)]
async fn the_result_never_overtakes_output_that_the_client_has_not_read() {
    let (_trigger, stop) = StopSignal::new();
    let context = context(stop).await;
    let (near, far) = tokio::io::duplex(1000);
    let exec = ExecRequest {
        container: "c".to_owned(),
        argv: vec!["any".to_owned()],
        tty: false,
    };
    let streams = StreamOptions {
        stdin: false,
        stdout: true,
        stderr: false,
        tty: false,
    };
    let serving = tokio::spawn(async move {
        serve_spdy(&context, far, (SessionTarget::Exec(exec), streams), 4).await
    });
    let (read, write) = tokio::io::split(near);
    let (mut write, mut read) = (
        SpdySender::new(write).expect("a client"),
        SpdyReceiver::new(read),
    );
    let mut ids = [0; 2];
    for (id, kind) in ids.iter_mut().zip(["error", "stdout"]) {
        *id = write.open(&[("streamtype", kind)]).await.expect("sent");
        let reply = read.next().await.expect("a frame");
        assert_eq!(reply, Some(SpdyFrame::Reply { stream: *id }));
    }
    // Paused time advances when no task can do anything: the command has exited by then.
    sleep(HOUR / 10).await;

    let [error, stdout] = ids;
    let (mut length, mut ended) = (0, Vec::new());
    while ended.len() < ids.len() {
        match read.next().await.expect("a frame").expect("not the end") {
            SpdyFrame::Data {
                stream,
                bytes,
                is_last,
            } => {
                length += if stream == stdout { bytes.len() } else { 0 };
                ended.extend(is_last.then_some((stream, length)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ended, [(stdout, OUTPUT_LEN), (error, OUTPUT_LEN)]);
    drop((read, write));
    let end = serving.await.expect("no panic");
    assert_eq!(end.outcome, SessionOutcome::Done);
}
