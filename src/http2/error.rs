//! What can go wrong, and the words for it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a stream or a connection ended (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub u32);

impl Reason {
    /// No error.
    pub const NO_ERROR: Self = Self(0);
    /// A rule was broken.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// The other end failed.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than there was room for.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A frame for a stream that is over.
    pub const STREAM_CLOSED: Self = Self(5);
    /// A frame of a size that it may not have.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// Nothing was done with the stream.
    pub const REFUSED_STREAM: Self = Self(7);
    /// Nobody wants the stream any more.
    pub const CANCEL: Self = Self(8);
    /// The tables of the headers are out of step.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// Too much of something.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// The transport is not safe enough.
    pub const INADEQUATE_SECURITY: Self = Self(12);

    /// The reason of the first HTTP/2 error in a chain of causes.
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(e) = cause {
            if let Some(error) = e.downcast_ref::<Error>() {
                return error.reason();
            }
            cause = e.source();
        }
        None
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "not a result of an error",
            1 => "unspecific protocol error detected",
            2 => "unexpected internal error encountered",
            3 => "flow-control protocol violated",
            4 => "settings ACK not received in timely manner",
            5 => "received frame when stream half-closed",
            6 => "frame with invalid size",
            7 => "refused stream before processing any application logic",
            8 => "stream no longer needed",
            9 => "unable to maintain the header compression context",
            10 => "connection established in response to a CONNECT request was reset or abnormally closed",
            11 => "detected excessive load generating behavior",
            12 => "security properties do not meet minimum requirements",
            13 => "endpoint requires HTTP/1.1",
            _ => "unknown reason",
        })
    }
}

/// Why a call or a connection did not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The other end reset this stream.
    #[error("stream reset by the other end: {0}")]
    Reset(Reason),
    /// The other end takes no more calls on this connection, and did not look at this one.
    #[error("connection ended by the other end: {0}")]
    NotTaken(Reason),
    /// The other end broke a rule.
    #[error("{1}: {0}")]
    Protocol(Reason, &'static str),
    /// The connection broke.
    #[error("connection broken: {0}")]
    Io(#[source] Arc<io::Error>),
    /// The connection is over.
    #[error("connection closed")]
    Closed,
}

impl Error {
    /// The reason in terms of HTTP/2, if there is one.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Reset(reason) | Self::NotTaken(reason) | Self::Protocol(reason, _) => {
                Some(*reason)
            }
            Self::Io(_) | Self::Closed => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// What a frame was found to be at fault for.
#[derive(Debug)]
pub(super) enum Fault {
    /// The stream is reset.
    Stream(u32, Reason),
    /// The connection is ended.
    Connection(Reason, &'static str),
}

impl Fault {
    pub(super) fn into_error(self) -> (Reason, Error) {
        let (reason, what) = match self {
            Self::Connection(reason, what) => (reason, what),
            Self::Stream(_, reason) => (reason, "a stream broke the rules"),
        };
        (reason, Error::Protocol(reason, what))
    }
}

/// A fault of the connection that has no better name.
pub(super) fn protocol(what: &'static str) -> Fault {
    Fault::Connection(Reason::PROTOCOL_ERROR, what)
}
