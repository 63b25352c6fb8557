//! The runtime that calls are played against: requests are sent as bytes.

use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::client::MAX_MESSAGE_BYTES;
use crate::cri::Method;

/// Time limit of a call that was recorded without one.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// How a call ended.
pub(super) struct ReplayedResponse {
    pub(super) code: Code,
    /// The error message.
    pub(super) text: String,
    /// The first message of the response.
    pub(super) answer: Bytes,
    pub(super) elapsed: Duration,
}

/// Makes a call with the deadline that it was recorded with.
pub(super) async fn call(
    channel: &Channel,
    method: Method,
    message: Bytes,
    deadline: Option<Duration>,
) -> ReplayedResponse {
    let began = Instant::now();
    let limit = deadline.unwrap_or(DEFAULT_CALL_TIMEOUT);
    let result = match tokio::time::timeout(limit, send(channel, method, message, deadline)).await {
        Ok(result) => result,
        Err(_) => Err(Status::deadline_exceeded("the recorded deadline passed")),
    };
    let elapsed = began.elapsed();
    let (code, text, answer) = match result {
        Ok(answer) => (Code::Ok, String::new(), answer),
        Err(status) => (status.code(), status.message().to_owned(), Bytes::new()),
    };
    ReplayedResponse {
        code,
        text,
        answer,
        elapsed,
    }
}

async fn send(
    channel: &Channel,
    method: Method,
    message: Bytes,
    deadline: Option<Duration>,
) -> Result<Bytes, Status> {
    let mut grpc = Grpc::new(channel.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline);
    }
    let path = format!("/{}", method.full_name()).parse::<PathAndQuery>();
    let path = path.map_err(|error| Status::internal(error.to_string()))?;
    // A single response is a stream of one.
    let response = grpc
        .server_streaming(request, path, RawMessageCodec)
        .await?;
    let mut messages = response.into_inner();
    let first = messages.message().await?.unwrap_or_default();
    while messages.message().await?.is_some() {}
    Ok(first)
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct RawMessageCodec;

impl Codec for RawMessageCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawMessageCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for RawMessageCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
