//! Messages of containerd's content and events services, with the field numbers of its public API
//! (`containerd.services.content.v1`, `containerd.services.events.v1`, `containerd.events`). Messages and fields that are not
//! needed are left out.

use std::collections::HashMap;

/// `ListContentRequest` and `ListStatusesRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentFilters {
    #[prost(string, repeated, tag = "1")]
    pub(super) filters: Vec<String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub(super) struct ProtoTimestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// `IngestStatus`: content that is being written.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct IngestStatus {
    #[prost(message, optional, tag = "1")]
    pub(super) started_at: Option<ProtoTimestamp>,
    #[prost(string, tag = "3")]
    pub(super) reference: String,
    #[prost(int64, tag = "4")]
    pub(super) offset: i64,
    #[prost(int64, tag = "5")]
    pub(super) total: i64,
}

/// `ListStatusesResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct IngestStatuses {
    #[prost(message, repeated, tag = "1")]
    pub(super) statuses: Vec<IngestStatus>,
}

/// `ContentInfo`: content that is complete.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentInfo {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
    #[prost(int64, tag = "2")]
    pub(super) size: i64,
    #[prost(map = "string, string", tag = "5")]
    pub(super) labels: HashMap<String, String>,
}

/// `ListContentResponse`, one of a stream.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentInfos {
    #[prost(message, repeated, tag = "1")]
    pub(super) infos: Vec<ContentInfo>,
}

/// `ContentInfoRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentInfoRequest {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
}

/// `ContentInfoResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentInfoResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) info: Option<ContentInfo>,
}

/// `ReadContentRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentReadRequest {
    #[prost(string, tag = "1")]
    pub(super) digest: String,
    #[prost(int64, tag = "2")]
    pub(super) offset: i64,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
}

/// `ReadContentResponse`, one of a stream.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct ContentChunk {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) data: Vec<u8>,
}

/// `SubscribeRequest`: an event passes if one of the filters matches.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct SubscribeRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) filters: Vec<String>,
}

/// `EventEnvelope` (since containerd 2.0 `containerd.types.Envelope`): an event of a namespace.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct EventEnvelope {
    #[prost(message, optional, tag = "1")]
    pub(super) timestamp: Option<ProtoTimestamp>,
    #[prost(string, tag = "3")]
    pub(super) topic: String,
    #[prost(message, optional, tag = "4")]
    pub(super) event: Option<AnyMessage>,
}

/// `google.protobuf.Any`; the topic tells the type.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct AnyMessage {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `TaskStart`, and `TaskOOM`, which has no other field.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct TaskReference {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
}

/// `TaskExit`: `id` names the container, or a command that was executed in it.
#[derive(Clone, PartialEq, ::prost::Message)]
pub(super) struct TaskExit {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, tag = "2")]
    pub(super) id: String,
    #[prost(uint32, tag = "4")]
    pub(super) exit_status: u32,
    #[prost(message, optional, tag = "5")]
    pub(super) exited_at: Option<ProtoTimestamp>,
}
