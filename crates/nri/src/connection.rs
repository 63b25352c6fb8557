//! The connection of a plugin: requests in both directions over one socket.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use criscope_wire::ttrpc::{FrameError, KeyValue, Request, Response, Status, decode};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::CallError;
use crate::frame::{FRAME_HEADER, MAX_FRAME, PLUGIN_CONNECTION, RUNTIME_CONNECTION, encode};
use crate::observer::CloseReason;

/// Upper bound of messages that wait to be sent.
const MAX_OUTGOING_MESSAGES: usize = 16;
/// Upper bound of requests of a plugin that wait to be served.
const MAX_INCOMING_REQUESTS: usize = 16;

/// A request of the plugin.
pub(crate) struct IncomingRequest {
    pub(crate) stream: u32,
    pub(crate) request: Request,
}

type ResponseSender = oneshot::Sender<Response>;

/// A connection. Its tasks end when it is closed.
pub(crate) struct PluginConnection {
    /// The logical connection for requests of this end.
    calls: u32,
    /// The logical connection for requests of the other end.
    serves: u32,
    outgoing: mpsc::Sender<Bytes>,
    pending: Mutex<HashMap<u32, ResponseSender>>,
    next: AtomicU32,
    closed: watch::Sender<Option<CloseReason>>,
}

impl fmt::Debug for PluginConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("closed", &*self.closed.borrow())
            .finish_non_exhaustive()
    }
}

impl PluginConnection {
    /// Takes the socket of a plugin over. Its requests arrive in the channel.
    pub(crate) fn open(socket: UnixStream) -> (Arc<Self>, mpsc::Receiver<IncomingRequest>) {
        Self::between(socket, PLUGIN_CONNECTION, RUNTIME_CONNECTION)
    }

    /// Takes the socket of the runtime over, in a plugin.
    pub(crate) fn to_runtime(socket: UnixStream) -> (Arc<Self>, mpsc::Receiver<IncomingRequest>) {
        Self::between(socket, RUNTIME_CONNECTION, PLUGIN_CONNECTION)
    }

    fn between(
        socket: UnixStream,
        calls: u32,
        serves: u32,
    ) -> (Arc<Self>, mpsc::Receiver<IncomingRequest>) {
        let (read, write) = socket.into_split();
        let (outgoing, to_send) = mpsc::channel(MAX_OUTGOING_MESSAGES);
        let (incoming, requests) = mpsc::channel(MAX_INCOMING_REQUESTS);
        let connection = Arc::new(Self {
            calls,
            serves,
            outgoing,
            pending: Mutex::default(),
            next: AtomicU32::new(1),
            closed: watch::Sender::new(None),
        });
        tokio::spawn(Arc::clone(&connection).write(write, to_send));
        tokio::spawn(Arc::clone(&connection).read(read, incoming));
        (connection, requests)
    }

    /// Closes the connection; only the first reason counts. Requests in progress fail.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.closed.send_if_modified(|now| {
            let first = now.is_none();
            now.get_or_insert(reason);
            first
        });
        self.pending().clear();
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) -> CloseReason {
        let mut closed = self.closed.subscribe();
        let reason = closed.wait_for(Option::is_some).await;
        // The sender is `self`.
        let reason = reason.ok().and_then(|reason| reason.clone());
        reason.unwrap_or(CloseReason::Disconnected)
    }

    /// Calls a method of the plugin. The answer is not decoded.
    pub(crate) async fn call(
        &self,
        service: &str,
        method: &str,
        payload: Vec<u8>,
        metadata: Vec<(String, String)>,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let stream = self.next.fetch_add(2, Ordering::Relaxed);
        let request = Request {
            service: service.to_owned(),
            method: method.to_owned(),
            payload,
            timeout_nano: timeout.as_nanos().try_into().unwrap_or(i64::MAX),
            metadata: metadata
                .into_iter()
                .map(|(key, value)| KeyValue { key, value })
                .collect(),
        };
        let frames = encode(self.calls, stream, &request)
            .map_err(|_| CallError::TooLarge(request.encoded_len()))?;
        let (answer, answered) = oneshot::channel();
        self.pending().insert(stream, answer);
        let _forget = PendingRequestGuard(self, stream);
        if self.is_closed() {
            return Err(CallError::Closed);
        }
        let exchange = async {
            self.outgoing.send(frames).await.ok()?;
            answered.await.ok()
        };
        match tokio::time::timeout(timeout, exchange).await {
            Err(_) => Err(CallError::Timeout(timeout)),
            Ok(None) => Err(CallError::Closed),
            Ok(Some(response)) => response
                .into_result()
                .map_err(|Status { code, message }| CallError::Status { code, message }),
        }
    }

    /// Answers a request of the plugin.
    pub(crate) async fn answer(&self, stream: u32, result: Result<Vec<u8>, (i32, String)>) {
        let response = match result {
            Ok(payload) => Response {
                status: None,
                payload,
            },
            Err((code, message)) => Response {
                status: Some(Status { code, message }),
                payload: Vec::new(),
            },
        };
        match encode(self.serves, stream, &response) {
            // Fails when the connection is closed.
            Ok(frames) => drop(self.outgoing.send(frames).await),
            Err(_) => self.close(CloseReason::Protocol("an answer is too long".to_owned())),
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u32, ResponseSender>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(self: Arc<Self>, mut half: OwnedWriteHalf, mut to_send: mpsc::Receiver<Bytes>) {
        let sending = async {
            while let Some(mut frames) = to_send.recv().await {
                while frames.has_remaining() {
                    if half.write_buf(&mut frames).await.is_err() {
                        return self.close(CloseReason::Disconnected);
                    }
                }
            }
        };
        tokio::select! {
            () = sending => {}
            _ = self.closed() => {}
        }
    }

    async fn read(self: Arc<Self>, half: OwnedReadHalf, requests: mpsc::Sender<IncomingRequest>) {
        let reason = tokio::select! {
            reason = self.read_all(half, &requests) => reason,
            _ = self.closed() => return,
        };
        self.close(reason);
    }

    async fn read_all(
        &self,
        mut half: OwnedReadHalf,
        requests: &mpsc::Sender<IncomingRequest>,
    ) -> CloseReason {
        let (mut responses, mut incoming, mut other) =
            (BytesMut::new(), BytesMut::new(), BytesMut::new());
        loop {
            let mut head = [0; FRAME_HEADER];
            if half.read_exact(&mut head).await.is_err() {
                return CloseReason::Disconnected;
            }
            let mut head = &head[..];
            let (connection, length) = (head.get_u32(), head.get_u32() as usize);
            if length > MAX_FRAME {
                return CloseReason::Protocol(format!("a frame of {length} bytes"));
            }
            let data = match connection {
                id if id == self.calls => &mut responses,
                id if id == self.serves => &mut incoming,
                // Reserved for later versions.
                _ => &mut other,
            };
            if read_into(&mut half, data, length).await.is_err() {
                return CloseReason::Disconnected;
            }
            other.clear();
            let taken = self
                .take_responses(&mut responses)
                .map_err(|error| error.to_string())
                .and_then(|()| Self::take_requests(&mut incoming, requests));
            if let Err(what) = taken {
                return CloseReason::Protocol(what);
            }
        }
    }

    fn take_responses(&self, data: &mut BytesMut) -> Result<(), FrameError> {
        while let Some(frame) = decode::<Response>(data)? {
            data.advance(frame.length);
            // The caller may have given up the request.
            if let Some(answer) = self.pending().remove(&frame.stream) {
                let _given_up = answer.send(frame.message);
            }
        }
        Ok(())
    }

    fn take_requests(
        data: &mut BytesMut,
        requests: &mpsc::Sender<IncomingRequest>,
    ) -> Result<(), String> {
        while let Some(frame) = decode(data).map_err(|error| error.to_string())? {
            data.advance(frame.length);
            let (stream, request) = (frame.stream, frame.message);
            // This does not wait for room: a response that another request waits for may be behind the request.
            requests
                .try_send(IncomingRequest { stream, request })
                .map_err(|_| format!("more than {MAX_INCOMING_REQUESTS} requests at a time"))?;
        }
        Ok(())
    }
}

/// Reads `length` bytes. Memory is taken as they arrive.
async fn read_into(half: &mut OwnedReadHalf, data: &mut BytesMut, length: usize) -> io::Result<()> {
    let mut part = half.take(length as u64);
    let end = data.len() + length;
    while data.len() < end {
        if part.read_buf(data).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Forgets a pending request when its caller stops waiting.
struct PendingRequestGuard<'a>(&'a PluginConnection, u32);

impl Drop for PendingRequestGuard<'_> {
    fn drop(&mut self) {
        self.0.pending().remove(&self.1);
    }
}
