//! The standard streams of a process, on the shim's side.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio as Child;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::protocol::Stdio;
use super::spawn::{nonblocking, pipe};
use super::task::fifo::Fifos;

/// Maximum input that waits for the process, in bytes. More stays with the client.
const INPUT_ROOM: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) spec: Stdio,
    /// stdout (or the terminal) and stderr; `None` once they have ended.
    pub(super) out: [Option<File>; 2],
    /// The inodes of the pipes of the output, which also tell whose output a process holds after this side was closed.
    pub(super) pipes: Vec<u64>,
    input: Option<File>,
    waiting: Vec<u8>,
    ending: bool,
    /// The streams of a process that a shim of containerd runs.
    pub(super) fifos: Option<Fifos>,
}

impl Streams {
    /// Creates pipes, and their other ends for the process. With a terminal there is only the pipe for messages of the OCI
    /// runtime; it takes the place of stderr until [`Self::terminal`].
    pub(super) fn new(spec: Stdio) -> io::Result<(Self, [Child; 3])> {
        let (err, child_err) = pipe(true)?;
        let mut streams = Self {
            out: [None, Some(err.into())],
            spec,
            ..Self::default()
        };
        let mut child = [Child::null(), Child::null(), child_err.into()];
        if !streams.spec.tty {
            let (out, child_out) = pipe(true)?;
            streams.out[0] = Some(out.into());
            child[1] = child_out.into();
            if streams.spec.stdin {
                let (input, child_in) = pipe(false)?;
                streams.input = Some(input.into());
                child[0] = child_in.into();
            }
        }
        let pipes = streams.out.iter().flatten();
        streams.pipes = pipes
            .filter_map(|pipe| Some(pipe.metadata().ok()?.ino()))
            .collect();
        Ok((streams, child))
    }

    /// Creates FIFOs for a process that a shim of containerd runs; a terminal is on its side.
    pub(super) fn for_task(spec: Stdio, dir: &Path, number: u64) -> io::Result<Self> {
        // The sandbox container has neither a log nor clients.
        let out = !spec.log.is_empty() || spec.hold || spec.tty || spec.stdin;
        let wanted = [spec.stdin, out, out && !spec.tty];
        let (fifos, input, out) = Fifos::new(dir, number, wanted)?;
        Ok(Self {
            spec,
            out,
            input,
            fifos: Some(fifos),
            ..Self::default()
        })
    }

    /// Lets the output of a process that has exited end.
    pub(super) fn release(&mut self) {
        self.fifos.iter_mut().for_each(Fifos::release);
    }

    /// True if the input is open no more.
    pub(super) fn has_no_input(&self) -> bool {
        self.spec.stdin && self.input.is_none()
    }

    /// Receives the terminal that the OCI runtime sent.
    pub(super) fn terminal(&mut self, console: &UnixListener) -> io::Result<()> {
        let (socket, _) = console.accept()?;
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut name = [0; 256];
        recvmsg(
            &socket,
            &mut [io::IoSliceMut::new(&mut name)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        )?;
        let master = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let master: OwnedFd =
            master.ok_or_else(|| io::Error::other("the runtime sent no terminal"))?;
        nonblocking(&master)?;
        let master = File::from(master);
        if self.spec.stdin {
            self.input = Some(master.try_clone()?);
        }
        self.out = [Some(master), None];
        Ok(())
    }

    /// Reads into `room`; `None` if nothing is available. The end of a stream closes it and reads as empty.
    pub(super) fn read<'a>(&mut self, which: usize, room: &'a mut [u8]) -> Option<&'a [u8]> {
        let mut file = self.out[which].as_ref()?;
        loop {
            match file.read(room) {
                Ok(n) if n > 0 => return Some(&room[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                // Reading a terminal whose last user has closed it fails with EIO.
                Ok(_) | Err(_) => {
                    self.out[which] = None;
                    return Some(&[]);
                }
            }
        }
    }

    /// The descriptor of stdin while input is pending.
    pub(super) fn hungry_input(&self) -> Option<&File> {
        self.input.as_ref().filter(|_| !self.waiting.is_empty())
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < INPUT_ROOM
    }

    pub(super) fn write(&mut self, data: &[u8]) {
        if self.input.is_none() || self.ending {
            return;
        }
        // Bypasses the buffer while the process keeps up.
        let written = if self.waiting.is_empty() {
            self.write_now(data)
        } else {
            0
        };
        self.waiting.extend_from_slice(&data[written..]);
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let written = self.write_now(&waiting);
        if self.input.is_none() {
            return;
        }
        if written < waiting.len() {
            self.waiting = waiting;
            self.waiting.drain(..written);
        } else if self.ending {
            self.drop_input();
        }
    }

    /// Writes as much as the process accepts now. Without a reader, input is closed.
    fn write_now(&mut self, data: &[u8]) -> usize {
        let Some(mut input) = self.input.as_ref() else {
            return 0;
        };
        let mut written = 0;
        while written < data.len() {
            match input.write(&data[written..]) {
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.drop_input();
                    break;
                }
            }
        }
        written
    }

    /// Closes input when all of it is written. That of a terminal has no end.
    pub(super) fn end_input(&mut self) {
        if !self.spec.tty {
            self.ending = true;
            self.flush();
        }
    }

    /// The last client has disconnected: the process gets SIGPIPE on its next write, and a terminal is hung up.
    pub(super) fn abandon(&mut self) {
        self.out = [None, None];
        if self.spec.tty {
            self.drop_input();
        }
    }

    pub(super) fn drop_input(&mut self) {
        self.input = None;
        self.waiting = Vec::new();
    }
}
