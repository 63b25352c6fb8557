//! The hello of a shim, which says the versions of the protocol that it supports.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::timeout;

use super::client::gone;
use super::error::Error;
use super::frames::Frames;
use criscope_shim::protocol::{self, Event, Hello, Incoming};

/// Reads the hello of a shim, the first message on every connection.
///
/// # Errors
/// [`Error::Gone`], [`Error::Silent`]; [`Error::Incompatible`] if there is no version in common; [`Error::Malformed`].
pub(super) async fn read_hello<R: AsyncRead + Unpin>(
    frames: &mut Frames<R>,
    dir: &Path,
    patience: Duration,
) -> Result<(), Error> {
    let frame = timeout(patience, frames.next()).await;
    let frame = frame.map_err(|_| Error::Silent {
        dir: dir.to_owned(),
        after: patience,
    })?;
    let frame = frame.ok_or_else(|| gone(dir, io::ErrorKind::UnexpectedEof.into()))?;
    let Ok(Incoming::Event(Ok(Event::Hello(hello)))) = protocol::decode_incoming(&frame) else {
        return Err(Error::Malformed {
            dir: dir.to_owned(),
        });
    };
    let own = Hello::own();
    if own.fits(&hello) {
        return Ok(());
    }
    Err(Error::Incompatible {
        dir: dir.to_owned(),
        why: format!(
            "it is of criscope {:.32} with protocol {} to {}, this daemon {} to {}",
            hello.program, hello.oldest, hello.version, own.oldest, own.version
        ),
    })
}
