//! The messages of containerd's content and events services that are needed, with the field numbers of its public API
//! (`containerd.services.content.v1`, `containerd.services.events.v1`, `containerd.events`). Fields that are not needed are left
//! out.

use std::collections::HashMap;

/// `ListContentRequest` and `ListStatusesRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Filters {
    #[prost(string, repeated, tag = "1")]
    pub(super) filters: Vec<String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// `Status`: content that is being written.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    pub(super) started_at: Option<Timestamp>,
    #[prost(string, tag = "3")]
    pub(super) reference: String,
    #[prost(int64, tag = "4")]
    pub(super) offset: i64,
    #[prost(int64, tag = "5")]
    pub(super) total: i64,
}

/// `ListStatusesResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Statuses {
    #[prost(message, repeated, tag = "1")]
    pub(super) statuses: Vec<Status>,
}

/// `Info`: content that is complete.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Info {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
    #[prost(int64, tag = "2")]
    pub(super) size: i64,
    #[prost(map = "string, string", tag = "5")]
    pub(super) labels: HashMap<String, String>,
}

/// `ListContentResponse`, one of a stream.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Infos {
    #[prost(message, repeated, tag = "1")]
    pub(super) infos: Vec<Info>,
}

/// `InfoRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct InfoRequest {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
}

/// `InfoResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct InfoResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<Info>,
}

/// `ReadContentRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ReadRequest {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
    #[prost(int64, tag = "2")]
    pub(super) offset: i64,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
}

/// `ReadContentResponse`, one of a stream.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Piece {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) data: Vec<u8>,
}

/// `SubscribeRequest`: an event passes if one of the filters matches.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct SubscribeRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) filters: Vec<String>,
}

/// `Envelope` (since containerd 2.0 `containerd.types.Envelope`): an event of a namespace.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Envelope {
    #[prost(message, optional, tag = "1")]
    pub(super) timestamp: Option<Timestamp>,
    #[prost(string, tag = "3")]
    pub(super) topic: String,
    #[prost(message, optional, tag = "4")]
    pub(super) event: Option<Any>,
}

/// `google.protobuf.Any`; the topic tells the type.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct Any {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `TaskStart`, and `TaskOOM`, which has no other field.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct TaskOf {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
}

/// `TaskExit`: `id` is that of the container, or of a command that was executed in it.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct TaskExit {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, tag = "2")]
    pub(super) id: String,
    #[prost(uint32, tag = "4")]
    pub(super) exit_status: u32,
    #[prost(message, optional, tag = "5")]
    pub(super) exited_at: Option<Timestamp>,
}
