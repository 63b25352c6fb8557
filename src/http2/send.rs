//! What goes out: heads, data as far as there is room for it, trailers.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Method, StatusCode, request};

use super::core::Core;
use super::error::{Error, Reason};
use super::frame;
use super::hpack::encode::Encoder;
use super::stream::{Key, keep};

impl Core {
    /// Opens a stream and sends the head of a request.
    pub(super) fn poll_open(
        &mut self,
        cx: &Context<'_>,
        head: &request::Parts,
        is_end: bool,
    ) -> Poll<Result<Key, Error>> {
        if let Some(error) = &self.over {
            return Poll::Ready(Err(error.clone()));
        }
        if self.streams.count() >= self.max_streams || !self.out.has_room() {
            self.wait(cx);
            return Poll::Pending;
        }
        let id = if self.last_id == 0 {
            1
        } else {
            self.last_id + 2
        };
        if id > 0x7fff_ffff {
            return Poll::Ready(Err(Error::NotTaken(Reason::NO_ERROR)));
        }
        self.last_id = id;
        let key = self.open(id);
        self.block(id, is_end, |encoder, out| {
            request(encoder, out, head);
            fields(encoder, out, &head.headers);
        });
        if is_end {
            self.sent_all(key);
        }
        Poll::Ready(Ok(key))
    }

    /// Sends the head of an answer.
    pub(super) fn respond(
        &mut self,
        key: Key,
        status: StatusCode,
        headers: &HeaderMap,
        is_end: bool,
    ) {
        let stream = &self.streams[key];
        if !stream.is_open || stream.sent_all {
            return;
        }
        self.block(stream.id, is_end, |encoder, out| {
            match [200, 204, 206, 304, 400, 404, 500].binary_search(&status.as_u16()) {
                Ok(at) => Encoder::indexed(out, 8 + at),
                Err(_) => Encoder::literal(out, 8, status.as_str().as_bytes()),
            }
            fields(encoder, out, headers);
        });
        if is_end {
            self.sent_all(key);
        }
    }

    /// Sends trailers, and with them the end.
    pub(super) fn trailers(&mut self, key: Key, trailers: &HeaderMap) {
        let stream = &self.streams[key];
        if stream.is_open && !stream.sent_all {
            self.block(stream.id, true, |encoder, out| {
                fields(encoder, out, trailers);
            });
            self.sent_all(key);
        }
    }

    /// Writes a header block.
    fn block(&mut self, id: u32, is_end: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let out = self.out.buf();
        let at = out.len();
        let end = if is_end { frame::END_STREAM } else { 0 };
        frame::head(out, 0, frame::HEADERS, end, id);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let begin = at + frame::HEAD;
        let len = out.len() - begin;
        if len <= frame::MAX_PAYLOAD {
            let [.., a, b, c] = len.to_be_bytes();
            out[at..at + 3].copy_from_slice(&[a, b, c]);
            out[at + 4] |= frame::END_HEADERS;
        } else {
            let block = out.split_off(begin);
            out.truncate(at);
            let last = len.div_ceil(frame::MAX_PAYLOAD) - 1;
            for (n, part) in block.chunks(frame::MAX_PAYLOAD).enumerate() {
                let (kind, flags) = match n {
                    0 => (frame::HEADERS, end),
                    n if n == last => (frame::CONTINUATION, frame::END_HEADERS),
                    _ => (frame::CONTINUATION, 0),
                };
                frame::head(out, part.len(), kind, flags, id);
                out.extend_from_slice(part);
            }
        }
        self.wake();
    }

    /// Sends data as far as there is room; ready once all is sent, or if the stream broke.
    pub(super) fn poll_data(
        &mut self,
        cx: &Context<'_>,
        key: Key,
        data: &mut Bytes,
        is_end: bool,
    ) -> Poll<Result<(), Error>> {
        loop {
            let stream = &mut self.streams[key];
            if !stream.is_open || stream.sent_all {
                return Poll::Ready(Err(stream.error.clone().unwrap_or(Error::Closed)));
            }
            let room = stream.send_window.min(self.send_window);
            let room = usize::try_from(room).unwrap_or(0).min(frame::MAX_PAYLOAD);
            let has_room = (room > 0 || data.is_empty()) && self.out.has_room();
            if !has_room {
                if stream.send_window > 0 {
                    self.queue(cx, key);
                } else {
                    keep(&mut stream.writer, cx.waker());
                }
                return Poll::Pending;
            }
            let part = data.split_to(data.len().min(room));
            let is_all = data.is_empty();
            stream.send_window -= part.len() as i64;
            self.send_window -= part.len() as i64;
            let flags = if is_all && is_end {
                frame::END_STREAM
            } else {
                0
            };
            frame::head(self.out.buf(), part.len(), frame::DATA, flags, stream.id);
            self.out.data(part);
            self.wake();
            if is_all {
                if is_end {
                    self.sent_all(key);
                }
                return Poll::Ready(Ok(()));
            }
        }
    }
}

fn request(encoder: &mut Encoder, out: &mut Vec<u8>, head: &request::Parts) {
    match head.method {
        Method::POST => Encoder::indexed(out, 3),
        Method::GET => Encoder::indexed(out, 2),
        _ => Encoder::literal(out, 2, head.method.as_str().as_bytes()),
    }
    match head.uri.scheme() {
        None => Encoder::indexed(out, 6),
        Some(scheme) if *scheme == Scheme::HTTP => Encoder::indexed(out, 6),
        Some(scheme) => Encoder::literal(out, 6, scheme.as_str().as_bytes()),
    }
    match head.uri.path_and_query() {
        Some(path) => encoder.path(out, path),
        None => Encoder::indexed(out, 4),
    }
    if let Some(authority) = head.uri.authority() {
        encoder.authority(out, authority);
    }
}

fn fields(encoder: &mut Encoder, out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        encoder.header(out, name, value);
    }
}
