//! The connection to a containerd shim, and the calls in progress on it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use criscope_wire::ttrpc::{self, FrameError, KeyValue, Request, Response};
use nix::poll::PollFlags;
use prost::Message;

/// The metadata in which containerd and its shims pass the namespace.
const NAMESPACE: &str = "containerd-namespace-ttrpc";

/// The consumer of a call's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    /// Exec, which is followed by [`Call::StartExec`].
    Exec,
    StartExec,
    Start,
    Wait,
    Kill,
    Delete,
    Update,
    Stats,
    Connect,
    /// A call that is answered only if it fails, if the daemon asked for it.
    Other,
}

impl Call {
    /// The name of the method.
    const fn method(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Exec => "Exec",
            Self::StartExec | Self::Start => "Start",
            Self::Wait => "Wait",
            Self::Kill => "Kill",
            Self::Delete => "Delete",
            Self::Update => "Update",
            Self::Stats => "Stats",
            Self::Connect => "Connect",
            Self::Other => "",
        }
    }
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    stream: u32,
    pub(crate) call: Call,
    /// The number of its process.
    pub(crate) process: u64,
    /// The connection and number of the request that it belongs to.
    pub(crate) asked: Option<(u64, u64)>,
    deadline: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    service: &'static str,
    namespace: String,
    input: Vec<u8>,
    output: Vec<u8>,
    next: u32,
    pending: Vec<Pending>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(crate) fn new(
        stream: UnixStream,
        service: &'static str,
        namespace: &str,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            service,
            namespace: namespace.to_owned(),
            input: Vec::new(),
            output: Vec::new(),
            next: 1,
            pending: Vec::new(),
        })
    }

    /// Sends a call. A failure to send shows as the end of the connection.
    ///
    /// # Errors
    /// If the message is too long.
    pub(crate) fn call(
        &mut self,
        call: Call,
        (process, asked): (u64, Option<(u64, u64)>),
        message: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<(), FrameError> {
        self.call_method(call, call.method(), (process, asked), message, timeout)
    }

    /// Like [`Self::call`], for methods whose answer has no content.
    pub(crate) fn call_method(
        &mut self,
        call: Call,
        method: &str,
        (process, asked): (u64, Option<(u64, u64)>),
        message: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<(), FrameError> {
        let stream = self.next;
        // Clients number their streams with odd numbers.
        self.next += 2;
        let request = Request {
            service: self.service.to_owned(),
            method: method.to_owned(),
            payload: message.encode_to_vec(),
            timeout_nano: timeout.map_or(0, |timeout| {
                timeout.as_nanos().try_into().unwrap_or(i64::MAX)
            }),
            metadata: vec![KeyValue {
                key: NAMESPACE.to_owned(),
                value: self.namespace.clone(),
            }],
        };
        ttrpc::encode(&mut self.output, stream, &request)?;
        self.pending.push(Pending {
            stream,
            call,
            process,
            asked,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
        });
        let _shows_as_its_end = self.flush();
        Ok(())
    }

    pub(crate) fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, !self.output.is_empty());
        flags
    }

    /// Returns whether the other end has not read all of the calls that were sent.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends as much as possible.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            if done == self.output.len() {
                break Ok(());
            }
            match self.stream.write(&self.output[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        self.output.drain(..done);
        result
    }

    /// Reads the bytes that have arrived into the buffer; none is no error.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) fn fill(&mut self, room: &mut [u8]) -> io::Result<()> {
        match self.stream.read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.input.extend_from_slice(&room[..n]);
                Ok(())
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// The next answer to a call that is still in progress.
    ///
    /// # Errors
    /// If the other end does not speak ttrpc.
    pub(crate) fn answer(&mut self) -> io::Result<Option<(Pending, Response)>> {
        while let Some(frame) = ttrpc::decode::<Response>(&self.input).map_err(io::Error::other)? {
            self.input.drain(..frame.length);
            // The answer to a call that was given up has no receiver.
            if let Some(at) = self
                .pending
                .iter()
                .position(|one| one.stream == frame.stream)
            {
                return Ok(Some((self.pending.remove(at), frame.message)));
            }
        }
        Ok(None)
    }

    /// When the next call runs out of time.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pending.iter().filter_map(|one| one.deadline).min()
    }

    /// Takes a call that has run out of time.
    pub(crate) fn overdue(&mut self, now: Instant) -> Option<Pending> {
        let at = self
            .pending
            .iter()
            .position(|one| one.deadline.is_some_and(|deadline| deadline <= now))?;
        Some(self.pending.remove(at))
    }

    /// Takes all calls in progress: the connection has ended.
    pub(crate) fn abandon(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }
}
