//! Joins the responses of several backends into one.
//!
//! A list is joined without decoding it: concatenating two encoded messages merges them, and repeated fields are appended
//! (Protobuf encoding, "last one wins" and repeated fields). So the joined message is a frame header with the sum of the
//! lengths, then the bytes of each as they arrive, without buffering.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tonic::Code;

use super::fan_out::{BackendResponse, blame};
use crate::grpc::frame::{self, FrameHeader, HEADER_LENGTH};
use crate::grpc::observed::FrameResult;
use crate::grpc::status::Status;
use crate::grpc::{Body, BoxError, Response};

/// Largest single message of a stream that is joined with others, in bytes.
const MAX_MESSAGE: usize = 64 << 20;

/// Reads the messages of one response.
struct MessageReader {
    answer: BackendResponse,
    buffer: BytesMut,
    /// True if the body has ended successfully.
    ended: bool,
}

impl MessageReader {
    fn new(answer: BackendResponse) -> Self {
        Self {
            answer,
            buffer: BytesMut::new(),
            ended: false,
        }
    }

    fn fault(&self, code: Code, text: &str) -> Status {
        blame(&self.answer.backend, Status::new(code, text))
    }

    /// The next piece of data; `None` at a successful end.
    async fn data(&mut self) -> Result<Option<Bytes>, Status> {
        while !self.ended {
            let Some(frame) = self.answer.body.frame().await else {
                // Without trailers, the status must have been among the headers.
                self.ended = true;
                return match frame::status(&self.answer.headers) {
                    Some(_) => Ok(None),
                    None => Err(self.fault(Code::Unknown, "the answer ended without grpc-status")),
                };
            };
            let frame = frame.map_err(|e| self.fault(Code::Unavailable, &e.to_string()))?;
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    self.ended = true;
                    match frame::status(&trailers) {
                        Some((Code::Ok, _)) => return Ok(None),
                        Some((code, text)) => {
                            return Err(self.fault(code, &text.unwrap_or_default()));
                        }
                        None => {
                            return Err(self.fault(Code::Unknown, "trailers without grpc-status"));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads until `n` bytes are in the buffer; returns false at the end.
    async fn fill(&mut self, n: usize) -> Result<bool, Status> {
        while self.buffer.len() < n {
            match self.data().await? {
                Some(data) => self.buffer.extend_from_slice(&data),
                None if self.buffer.is_empty() => return Ok(false),
                None => return Err(self.fault(Code::Internal, "the answer ends within a message")),
            }
        }
        Ok(true)
    }

    /// Consumes the header of the next message.
    async fn head(&mut self) -> Result<Option<FrameHeader>, Status> {
        if !self.fill(HEADER_LENGTH).await? {
            return Ok(None);
        }
        let head = FrameHeader::read(&self.buffer.split_to(HEADER_LENGTH));
        match head {
            Some(head) if head.compressed => {
                Err(self.fault(Code::Internal, "a compressed answer cannot be joined"))
            }
            head => Ok(head),
        }
    }

    /// The next complete message with its header; `None` at a successful end.
    async fn message(&mut self) -> Result<Option<Bytes>, Status> {
        if !self.fill(HEADER_LENGTH).await? {
            return Ok(None);
        }
        let len = FrameHeader::read(&self.buffer).map_or(0, |head| head.len);
        if len > MAX_MESSAGE {
            return Err(self.fault(
                Code::ResourceExhausted,
                "a message is too large to be joined",
            ));
        }
        self.fill(HEADER_LENGTH + len).await?;
        Ok(Some(self.buffer.split_to(HEADER_LENGTH + len).freeze()))
    }
}

fn respond(
    answers: &[MessageReader],
    frames: impl Stream<Item = FrameResult> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::boxed(StreamBody::new(frames)));
    if let Some(first) = answers.first() {
        *response.headers_mut() = first.answer.headers.clone();
        // A status in the headers is that of an empty response.
        response.headers_mut().remove("grpc-status");
        response.headers_mut().remove("grpc-message");
    }
    response
}

fn end(result: Result<(), Status>) -> FrameResult {
    let status = result.err().unwrap_or_else(|| Status::new(Code::Ok, ""));
    let mut trailers = status.to_headers();
    if status.code == Code::Ok {
        trailers.remove("grpc-message");
    }
    Ok(Frame::trailers(trailers))
}

/// One message with the repeated fields of all.
///
/// # Errors
/// The first error of a backend that occurs before any byte of its message.
pub async fn concat(answers: Vec<BackendResponse>) -> Result<Response, BoxError> {
    let mut readers: Vec<_> = answers.into_iter().map(MessageReader::new).collect();
    let mut lengths = VecDeque::new();
    for reader in &mut readers {
        match reader.head().await? {
            Some(head) => lengths.push_back(head.len),
            None => {
                return Err(reader
                    .fault(Code::Internal, "the answer has no message")
                    .into());
            }
        }
    }
    let total = lengths.iter().sum::<usize>();
    let total = u32::try_from(total)
        .map_err(|_| Status::new(Code::ResourceExhausted, "the joined answer exceeds 4 GiB"))?;
    let mut head = BytesMut::with_capacity(HEADER_LENGTH);
    head.put_u8(0);
    head.put_u32(total);

    let response = respond(&readers, stream::empty());
    let state = ConcatenatedBody {
        readers: readers.into(),
        lengths,
        over: false,
    };
    let rest = stream::unfold(state, |mut state| async move {
        if state.over {
            return None;
        }
        let item = match state.next().await {
            Ok(Some(data)) => Ok(Frame::data(data)),
            Ok(None) => {
                state.over = true;
                end(Ok(()))
            }
            Err(status) => {
                state.over = true;
                end(Err(status))
            }
        };
        Some((item, state))
    });
    let frames = stream::iter([Ok(Frame::data(head.freeze()))]).chain(rest);
    Ok(response.map(|_| Body::boxed(StreamBody::new(frames))))
}

struct ConcatenatedBody {
    readers: VecDeque<MessageReader>,
    /// Bytes left of each reader's message.
    lengths: VecDeque<usize>,
    over: bool,
}

impl ConcatenatedBody {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        while let (Some(reader), Some(missing)) =
            (self.readers.front_mut(), self.lengths.front_mut())
        {
            if *missing == 0 {
                // The trailers may still report that the list is incomplete.
                if reader.data().await?.is_some() || !reader.buffer.is_empty() {
                    return Err(reader.fault(Code::Internal, "the answer has a second message"));
                }
                self.readers.pop_front();
                self.lengths.pop_front();
                continue;
            }
            let mut data = if reader.buffer.is_empty() {
                match reader.data().await? {
                    Some(data) => data,
                    None => {
                        return Err(
                            reader.fault(Code::Internal, "the answer ends within a message")
                        );
                    }
                }
            } else {
                reader.buffer.split().freeze()
            };
            if data.len() > *missing {
                let take = *missing;
                reader.buffer.extend_from_slice(&data[take..]);
                data.truncate(take);
            }
            *missing -= data.len();
            return Ok(Some(data));
        }
        Ok(None)
    }
}

/// The messages of each stream, one stream after the other.
pub fn chain(answers: Vec<BackendResponse>) -> Response {
    let readers: Vec<_> = answers.into_iter().map(MessageReader::new).collect();
    let response = respond(&readers, stream::empty());
    let state = (VecDeque::from(readers), false);
    let frames = stream::unfold(state, |(mut readers, over)| async move {
        if over {
            return None;
        }
        loop {
            let Some(reader) = readers.front_mut() else {
                return Some((end(Ok(())), (readers, true)));
            };
            match reader.message().await {
                Ok(Some(message)) => return Some((Ok(Frame::data(message)), (readers, false))),
                Ok(None) => drop(readers.pop_front()),
                Err(status) => return Some((end(Err(status)), (readers, true))),
            }
        }
    });
    response.map(|_| Body::boxed(StreamBody::new(frames)))
}

/// The messages of all streams as they arrive. The first stream that ends, ends the response: the caller must subscribe
/// again, or it would miss the events of that backend.
pub fn interleave(answers: Vec<BackendResponse>) -> Response {
    let readers: Vec<_> = answers.into_iter().map(MessageReader::new).collect();
    let response = respond(&readers, stream::empty());
    let pending: FuturesUnordered<_> = readers.into_iter().map(next_message).collect();
    let frames = stream::unfold((pending, false), move |(mut pending, over)| async move {
        if over {
            return None;
        }
        let last = match pending.next().await {
            Some((reader, Ok(Some(message)))) => {
                pending.push(next_message(reader));
                return Some((Ok(Frame::data(message)), (pending, false)));
            }
            Some((_, Ok(None))) | None => end(Ok(())),
            Some((_, Err(status))) => end(Err(status)),
        };
        Some((last, (pending, true)))
    });
    response.map(|_| Body::boxed(StreamBody::new(frames)))
}

async fn next_message(mut reader: MessageReader) -> (MessageReader, Result<Option<Bytes>, Status>) {
    let message = reader.message().await;
    (reader, message)
}

/// The first response, if every backend succeeded.
///
/// # Errors
/// The first error, with the name of the backend.
pub async fn every(answers: Vec<BackendResponse>) -> Result<Response, BoxError> {
    let mut first = None;
    for (headers, message) in messages(answers).await? {
        first.get_or_insert((headers, message));
    }
    let (headers, message) =
        first.ok_or_else(|| Status::new(Code::Internal, "there is no backend"))?;
    Ok(single(headers, &message))
}

/// The one message of each response, without its header.
///
/// # Errors
/// The first error, with the name of the backend.
pub async fn messages(
    answers: Vec<BackendResponse>,
) -> Result<Vec<(http::HeaderMap, Bytes)>, Status> {
    let mut messages = Vec::with_capacity(answers.len());
    for answer in answers {
        let mut reader = MessageReader::new(answer);
        let Some(mut message) = reader.message().await? else {
            return Err(reader.fault(Code::Internal, "the answer has no message"));
        };
        message.advance(HEADER_LENGTH);
        if reader.message().await?.is_some() {
            return Err(reader.fault(Code::Internal, "the answer has a second message"));
        }
        messages.push((reader.answer.headers, message));
    }
    Ok(messages)
}

/// A response of one message.
pub fn single(headers: http::HeaderMap, message: &Bytes) -> Response {
    let framed = match frame::frame(message) {
        Ok(framed) => framed,
        Err(error) => {
            return Status::new(Code::ResourceExhausted, error.to_string()).into_response();
        }
    };
    let frames = [Ok(Frame::data(framed)), end(Ok(()))];
    let mut response = Response::new(Body::boxed(StreamBody::new(stream::iter(frames))));
    *response.headers_mut() = headers;
    response.headers_mut().remove("grpc-status");
    response
}
