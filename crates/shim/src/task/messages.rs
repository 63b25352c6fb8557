//! The messages of containerd's Task service (containerd, `api/runtime/task`), the used part. Versions 2 and 3 have the
//! same messages and differ in the name of the service.

use prost::Message;

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// The request of Start, Delete, Wait, and (without an exec) of Connect.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) exec_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateTask {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) bundle: String,
    #[prost(bool, tag = "4")]
    pub(super) terminal: bool,
    #[prost(string, tag = "5")]
    pub(super) stdin: String,
    #[prost(string, tag = "6")]
    pub(super) stdout: String,
    #[prost(string, tag = "7")]
    pub(super) stderr: String,
    #[prost(message, optional, tag = "10")]
    pub(super) options: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExecProcess {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) exec_id: String,
    #[prost(bool, tag = "3")]
    pub(super) terminal: bool,
    #[prost(string, tag = "4")]
    pub(super) stdin: String,
    #[prost(string, tag = "5")]
    pub(super) stdout: String,
    #[prost(string, tag = "6")]
    pub(super) stderr: String,
    #[prost(message, optional, tag = "7")]
    pub(super) spec: Option<Any>,
}

/// The response of Create and Start.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pid {
    #[prost(uint32, tag = "1")]
    pub(super) pid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Waited {
    #[prost(uint32, tag = "1")]
    pub(super) exit_status: u32,
    #[prost(message, optional, tag = "2")]
    pub(super) exited_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KillTask {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(super) signal: u32,
    #[prost(bool, tag = "4")]
    pub(super) all: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResizePty {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) exec_id: String,
    #[prost(uint32, tag = "3")]
    pub(super) width: u32,
    #[prost(uint32, tag = "4")]
    pub(super) height: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CloseIo {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) exec_id: String,
    #[prost(bool, tag = "3")]
    pub(super) stdin: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateTask {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) resources: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatsOf {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reported {
    #[prost(message, optional, tag = "1")]
    pub(super) stats: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Connected {
    #[prost(uint32, tag = "1")]
    pub(super) shim_pid: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ShutdownShim {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(bool, tag = "2")]
    pub(super) now: bool,
}
