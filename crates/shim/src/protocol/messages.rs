//! The messages. Fields and kinds may be added under numbers that were never used; none may change its number or meaning.

use prost::{Message, Oneof};

use super::statistics::{Metrics, Stats};

/// A process: the init of a container, or with `exec` an additional one.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Target {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// Empty for the init.
    #[prost(string, tag = "2")]
    pub exec: String,
}

/// How the standard streams of a process are connected.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stdio {
    /// Allocate a terminal instead of pipes; then there is no stderr.
    #[prost(bool, tag = "1")]
    pub tty: bool,
    /// True if stdin is open. If not, it reads as empty.
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    /// Close stdin when the first attached client ends its input or detaches.
    #[prost(bool, tag = "3")]
    pub stdin_once: bool,
    /// Do not read from the process until a client attaches (an exec whose output must not be lost).
    #[prost(bool, tag = "4")]
    pub hold: bool,
    /// Absolute path of the CRI log, without links: none is followed. Empty for no log.
    #[prost(string, tag = "5")]
    pub log: String,
    /// Maximum length of a log line's content, in bytes.
    #[prost(uint32, tag = "6")]
    pub max_line: u32,
}

/// A call of the OCI runtime.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Runtime {
    /// Program and global arguments.
    #[prost(string, repeated, tag = "1")]
    pub argv: Vec<String>,
    /// Environment variables of this call in addition to the shim's own, as `NAME=value`.
    #[prost(string, repeated, tag = "2")]
    pub env: Vec<String>,
    /// Arguments of the verb in addition to the ones that the shim adds itself.
    #[prost(string, repeated, tag = "3")]
    pub args: Vec<String>,
    /// Timeout in milliseconds, after which the call is killed and counts as failed.
    #[prost(uint32, tag = "4")]
    pub timeout_ms: u32,
    /// The shim of containerd that runs the containers instead; only the timeout applies to its calls.
    #[prost(message, optional, tag = "5")]
    pub task: Option<TaskShim>,
}

/// A shim of containerd (runtime v2): one for all containers of the pod, started with the first of them, the sandbox container.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct TaskShim {
    /// Absolute path of the program.
    #[prost(string, tag = "1")]
    pub program: String,
    /// The namespace that it runs in (`-namespace`).
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// The id of the sandbox container.
    #[prost(string, tag = "3")]
    pub sandbox: String,
    /// The options, an encoded `google.protobuf.Any`; empty for none.
    #[prost(bytes = "vec", tag = "4")]
    pub options: Vec<u8>,
}

/// Create a container with the OCI runtime's `create`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Create {
    /// The id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Absolute path of its bundle.
    #[prost(string, tag = "2")]
    pub bundle: String,
    /// The streams.
    #[prost(message, required, tag = "3")]
    pub stdio: Stdio,
    /// How the OCI runtime is called, for this and for every later verb.
    #[prost(message, required, tag = "4")]
    pub runtime: Runtime,
}

/// Run a process in a container with the OCI runtime's `exec`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Exec {
    /// Container and name of the exec, which must be new.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Absolute path of the OCI `process` object as JSON.
    #[prost(string, tag = "2")]
    pub process: String,
    /// The streams.
    #[prost(message, required, tag = "3")]
    pub stdio: Stdio,
    /// Arguments, variables and timeout of the call; `argv` is the container's.
    #[prost(message, required, tag = "4")]
    pub runtime: Runtime,
}

/// Run another verb of the OCI runtime on a container; `argv` is the container's.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Verb {
    /// The container.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Arguments, variables and timeout of the call.
    #[prost(message, required, tag = "2")]
    pub runtime: Runtime,
}

/// Send a signal.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Kill {
    /// The process.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The signal.
    #[prost(int32, tag = "2")]
    pub signal: i32,
    /// Send it to every process of the container, with the OCI runtime's `kill --all`.
    #[prost(bool, tag = "3")]
    pub all: bool,
}

/// Resize a terminal.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Resize {
    /// The process.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Columns, at most 65535.
    #[prost(uint32, tag = "2")]
    pub width: u32,
    /// Rows, at most 65535.
    #[prost(uint32, tag = "3")]
    pub height: u32,
}

/// Use this connection for the streams of a process.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Attach {
    /// The process.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Send input.
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    /// Receive stdout.
    #[prost(bool, tag = "3")]
    pub stdout: bool,
    /// Receive stderr.
    #[prost(bool, tag = "4")]
    pub stderr: bool,
}

/// Create the PID namespace of the pod, with an init that is isolated from the node.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct PidNamespace {
    /// Absolute path of the user namespace that owns it; empty for the node's.
    #[prost(string, tag = "1")]
    pub users: String,
    /// Absolute paths of the other namespaces of the pod, which its init joins.
    #[prost(string, repeated, tag = "2")]
    pub join: Vec<String>,
    /// Directories of its cgroup, one per hierarchy.
    #[prost(string, repeated, tag = "3")]
    pub cgroups: Vec<String>,
    /// The user of its init, inside the pod's user namespace.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// The group.
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    /// Supplemental groups.
    #[prost(uint32, repeated, tag = "6")]
    pub groups: Vec<u32>,
    /// The SELinux label; empty for the label of the shim.
    #[prost(string, tag = "7")]
    pub label: String,
    /// The `oom_score_adj`, if the kernel allows the shim to set it.
    #[prost(sint32, tag = "8")]
    pub oom_score_adj: i32,
    /// The SELinux label of its root; empty for the policy's.
    #[prost(string, tag = "9")]
    pub mount_label: String,
}

/// Change the resources of a container that a shim of containerd runs.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Update {
    /// The container.
    #[prost(string, tag = "1")]
    pub id: String,
    /// `linux.resources` of the OCI runtime specification, as JSON.
    #[prost(bytes = "vec", tag = "2")]
    pub resources: Vec<u8>,
    /// Timeout in milliseconds.
    #[prost(uint32, tag = "3")]
    pub timeout_ms: u32,
}

/// Stop the shim.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Shutdown {
    /// Stop even if processes of the pod are running. They continue, but their exit status is lost.
    #[prost(bool, tag = "1")]
    pub force: bool,
}

/// Empty message.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Empty {}

/// The first message of each side.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Hello {
    /// The newest version that the sender supports.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The oldest version that the sender supports.
    #[prost(uint32, tag = "2")]
    pub oldest: u32,
    /// The version of the sender's program, for diagnosis.
    #[prost(string, tag = "3")]
    pub program: String,
}

/// Requests of the daemon.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Request {
    /// See [`Create`]; answered with [`Answer::Pid`].
    #[prost(message, tag = "1")]
    Create(Create),
    /// Start a created container; answered with [`Answer::Done`], like all requests without a note.
    #[prost(message, tag = "2")]
    Start(Verb),
    /// See [`Kill`].
    #[prost(message, tag = "3")]
    Kill(Kill),
    /// Query the state; answered with [`Answer::State`].
    #[prost(message, tag = "4")]
    State(Empty),
    /// See [`Exec`]; answered with [`Answer::Pid`].
    #[prost(message, tag = "5")]
    Exec(Exec),
    /// See [`Attach`].
    #[prost(message, tag = "6")]
    Attach(Attach),
    /// See [`Resize`].
    #[prost(message, tag = "7")]
    Resize(Resize),
    /// Reopen the log by its path; the old file is kept if that fails.
    #[prost(message, tag = "8")]
    ReopenLog(Target),
    /// Close stdin of a process after all input sent earlier has been written.
    #[prost(message, tag = "9")]
    CloseStdin(Target),
    /// Remove a container with the runtime's `delete`, and forget it.
    #[prost(message, tag = "10")]
    Delete(Verb),
    /// Forget an exec that has exited.
    #[prost(message, tag = "11")]
    Forget(Target),
    /// See [`Shutdown`].
    #[prost(message, tag = "12")]
    Shutdown(Shutdown),
    /// See [`PidNamespace`]; answered with [`Answer::Pid`], that of its init.
    #[prost(message, tag = "13")]
    PidNamespace(PidNamespace),
    /// See [`Hello`].
    #[prost(message, tag = "14")]
    Hello(Hello),
    /// See [`Update`].
    #[prost(message, tag = "15")]
    Update(Update),
    /// See [`Stats`]; answered with [`Answer::Metrics`].
    #[prost(message, tag = "16")]
    Stats(Stats),
    /// Kill an exec together with the processes that it has started. With a shim of containerd the exec alone is killed.
    #[prost(message, tag = "17")]
    EndCommand(Target),
}

/// The exit of a process.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Exit {
    /// The process.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The pid in the shim's PID namespace.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// 128 + n for signal n.
    #[prost(int32, tag = "3")]
    pub code: i32,
    /// The signal, or 0.
    #[prost(int32, tag = "4")]
    pub signal: i32,
    /// OOM kills in the container's cgroup.
    #[prost(uint64, tag = "5")]
    pub oom_kills: u64,
    /// Time of the observation, in nanoseconds since 1970.
    #[prost(uint64, tag = "6")]
    pub at: u64,
    /// Why the exit was not observed and the code says nothing; empty if it was.
    #[prost(string, tag = "7")]
    pub unobserved: String,
}

/// A process that the shim knows.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Process {
    /// The process.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The pid in the shim's PID namespace; not reaped, and so not reused, until there is an exit.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// When `start` succeeded, in nanoseconds since 1970; 0 if not yet.
    #[prost(uint64, tag = "3")]
    pub started_at: u64,
    /// The exit, if it has exited.
    #[prost(message, optional, tag = "4")]
    pub exit: Option<Exit>,
    /// Bytes that could not be written to the log.
    #[prost(uint64, tag = "5")]
    pub log_lost: u64,
    /// Number of attached clients.
    #[prost(uint32, tag = "6")]
    pub attached: u32,
}

/// The state of a shim.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct State {
    /// The pid of the shim.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The pid of the init of the pod's PID namespace, or of its sandbox container; 0 if there is none, or it has exited.
    #[prost(uint32, tag = "2")]
    pub pid_namespace: u32,
    /// The processes.
    #[prost(message, repeated, tag = "3")]
    pub processes: Vec<Process>,
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Failure {
    /// The class of error.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The message; for an OCI runtime call, the end of its output.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Responses of a shim, in any order.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Answer {
    /// Done.
    #[prost(message, tag = "1")]
    Done(Empty),
    /// The process that was created.
    #[prost(uint32, tag = "2")]
    Pid(u32),
    /// The state.
    #[prost(message, tag = "3")]
    State(State),
    /// The request failed.
    #[prost(message, tag = "4")]
    Failed(Failure),
    /// See [`Metrics`].
    #[prost(message, tag = "5")]
    Metrics(Metrics),
}

/// OOM kills in the cgroup of a container, sent when there are more of them, and before the exit that they caused.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Oom {
    /// The container.
    #[prost(string, tag = "1")]
    pub id: String,
    /// OOM kills so far.
    #[prost(uint64, tag = "2")]
    pub kills: u64,
}

/// Events that a shim sends to every connection.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Event {
    /// A process has exited; its exit record is on disk.
    #[prost(message, tag = "1")]
    Exit(Exit),
    /// See [`Oom`].
    #[prost(message, tag = "2")]
    Oom(Oom),
    /// See [`Hello`].
    #[prost(message, tag = "3")]
    Hello(Hello),
    /// The init of the pod's PID namespace has exited, with all processes in it. The pid is as seen by the shim.
    #[prost(uint32, tag = "4")]
    PidNamespaceEnded(u32),
    /// The shim received a frame that it cannot decode.
    #[prost(message, tag = "5")]
    Unreadable(Empty),
}
