//! Everything into a command and out of it again, both at a time.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::payload::Payload;
use super::spdy::{self, Event, Spdy};
use super::{upgrade, websocket};

/// Comes back before the clock runs: the command is there then. How long that takes is measured with the pods.
const HELLO: &[u8] = b"hello";

/// The channels of a session over WebSocket.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STATUS: u8 = 3;
/// Ends the channel that it names.
const END: u8 = 255;

/// From the first byte in to the last byte out. Blocks.
///
/// # Errors
/// When not every byte arrives as it was sent, or the session does not end well.
pub(super) fn over_spdy(url: &str, payload: &Payload) -> io::Result<Duration> {
    let mut spdy = Spdy::new(upgrade::spdy(url, "v4.channel.k8s.io")?)?;
    let status = spdy.open(&[("streamtype", "error")])?;
    let stdin = spdy.open(&[("streamtype", "stdin")])?;
    let stdout = spdy.open(&[("streamtype", "stdout")])?;
    let input = SpdyInput {
        sender: spdy.sender,
        stdin,
    };
    let output = SpdyOutput {
        receiver: spdy.receiver,
        stdout,
        status,
    };
    pass(input, output, payload)
}

/// The same, by newer clients.
///
/// # Errors
/// As above.
pub(super) fn over_websocket(url: &str, payload: &Payload) -> io::Result<Duration> {
    let tcp = upgrade::websocket(url, "v5.channel.k8s.io")?;
    let (input, output) = websocket::halves(tcp)?;
    pass(input, output, payload)
}

/// Towards the command.
trait Input: Send {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
}

/// From the command.
trait Output {
    fn next(&mut self) -> io::Result<Said<'_>>;
    /// Ends the connection.
    fn hang_up(&self);
}

enum Said<'a> {
    Output(&'a [u8]),
    /// What became of the command; with its last part the session is over.
    Status {
        bytes: &'a [u8],
        is_last: bool,
    },
}

impl Said<'_> {
    const END: Self = Self::Status {
        bytes: &[],
        is_last: true,
    };
}

fn pass(mut input: impl Input, mut output: impl Output, payload: &Payload) -> io::Result<Duration> {
    input.send(HELLO)?;
    loop {
        match output.next()? {
            Said::Output(HELLO) => break,
            // What a server of WebSockets begins each channel with.
            Said::Output([])
            | Said::Status {
                bytes: [],
                is_last: false,
            } => {}
            Said::Output(_) => return Err(io::Error::other("the command says something else")),
            Said::Status { bytes, .. } => return Err(bad(bytes)),
        }
    }
    let begin = Instant::now();
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(move || {
            payload.pieces().try_for_each(|piece| input.send(piece))?;
            input.end()
        });
        let received = receive(&mut output, payload);
        if received.is_err() {
            output.hang_up();
        }
        (sending.join(), received)
    });
    let end = received?;
    sent.map_err(|_| io::Error::other("sending panicked"))??;
    Ok(end - begin)
}

/// Everything until the end of the session. Gives when the last byte of the output was there.
fn receive(output: &mut impl Output, payload: &Payload) -> io::Result<Instant> {
    let (mut check, mut end, mut whole) = (payload.check(), Instant::now(), Vec::new());
    loop {
        match output.next()? {
            Said::Output(bytes) => {
                if check.next(bytes)? && !bytes.is_empty() {
                    end = Instant::now();
                }
            }
            Said::Status { bytes, is_last } => {
                whole.extend(bytes);
                if is_last {
                    break;
                }
            }
        }
    }
    let status: serde_json::Value = serde_json::from_slice(&whole).unwrap_or_default();
    if status["status"] != "Success" {
        return Err(bad(&whole));
    }
    check.finish()?;
    Ok(end)
}

fn bad(status: &[u8]) -> io::Error {
    let status = String::from_utf8_lossy(status);
    io::Error::other(format!("the command did not end well: {status}"))
}

struct SpdyInput {
    sender: spdy::Sender,
    stdin: u32,
}

impl Input for SpdyInput {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sender.data(self.stdin, bytes, false)
    }

    fn end(&mut self) -> io::Result<()> {
        self.sender.data(self.stdin, &[], true)
    }
}

struct SpdyOutput {
    receiver: spdy::Receiver,
    stdout: u32,
    status: u32,
}

impl Output for SpdyOutput {
    fn next(&mut self) -> io::Result<Said<'_>> {
        Ok(match self.receiver.next()? {
            Event::Data {
                stream,
                bytes,
                is_last,
            } => match stream {
                stream if stream == self.stdout => Said::Output(bytes),
                stream if stream == self.status => Said::Status { bytes, is_last },
                other => return Err(io::Error::other(format!("data on stream {other}"))),
            },
            // containerd ends this stream by a reset, behind the status.
            Event::Reset(id) if id == self.status => Said::END,
            _ => Said::Output(&[]),
        })
    }

    fn hang_up(&self) {
        self.receiver.hang_up();
    }
}

impl Input for websocket::Sender {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.message(STDIN, bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        self.message(END, &[STDIN])
    }
}

impl Output for websocket::Receiver {
    fn next(&mut self) -> io::Result<Said<'_>> {
        Ok(match self.next()? {
            Some((STDOUT, bytes)) => Said::Output(bytes),
            Some((STATUS, bytes)) => Said::Status {
                bytes,
                is_last: false,
            },
            Some((channel, bytes)) if !bytes.is_empty() => {
                return Err(io::Error::other(format!("bytes on channel {channel}")));
            }
            Some(_) => Said::Output(&[]),
            None => Said::END,
        })
    }

    fn hang_up(&self) {
        self.hang_up();
    }
}
