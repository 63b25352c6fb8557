//! Fuzz target: arbitrary bytes from the client after the upgrade, through everything between the connection and the
//! runtime.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Extensions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::context::{SessionContext, StopSignal};
use super::observe::{SessionObservers, SessionOutcome};
use super::request::{PendingSession, SessionRequest, SessionTarget, StreamOptions};
use super::run::{NegotiatedSession, serve};
use super::runtime::{AttachRequest, ExecRequest, RuntimeError, SessionStreams, StreamingRuntime};
use super::session::{ActivityIo, ConnectionActivity, ObservedSession, SessionInfo};
use super::spdy::ScriptedIo;
use super::upgrade::SessionProtocol;

/// Nothing here waits for an external event, so a session that takes longer than this hangs.
const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves one session whose client sends these bytes and closes. The first byte selects the protocol, the second the
/// streams and the behaviour of the command; the rest is sent in pieces, whose size is its own first byte. Returns how the
/// session ended.
///
/// # Panics
///
/// If the session does not end, keeps its permit, or sends something other than a sequence of whole frames.
pub fn fuzz(bytes: &[u8]) -> Option<SessionOutcome> {
    let [protocol, wanted, bytes @ ..] = bytes else {
        return None;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    Some(runtime.block_on(session(*protocol, *wanted, bytes)))
}

async fn session(protocol: u8, wanted: u8, bytes: &[u8]) -> SessionOutcome {
    let protocol = match protocol % 10 {
        version @ 1..=5 => SessionProtocol::SpdyRemote(version),
        0 => SessionProtocol::SpdyForward,
        6 => SessionProtocol::Tunnel,
        7 => channels(5, false),
        8 => channels(4, true),
        _ => channels(1, wanted & 0x80 != 0),
    };
    let is_forward = match protocol {
        SessionProtocol::SpdyForward | SessionProtocol::Tunnel => true,
        SessionProtocol::Channels { .. } => wanted & 0x40 != 0,
        SessionProtocol::SpdyRemote(_) => false,
    };
    let pending = PendingSession {
        request: request(is_forward, wanted),
        extensions: Extensions::new(),
    };
    let info = SessionInfo::from_pending(&pending);
    let start = NegotiatedSession::new(pending, ("fuzz", protocol)).expect("it has ports");
    let permits = Arc::new(Semaphore::new(1));
    let permit = Arc::clone(&permits).try_acquire_owned().expect("a permit");
    let session = ObservedSession::begin(
        info,
        protocol.transport(),
        "fuzz",
        &SessionObservers(Arc::new([])),
    );
    let activity = ConnectionActivity::new();
    let (_trigger, stop) = StopSignal::new();
    let context = SessionContext {
        runtime: Arc::new(FuzzRuntime),
        meter: session.meter(),
        activity: activity.clone(),
        creation_timeout: SESSION_TIMEOUT,
        stop,
        idle_timeout: 10 * SESSION_TIMEOUT,
        permit: Arc::new(permit),
    };
    let sent = Arc::new(Mutex::new(Vec::new()));
    let io = ActivityIo::new(ScriptedIo::new(bytes, &sent), activity);
    let ended = timeout(SESSION_TIMEOUT, serve(&context, start, io)).await;
    let ended = ended.expect("the session does not end");
    drop(context);
    let given_back = timeout(SESSION_TIMEOUT, permits.acquire()).await;
    assert!(given_back.is_ok(), "the session keeps its permit");
    let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    match protocol {
        SessionProtocol::SpdyRemote(_) | SessionProtocol::SpdyForward => whole(&sent, spdy_frame),
        SessionProtocol::Channels { .. } | SessionProtocol::Tunnel => whole(&sent, websocket_frame),
    }
    ended.outcome
}

const fn channels(version: u8, base64: bool) -> SessionProtocol {
    SessionProtocol::Channels { version, base64 }
}

fn request(is_forward: bool, wanted: u8) -> SessionRequest {
    if is_forward {
        return SessionRequest::Forward {
            sandbox: "s".to_owned(),
            ports: vec![80, 81],
        };
    }
    let tty = wanted & 8 != 0;
    let streams = StreamOptions {
        stdin: wanted & 1 != 0,
        stdout: wanted & 2 != 0,
        stderr: wanted & 4 != 0 && !tty,
        tty,
    };
    let exec = ExecRequest {
        container: "c".to_owned(),
        argv: vec![(wanted >> 4 & 3).to_string()],
        tty,
    };
    SessionRequest::Remote(SessionTarget::Exec(exec), streams)
}

/// Checks that the output consists of whole frames; `frame` returns the length of the first one, and whether it must be the
/// last.
fn whole(mut sent: &[u8], frame: fn(&[u8]) -> Option<(usize, bool)>) {
    while !sent.is_empty() {
        let (len, is_last) = frame(sent).expect("a whole head of a frame");
        assert!(len <= sent.len(), "a truncated frame");
        sent = &sent[len..];
        assert!(!is_last || sent.is_empty(), "data follows the end");
    }
}

fn spdy_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let [a, _, _, kind, _, lengths @ ..] = *bytes.first_chunk::<8>()?;
    let len = lengths.iter().fold(0, |len, b| len << 8 | usize::from(*b));
    Some((8 + len, a & 0x80 != 0 && kind == 7))
}

fn websocket_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let is_close = bytes.first()? & 15 == 8;
    let (head, len) = match *bytes.get(1)? {
        126 => (4, u64::from(u16::from_be_bytes(*bytes[2..].first_chunk()?))),
        127 => (10, u64::from_be_bytes(*bytes[2..].first_chunk()?)),
        len => (2, u64::from(len)),
    };
    Some((head + usize::try_from(len).ok()?, is_close))
}

/// A runtime in which the name of the command selects its behaviour.
struct FuzzRuntime;

impl StreamingRuntime for FuzzRuntime {
    fn exec(
        &self,
        exec: ExecRequest,
        mut streams: SessionStreams,
    ) -> BoxFuture<'static, Result<i32, RuntimeError>> {
        Box::pin(async move {
            let mut input = Vec::new();
            match exec.argv.first().map_or("", String::as_str) {
                // Echoes its input.
                "0" => {
                    if let Some(stdin) = &mut streams.stdin {
                        let _ = stdin.read_to_end(&mut input).await;
                    }
                    let outputs = [&mut streams.stdout, &mut streams.stderr];
                    for output in outputs.into_iter().flatten() {
                        let _ = output.write_all(&input).await;
                    }
                    Ok(0)
                }
                // Reads nothing and writes a lot.
                "1" => {
                    if let Some(stdout) = &mut streams.stdout {
                        let _ = stdout.write_all(&[b'x'; 200_000]).await;
                    }
                    Ok(7)
                }
                // Waits for the client to disconnect. It keeps reading: behind unread input, the end of the connection is
                // noticed only when a heartbeat fails, and this connection never fails.
                "2" => {
                    let mut gone = std::pin::pin!(streams.gone.cancelled());
                    let mut room = [0; 4096];
                    while let Some(stdin) = &mut streams.stdin {
                        tokio::select! {
                            () = &mut gone => break,
                            read = stdin.read(&mut room) => {
                                if !matches!(read, Ok(1..)) {
                                    break;
                                }
                            }
                        }
                    }
                    gone.await;
                    while streams.resize.recv().await.is_some() {}
                    Ok(1)
                }
                _ => Err(RuntimeError::Failed("told to fail".to_owned())),
            }
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

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    #[test]
    fn damaged_sessions_of_the_corpus_end() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/session");
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect(folder)
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        let mut rng = StdRng::seed_from_u64(4);
        let mut outcomes = std::collections::HashSet::new();
        for path in paths {
            let mut bytes = std::fs::read(path).expect("a seed");
            outcomes.extend(fuzz(&bytes));
            for _ in 0..20 {
                let at = rng.random_range(0..bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.random();
                }
                outcomes.extend(fuzz(&bytes));
            }
        }
        for outcome in [
            SessionOutcome::Done,
            SessionOutcome::ClientGone,
            SessionOutcome::Protocol,
        ] {
            assert!(outcomes.contains(&outcome), "none is {}", outcome.name());
        }
    }
}
