//! What the daemon and a shim say to each other: length-prefixed binary frames over a unix stream socket.
//!
//! A frame is four bytes of length (little endian, of what follows), one byte that says what it is, and its fields. The
//! first frame of each side is a hello with [`VERSION`]: a daemon that was updated meets shims of its predecessor. A
//! connection carries requests, answers and events; one that sends [`Request::Attach`] carries the standard streams of
//! one process from its answer on. Both sides use this file, so it is written without any library.

#[macro_use]
mod codec;

use self::codec::{Field, frame};
pub use self::codec::{Malformed, frame_len};

/// Version of the protocol. A higher one may only add kinds and fields at the end.
pub const VERSION: u32 = 1;

/// Longest frame, in bytes. A longer one ends the connection.
pub const MAX_FRAME: usize = 1 << 20;

/// Longest piece of a standard stream in one frame, in bytes.
pub const MAX_CHUNK: usize = 16 << 10;

record! {
    /// A process: the init of a container, or with `exec` one run inside it.
    Target {
        /// The container.
        container: String,
        /// Empty for the init.
        exec: String,
    }
}

record! {
    /// How the standard streams of a process are connected.
    Stdio {
        /// A terminal instead of pipes; then there is no stderr.
        tty: bool,
        /// Whether stdin is open. If not, it reads as empty.
        stdin: bool,
        /// Stdin ends with the first attached client that had it.
        stdin_once: bool,
        /// Nothing is read from the process before a client attaches (an exec whose output must not be lost).
        hold: bool,
        /// Absolute path of the CRI log; empty: none.
        log: String,
        /// Longest content of a line of the log, in bytes.
        max_line: u32,
    }
}

record! {
    /// A call of the OCI runtime.
    Runtime {
        /// Program and global arguments.
        argv: Vec<String>,
        /// Variables set for this call besides the shim's own, as `NAME=value`.
        env: Vec<String>,
        /// Arguments of the verb besides those the shim writes itself.
        args: Vec<String>,
        /// After this many milliseconds the call is killed and has failed.
        timeout_ms: u32,
    }
}

record! {
    /// Make a container with the OCI runtime's `create`.
    Create {
        /// Its id.
        id: String,
        /// Absolute path of its bundle.
        bundle: String,
        /// Its streams.
        stdio: Stdio,
        /// How the runtime is called, for this and for every later verb.
        runtime: Runtime,
    }
}

record! {
    /// Run a process in a container with the OCI runtime's `exec`.
    Exec {
        /// Container and name of the exec, which must be new.
        target: Target,
        /// Absolute path of the OCI `process` object as JSON.
        process: String,
        /// Its streams.
        stdio: Stdio,
        /// Arguments, variables and time of the call; `argv` is that of the container.
        runtime: Runtime,
    }
}

record! {
    /// Run another verb of the OCI runtime on a container; `argv` is that of the container.
    Verb {
        /// The container.
        id: String,
        /// Arguments, variables and time of the call.
        runtime: Runtime,
    }
}

record! {
    /// Send a signal.
    Kill {
        /// To which process.
        target: Target,
        /// Which.
        signal: i32,
        /// To every process of the container, by the runtime's `kill --all`.
        all: bool,
    }
}

record! {
    /// Give a terminal a size.
    Resize {
        /// Of which process.
        target: Target,
        /// Columns.
        width: u16,
        /// Rows.
        height: u16,
    }
}

record! {
    /// Make this connection one of the streams of a process.
    Attach {
        /// Of which process.
        target: Target,
        /// Send input.
        stdin: bool,
        /// Receive stdout.
        stdout: bool,
        /// Receive stderr.
        stderr: bool,
    }
}

record! {
    /// Make the PID namespace of the pod.
    PidNamespace {
        /// Absolute path of the user namespace that it shall belong to; empty: that of the node.
        users: String,
    }
}

record! {
    /// End the shim.
    Shutdown {
        /// Also when processes of the pod still run. They are not touched, but nobody will know how they end.
        force: bool,
    }
}

record! {
    /// Nothing to say.
    Empty {}
}

record! {
    /// The first frame.
    Hello {
        /// [`VERSION`] of the side that sends it.
        version: u32,
    }
}

kinds! {
    /// What the daemon wants.
    Request {
        /// See [`Create`]; answered with [`Answer::Pid`].
        1 Create(Create),
        /// Start a created container; answered with [`Answer::Done`] as are all without a note.
        2 Start(Verb),
        /// See [`Kill`].
        3 Kill(Kill),
        /// What is there; answered with [`Answer::State`].
        4 State(Empty),
        /// See [`Exec`]; answered with [`Answer::Pid`].
        5 Exec(Exec),
        /// See [`Attach`].
        6 Attach(Attach),
        /// See [`Resize`].
        7 Resize(Resize),
        /// Open the log again under its name; the old file is kept if that fails.
        8 ReopenLog(Target),
        /// End the input of a process, when what was sent before has been written.
        9 CloseStdin(Target),
        /// Remove a container with the runtime's `delete`, and forget it.
        10 Delete(Verb),
        /// Forget an exec, when it has ended.
        11 Forget(Target),
        /// See [`Shutdown`].
        12 Shutdown(Shutdown),
        /// Make the PID namespace of the pod; answered with [`Answer::Pid`], that of its init.
        13 PidNamespace(PidNamespace),
        /// See [`Hello`].
        14 Hello(Hello),
    }
}

record! {
    /// How a process ended.
    Exit {
        /// Which.
        target: Target,
        /// As the shim sees it.
        pid: u32,
        /// 128 + n for signal n.
        code: i32,
        /// The signal, or 0.
        signal: i32,
        /// Processes of the container's cgroup that were killed for want of memory.
        oom_kills: u64,
        /// When it was seen, in nanoseconds since 1970.
        at: u64,
    }
}

record! {
    /// A process that the shim knows.
    Process {
        /// Which.
        target: Target,
        /// As the shim sees it.
        pid: u32,
        /// When `start` succeeded, in nanoseconds since 1970; 0: not yet.
        started_at: u64,
        /// How it ended, if it has.
        exit: Option<Exit>,
        /// Bytes that could not be written to the log.
        log_lost: u64,
        /// Clients attached now.
        attached: u32,
    }
}

record! {
    /// Everything the shim knows.
    State {
        /// The shim itself.
        pid: u32,
        /// The init of the pod's PID namespace, or 0.
        pid_namespace: u32,
        /// Its processes.
        processes: Vec<Process>,
    }
}

record! {
    /// Why a request failed.
    Failure {
        /// What went wrong.
        kind: u8,
        /// In words; of a runtime call the end of what it wrote.
        message: String,
    }
}

/// The request makes no sense now: exists already, not started, still runs.
pub const PRECONDITION: u8 = 1;
/// No such container or exec, or it has ended.
pub const NOT_FOUND: u8 = 2;
/// The OCI runtime failed.
pub const RUNTIME: u8 = 3;
/// The OCI runtime took too long.
pub const TIMEOUT: u8 = 4;
/// The system said no.
pub const SYSTEM: u8 = 5;

kinds! {
    /// What a shim answers, in any order.
    Answer {
        /// Done.
        1 Done(Empty),
        /// The process that was made.
        2 Pid(u32),
        /// What is there.
        3 State(State),
        /// It failed.
        4 Failed(Failure),
    }
}

record! {
    /// The kernel killed for want of memory.
    Oom {
        /// The container.
        id: String,
        /// How often by now.
        kills: u64,
    }
}

kinds! {
    /// What a shim tells every connection without being asked.
    Event {
        /// A process ended; its record is on disk.
        1 Exit(Exit),
        /// See [`Oom`].
        2 Oom(Oom),
        /// See [`Hello`].
        3 Hello(Hello),
    }
}

/// Appends a request with its number.
pub fn encode_request(number: u64, request: &Request, out: &mut Vec<u8>) {
    frame(out, |out| {
        number.put(out);
        request.put(out);
    });
}

/// Reads a numbered request.
///
/// # Errors
/// It is none.
pub fn decode_request(mut frame: &[u8]) -> Result<(u64, Request), Malformed> {
    Ok((u64::take(&mut frame)?, Request::take(&mut frame)?))
}

/// Appends an answer; number 0 is that of events.
pub fn encode_answer(number: u64, answer: &Answer, out: &mut Vec<u8>) {
    frame(out, |out| {
        number.put(out);
        answer.put(out);
    });
}

/// Appends an event.
pub fn encode_event(event: &Event, out: &mut Vec<u8>) {
    frame(out, |out| {
        0u64.put(out);
        event.put(out);
    });
}

/// What came from a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// To the request of this number, which is never 0.
    Answer(u64, Answer),
    /// Without a request.
    Event(Event),
}

/// Reads what a shim sent.
///
/// # Errors
/// It is neither answer nor event.
pub fn decode_incoming(mut frame: &[u8]) -> Result<Incoming, Malformed> {
    match u64::take(&mut frame)? {
        0 => Event::take(&mut frame).map(Incoming::Event),
        number => Answer::take(&mut frame).map(|answer| Incoming::Answer(number, answer)),
    }
}

/// Kinds of the frames of an attached connection. The byte is followed by data.
pub mod stream {
    /// To the process. Without data: the end of it.
    pub const STDIN: u8 = 0;
    /// From the process. Without data: the end of it.
    pub const STDOUT: u8 = 1;
    /// From the process. Without data: the end of it.
    pub const STDERR: u8 = 2;
}

/// Appends a piece of a stream.
pub fn encode_chunk(kind: u8, data: &[u8], out: &mut Vec<u8>) {
    frame(out, |out| {
        out.push(kind);
        out.extend_from_slice(data);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_arrives() {
        let request = Request::Create(Create {
            id: "a".into(),
            stdio: Stdio {
                tty: true,
                max_line: 7,
                ..Stdio::default()
            },
            runtime: Runtime {
                argv: vec!["runc".into(), String::new()],
                ..Runtime::default()
            },
            ..Create::default()
        });
        let mut bytes = Vec::new();
        encode_request(9, &request, &mut bytes);
        assert_eq!(frame_len(&bytes), Ok(Some(bytes.len())));
        assert_eq!(decode_request(&bytes[4..]), Ok((9, request)));
        for cut in 4..bytes.len() - 1 {
            assert_eq!(
                decode_request(&bytes[4..cut]),
                Err(Malformed),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn lengths_that_lie_take_no_memory() {
        let mut bytes = 1u64.to_le_bytes().to_vec();
        bytes.push(1);
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode_request(&bytes), Err(Malformed));
        assert_eq!(frame_len(&u32::MAX.to_le_bytes()), Err(Malformed));
    }
}
