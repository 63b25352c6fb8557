//! Sends the payload to a command and receives it back, concurrently.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cri_streaming::client::{CommandEvent, run_command};
use cri_streaming::{StreamOptions, Transport};
use criscope_testkit::session::{connect, in_time, refused};

use super::payload::Payload;

/// Echoed before the measurement starts, so that the command is running. Its start is measured with the pods.
const HELLO: &[u8] = b"hello";

/// The streams of `cat`.
const STREAMS: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: false,
};

/// Returns the time from the first byte sent to the last byte received.
///
/// # Errors
/// If a byte differs, or the session fails.
pub(super) async fn pass(
    url: &str,
    transport: Transport,
    payload: Arc<Payload>,
) -> io::Result<Duration> {
    let started = in_time(async {
        let tcp = connect(url).await?;
        run_command(tcp, url, transport, STREAMS)
            .await
            .map_err(refused)
    });
    let (mut input, mut output) = started.await?;
    in_time(input.send(HELLO)).await?;
    match in_time(output.next()).await? {
        Some(CommandEvent::Stdout(bytes)) if bytes == HELLO => {}
        Some(CommandEvent::Status(status)) => return Err(bad(&status)),
        _ => return Err(io::Error::other("unexpected output of the command")),
    }
    let begin = Instant::now();
    let sent = Arc::clone(&payload);
    let sending = tokio::spawn(async move {
        for piece in sent.pieces() {
            in_time(input.send(piece)).await?;
        }
        in_time(input.finish()).await
    });
    let (mut check, mut end, mut status) = (payload.check(), Instant::now(), Vec::new());
    // Reads until the end of the session.
    while let Some(event) = in_time(output.next()).await? {
        match event {
            CommandEvent::Stdout(bytes) => {
                if check.next(&bytes)? {
                    end = Instant::now();
                }
            }
            CommandEvent::Stderr(_) => {
                return Err(io::Error::other("output on an unexpected stream"));
            }
            CommandEvent::Status(bytes) => status.extend(bytes),
        }
    }
    let parsed: serde_json::Value = serde_json::from_slice(&status).unwrap_or_default();
    if parsed["status"] != "Success" {
        return Err(bad(&status));
    }
    check.finish()?;
    sending
        .await
        .map_err(|_| io::Error::other("sending panicked"))??;
    Ok(end - begin)
}

fn bad(status: &[u8]) -> io::Error {
    let status = String::from_utf8_lossy(status);
    io::Error::other(format!("the command failed: {status}"))
}
