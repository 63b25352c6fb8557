//! The standard streams of a process.

use std::io;
use std::path::PathBuf;

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::client::{Shim, accepted, connect, gone};
use super::error::Error;
use super::frames::Frames;
use super::hello::read_hello;
use criscope_shim::protocol::{self, Attach, Incoming, MAX_CHUNK, Request, stream};

/// Size of the read buffer in bytes: several pieces, to save wake-ups.
const ROOM: usize = 64 << 10;

/// How long to wait for a response of the shim.
const OUTPUT_PIECE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A piece of a stream; an empty one marks its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, or the terminal.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
}

/// The output of a process. Dropping it with its [`Input`] detaches.
#[derive(Debug)]
pub struct Attached {
    frames: Frames<OwnedReadHalf>,
}

/// The input of a process.
#[derive(Debug)]
pub struct Input {
    write: OwnedWriteHalf,
}

impl Shim {
    /// Attaches to a process, on a separate connection. Earlier output is not replayed, unless it was held back.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn attach(&self, attach: Attach) -> Result<(Attached, Input), Error> {
        let dir: PathBuf = self.dir().to_owned();
        let (read, mut write) = connect(&dir).await?.into_split();
        let mut frames = Frames::new(read, ROOM);
        read_hello(&mut frames, &dir, OUTPUT_PIECE_TIMEOUT).await?;
        let mut request = Vec::new();
        protocol::encode_request(1, &Request::Attach(attach), &mut request);
        let exchange = async {
            write.write_all(&request).await.map_err(|e| gone(&dir, e))?;
            loop {
                let frame = frames
                    .next()
                    .await
                    .ok_or_else(|| gone(&dir, io::ErrorKind::UnexpectedEof.into()))?;
                match protocol::decode_incoming(&frame) {
                    Ok(Incoming::Answer(_, Ok(answer))) => return accepted(answer, &dir),
                    Ok(Incoming::Event(_)) => {}
                    _ => return Err(Error::Malformed { dir: dir.clone() }),
                }
            }
        };
        let answered = timeout(OUTPUT_PIECE_TIMEOUT, exchange).await;
        answered.map_err(|_| Error::Silent {
            dir: dir.clone(),
            after: OUTPUT_PIECE_TIMEOUT,
        })??;
        Ok((Attached { frames }, Input { write }))
    }

    /// Waits until the shim has passed on a piece of each stream that it had not read completely when this was called. If
    /// nothing has arrived then, the pipes are empty. A shim may be held up, by a log on a slow disk for instance.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn settle(&self) -> Result<(), Error> {
        // The shim answers before it reads the streams that were ready at the same time, so the second answer follows them.
        self.greet().await?;
        self.greet().await
    }
}

impl Attached {
    /// The next piece; `None` when the process was removed, the shim is gone, the client has detached ([`Input::leave`]) or not
    /// read a container's output for ten seconds. An exec waits for its client instead. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Output> {
        loop {
            let mut frame = self.frames.next().await?;
            let kind = *frame.first()?;
            frame.advance(1);
            match kind {
                stream::STDOUT => return Some(Output::Stdout(frame)),
                stream::STDERR => return Some(Output::Stderr(frame)),
                _ => {}
            }
        }
    }
}

impl Input {
    /// Sends input to the process; waits while the process does not read it. Not cancel safe: a dropped future may have sent a
    /// part, after which the input is unusable.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        for piece in data.chunks(MAX_CHUNK) {
            let mut bytes = Vec::with_capacity(piece.len() + 5);
            protocol::encode_chunk(stream::STDIN, piece, &mut bytes);
            self.write.write_all(&bytes).await?;
        }
        Ok(())
    }

    /// Detaches this client. The shim closes its output once the preceding input has been read.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn leave(&mut self) -> io::Result<()> {
        self.write.shutdown().await
    }

    /// Ends the input; output continues. The input of a container is closed only with `stdin_once`, that of an exec always.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn end(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        protocol::encode_chunk(stream::STDIN, &[], &mut bytes);
        self.write.write_all(&bytes).await
    }
}
