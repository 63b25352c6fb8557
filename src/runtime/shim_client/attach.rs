//! The standard streams of a process.

use std::io;
use std::path::PathBuf;

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::client::{Shim, accepted, connect, gone};
use super::codec::Codec;
use super::error::Error;
use super::frames::Frames;
use criscope_shim::protocol::{self, Attach, Incoming, MAX_CHUNK, Request, stream};

/// What is read at a time, in bytes: some pieces, of which each wakes somebody up.
const ROOM: usize = 64 << 10;

/// For the shim to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// A piece of a stream; an empty one is the end of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, or the terminal.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
}

/// The output of a process. Dropped with its [`Input`], it is detached.
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
    /// Attaches to a process, on a connection of its own. What it wrote before is not seen, unless it was held.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn attach(&self, attach: Attach) -> Result<(Attached, Input), Error> {
        let dir: PathBuf = self.dir().to_owned();
        let (read, mut write) = connect(&dir).await?.into_split();
        let mut frames = Frames::new(read, ROOM);
        let codec = Codec::greeted(&mut frames, &dir, PATIENCE).await?;
        let mut request = Vec::new();
        codec.encode(1, &Request::Attach(attach), &mut request);
        let exchange = async {
            write.write_all(&request).await.map_err(|e| gone(&dir, e))?;
            loop {
                let frame = frames
                    .next()
                    .await
                    .ok_or_else(|| gone(&dir, io::ErrorKind::UnexpectedEof.into()))?;
                match codec.decode(&frame) {
                    Ok(Incoming::Answer(_, Ok(answer))) => return accepted(answer, &dir),
                    Ok(Incoming::Event(_)) => {}
                    _ => return Err(Error::Malformed { dir: dir.clone() }),
                }
            }
        };
        let answered = timeout(PATIENCE, exchange).await;
        answered.map_err(|_| Error::Silent {
            dir: dir.clone(),
            after: PATIENCE,
        })??;
        Ok((Attached { frames }, Input { write }))
    }
}

impl Attached {
    /// The next piece; `None` when the process was removed, the shim has gone, the client has left ([`Input::leave`]), or it took
    /// nothing of a container's output for ten seconds. What is run by an exec waits for its client instead. Dropping the future loses nothing.
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
    /// Hands it to the process; waits while the process does not take it. To drop the future may send a part, after
    /// which this input is of no use.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        for piece in data.chunks(MAX_CHUNK) {
            let mut bytes = Vec::with_capacity(piece.len() + 5);
            protocol::encode_chunk(stream::STDIN, piece, &mut bytes);
            self.write.write_all(&bytes).await?;
        }
        Ok(())
    }

    /// Says that this client wants no more. The shim lets go of it, which ends its output, once the input before this is taken.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn leave(&mut self) -> io::Result<()> {
        self.write.shutdown().await
    }

    /// Ends the input; output goes on. Of a container it ends only with `stdin_once`, of an exec always.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn end(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        protocol::encode_chunk(stream::STDIN, &[], &mut bytes);
        self.write.write_all(&bytes).await
    }
}
