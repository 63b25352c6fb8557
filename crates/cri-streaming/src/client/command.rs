//! An exec or attach session over either transport.

use std::collections::HashMap;
use std::io;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use super::http::{UpgradeError, UpgradeRequest, split_url};
use super::spdy::{SpdyFrame, SpdyReceiver, SpdySender};
use super::websocket::{BINARY, CLOSE, PING, PONG, WebSocketReceiver, WebSocketSender};
use crate::channels::{CLOSE_CHANNEL, ERROR, RESIZE, STDERR, STDIN, STDOUT};
use crate::observe::Transport;
use crate::request::StreamOptions;
use crate::runtime::TerminalSize;

/// The protocol version: the newest that every supported server implements over this transport.
const SPDY_PROTOCOL: &str = "v4.channel.k8s.io";
const WEBSOCKET_PROTOCOL: &str = "v5.channel.k8s.io";

/// The channels that a session over SPDY ends with.
const ENDING_CHANNELS: [u8; 3] = [STDOUT, STDERR, ERROR];
/// The streams of SPDY have the names of the channels of a WebSocket.
const STREAM_NAMES: [&str; 5] = ["stdin", "stdout", "stderr", "error", "resize"];

/// Starts the session behind `url` on a connection to its server. `streams` must be those of the request for the URL.
///
/// # Errors
/// If the server refuses the upgrade or a stream, or the connection fails.
pub async fn run_command<T>(
    mut io: T,
    url: &str,
    transport: Transport,
    streams: StreamOptions,
) -> Result<(CommandInput<WriteHalf<T>>, CommandOutput<ReadHalf<T>>), UpgradeError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (host, path) = split_url(url)?;
    let is_spdy = transport == Transport::Spdy;
    let request = if is_spdy {
        UpgradeRequest::spdy(host, path, &[SPDY_PROTOCOL])
    } else {
        UpgradeRequest::websocket(host, path, &[WEBSOCKET_PROTOCOL])?
    };
    request.send(&mut io).await?;
    let (read, write) = tokio::io::split(io);
    if !is_spdy {
        let input = CommandInput::WebSocket(WebSocketSender::new(write));
        return Ok((
            input,
            CommandOutput::WebSocket(WebSocketReceiver::new(read)),
        ));
    }
    let (mut sender, mut receiver) = (SpdySender::new(write)?, SpdyReceiver::new(read));
    let (mut ids, mut channels) = ([None; 5], HashMap::new());
    let wanted = [
        (ERROR, true),
        (STDIN, streams.stdin),
        (STDOUT, streams.stdout),
        (STDERR, streams.stderr),
        (RESIZE, streams.tty),
    ];
    // Sequentially and with the error stream first, like Kubernetes clients.
    for (channel, _) in wanted.into_iter().filter(|(_, is_wanted)| *is_wanted) {
        let at = usize::from(channel);
        let id = sender.open(&[("streamtype", STREAM_NAMES[at])]).await?;
        match receiver.next().await? {
            Some(SpdyFrame::Reply { stream }) if stream == id => {}
            _ => return Err(io::Error::other("the server did not accept a stream").into()),
        }
        ids[at] = Some(id);
        channels.insert(id, channel);
    }
    let input = CommandInput::Spdy { sender, ids };
    channels.retain(|_, channel| ENDING_CHANNELS.contains(channel));
    Ok((input, CommandOutput::Spdy { receiver, channels }))
}

/// The standard input of a command, and the size of its terminal.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per session, and not moved around"
)]
pub enum CommandInput<W> {
    /// Over SPDY, with the ids of the streams by channel.
    #[non_exhaustive]
    Spdy {
        /// The connection.
        sender: SpdySender<W>,
        /// The streams.
        ids: [Option<u32>; 5],
    },
    /// Over WebSocket.
    WebSocket(WebSocketSender<W>),
}

impl<W: AsyncWrite + Unpin> CommandInput<W> {
    async fn channel(&mut self, channel: u8, bytes: &[u8], is_last: bool) -> io::Result<()> {
        match self {
            Self::Spdy { sender, ids } => match ids[usize::from(channel)] {
                Some(id) => sender.data(id, bytes, is_last).await,
                None => Err(io::Error::other("the session has no such stream")),
            },
            Self::WebSocket(sender) if is_last => {
                sender.send(BINARY, &[&[CLOSE_CHANNEL, channel]]).await
            }
            Self::WebSocket(sender) => sender.send(BINARY, &[&[channel], bytes]).await,
        }
    }

    /// Sends standard input.
    ///
    /// # Errors
    /// If the session has none or the connection has ended.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.channel(STDIN, bytes, false).await
    }

    /// Ends standard input.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn finish(&mut self) -> io::Result<()> {
        self.channel(STDIN, &[], true).await
    }

    /// Sends the size of the terminal.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn resize(&mut self, size: TerminalSize) -> io::Result<()> {
        let TerminalSize { width, height } = size;
        let size = format!(r#"{{"Width":{width},"Height":{height}}}"#);
        self.channel(RESIZE, size.as_bytes(), false).await
    }
}

/// Output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// A part of the status: a Kubernetes `Status` in JSON.
    Status(Bytes),
}

/// The outputs of a command and its status.
#[derive(Debug)]
pub enum CommandOutput<R> {
    /// Over SPDY, with the channel of each stream.
    #[non_exhaustive]
    Spdy {
        /// The connection.
        receiver: SpdyReceiver<R>,
        /// The streams that have not ended.
        channels: HashMap<u32, u8>,
    },
    /// Over WebSocket.
    WebSocket(WebSocketReceiver<R>),
}

impl<R: AsyncRead + Unpin> CommandOutput<R> {
    /// Returns the next output; `None` once all outputs and the status are complete. Over SPDY, they may end in any order.
    ///
    /// # Errors
    /// If the connection ends earlier.
    pub async fn next(&mut self) -> io::Result<Option<CommandEvent>> {
        loop {
            let (channel, bytes) = match self {
                Self::Spdy { receiver, channels } => {
                    if channels.is_empty() {
                        return Ok(None);
                    }
                    let frame = receiver.next().await?;
                    match frame.ok_or(io::ErrorKind::UnexpectedEof)? {
                        SpdyFrame::Data {
                            stream,
                            bytes,
                            is_last,
                        } => {
                            let channel = if is_last {
                                channels.remove(&stream)
                            } else {
                                channels.get(&stream).copied()
                            };
                            (channel, bytes)
                        }
                        // containerd resets the error stream after the status.
                        SpdyFrame::Reset { stream } => {
                            channels.remove(&stream);
                            continue;
                        }
                        SpdyFrame::GoAway => {
                            return Err(io::ErrorKind::ConnectionAborted.into());
                        }
                        _ => continue,
                    }
                }
                Self::WebSocket(receiver) => {
                    let frame = receiver.next().await?;
                    let mut frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
                    match frame.opcode {
                        CLOSE => return Ok(None),
                        PING | PONG => continue,
                        _ if frame.payload.is_empty() => continue,
                        _ => {
                            let channel = frame.payload.get_u8();
                            (Some(channel), frame.payload)
                        }
                    }
                }
            };
            // On WebSocket channels, servers send an empty message first.
            if bytes.is_empty() {
                continue;
            }
            match channel {
                Some(STDOUT) => return Ok(Some(CommandEvent::Stdout(bytes))),
                Some(STDERR) => return Ok(Some(CommandEvent::Stderr(bytes))),
                Some(ERROR) => return Ok(Some(CommandEvent::Status(bytes))),
                _ => return Err(io::Error::other("data outside of the outputs of a command")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spdy::frame::{FIN, data_head};

    /// The frames of a server that sends `frames` on the streams of a session, which have the ids 1, 3 and 5.
    fn session(frames: &[(u32, u8, &[u8])]) -> CommandOutput<io::Cursor<Vec<u8>>> {
        let mut bytes = Vec::new();
        for (id, flags, data) in frames {
            bytes.extend(data_head(*id, *flags, data.len()));
            bytes.extend(*data);
        }
        CommandOutput::Spdy {
            receiver: SpdyReceiver::new(io::Cursor::new(bytes)),
            channels: HashMap::from([(1, ERROR), (3, STDOUT), (5, STDERR)]),
        }
    }

    #[tokio::test]
    async fn output_that_arrives_after_the_status_is_returned() {
        let mut output = session(&[
            (1, FIN, b"{}"),
            (5, FIN, b""),
            (3, 0, b"all"),
            (3, FIN, b" of it"),
        ]);
        let mut events = Vec::new();
        while let Some(event) = output.next().await.expect("whole") {
            events.push(event);
        }
        let stdout = |bytes: &'static [u8]| CommandEvent::Stdout(Bytes::from_static(bytes));
        let status = CommandEvent::Status(Bytes::from_static(b"{}"));
        assert_eq!(events, [status, stdout(b"all"), stdout(b" of it")]);
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_an_output_is_an_error() {
        let mut output = session(&[(5, FIN, b""), (3, 0, b"a part"), (1, FIN, b"{}")]);
        for _ in 0..2 {
            output.next().await.expect("an event").expect("not the end");
        }
        let error = output.next().await.expect_err("the output has no end");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
