//! The messages of containerd's API that are needed, with the field numbers of its public definitions
//! (`containerd.services.{containers,tasks,version}.v1`, `containerd.v1.types`). Fields that are not needed are left out.

use std::collections::HashMap;

/// `GetContainerRequest`.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub(crate) struct GetContainer {
    /// The id of a container or sandbox.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// `GetContainerResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct GotContainer {
    /// The container.
    #[prost(message, optional, tag = "1")]
    pub container: Option<Container>,
}

/// `Container`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct Container {
    /// The id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The labels.
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    /// The name of its image.
    #[prost(string, tag = "3")]
    pub image: String,
    /// The specification, as JSON.
    #[prost(message, optional, tag = "5")]
    pub spec: Option<Any>,
    /// When it was created.
    #[prost(message, optional, tag = "8")]
    pub created_at: Option<Timestamp>,
    /// When it was changed.
    #[prost(message, optional, tag = "9")]
    pub updated_at: Option<Timestamp>,
    /// The sandbox that it belongs to.
    #[prost(string, tag = "11")]
    pub sandbox: String,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub(crate) struct Any {
    /// The type of the value.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub(crate) struct Timestamp {
    /// Since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Below one second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl Timestamp {
    /// A time in nanoseconds since 1970; `None` for 0, which is no time.
    pub(crate) fn from_nanos(nanos: i64) -> Option<Self> {
        const SECOND: i64 = 1_000_000_000;
        (nanos != 0).then(|| Self {
            seconds: nanos.div_euclid(SECOND),
            nanos: i32::try_from(nanos.rem_euclid(SECOND)).unwrap_or_default(),
        })
    }
}

/// `GetRequest` of the tasks.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub(crate) struct GetTask {
    /// The container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Empty for its init.
    #[prost(string, tag = "2")]
    pub exec_id: String,
}

/// `GetResponse` of the tasks.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct GotTask {
    /// The task.
    #[prost(message, optional, tag = "1")]
    pub process: Option<Process>,
}

/// `Process`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(crate) struct Process {
    /// The id of the process, for the init the container's.
    #[prost(string, tag = "2")]
    pub id: String,
    /// The pid on the node; 0 once it has exited.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    /// A [`Status`].
    #[prost(enumeration = "Status", tag = "4")]
    pub status: i32,
    /// The exit code.
    #[prost(uint32, tag = "9")]
    pub exit_status: u32,
    /// When it exited.
    #[prost(message, optional, tag = "10")]
    pub exited_at: Option<Timestamp>,
}

/// `Status` of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Status {
    /// Not known.
    Unknown = 0,
    /// Created, and not started.
    Created = 1,
    /// The process runs.
    Running = 2,
    /// The process has exited.
    Stopped = 3,
}

/// `VersionResponse`.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub(crate) struct Version {
    /// The version of the program.
    #[prost(string, tag = "1")]
    pub version: String,
}
