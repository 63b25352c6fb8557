//! Versions of the shim protocol, negotiated by the hello.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::timeout;

use super::client::gone;
use super::error::Error;
use super::frames::Frames;
use super::v1;
use criscope_shim::protocol::{self, Event, Hello, Incoming, Malformed, Request};

/// The oldest version that the daemon supports.
pub(super) const OLDEST: u32 = 1;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    /// See [`v1`].
    V1,
    /// The current version.
    Own,
}

impl Codec {
    /// Reads the hello of a shim, the first message on every connection.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Silent`]; [`Error::Incompatible`] if there is no version in common; [`Error::Malformed`].
    pub(super) async fn greeted<R: AsyncRead + Unpin>(
        frames: &mut Frames<R>,
        dir: &Path,
        patience: Duration,
    ) -> Result<Self, Error> {
        let frame = timeout(patience, frames.next()).await;
        let frame = frame.map_err(|_| Error::Silent {
            dir: dir.to_owned(),
            after: patience,
        })?;
        let frame = frame.ok_or_else(|| gone(dir, io::ErrorKind::UnexpectedEof.into()))?;
        if v1::is_hello(&frame) {
            return Ok(Self::V1);
        }
        match protocol::decode_incoming(&frame) {
            Ok(Incoming::Event(Ok(Event::Hello(hello)))) => fits(&hello, dir),
            _ => Err(Error::Malformed {
                dir: dir.to_owned(),
            }),
        }
    }

    /// Appends a request with its number; returns whether this version supports it.
    pub(super) fn encode(self, number: u64, request: &Request, out: &mut Vec<u8>) -> bool {
        match self {
            Self::V1 => v1::encode_request(number, request, out),
            Self::Own => {
                protocol::encode_request(number, request, out);
                true
            }
        }
    }

    /// Decodes a message of a shim.
    pub(super) fn decode(self, frame: &[u8]) -> Result<Incoming, Malformed> {
        match self {
            Self::V1 => v1::decode_incoming(frame),
            Self::Own => protocol::decode_incoming(frame),
        }
    }
}

fn fits(hello: &Hello, dir: &Path) -> Result<Codec, Error> {
    if Hello::own(OLDEST).fits(hello) {
        return Ok(Codec::Own);
    }
    Err(Error::Incompatible {
        dir: dir.to_owned(),
        why: format!(
            "it is of criscope {:.32} with protocol {} to {}, this daemon {OLDEST} to {}",
            hello.program,
            hello.oldest,
            hello.version,
            protocol::VERSION
        ),
    })
}
