//! Calls of containerd's content and events services, on a connection of their own.

use std::path::Path;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use prost::Message;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Code;

use criscope_grpc::frame::{self, FrameHeader};
use criscope_wire::services::{
    ContentFilters, ContentInfo, ContentInfoRequest, ContentInfoResponse, EventEnvelope,
    IngestStatus, ListContentResponse, ListStatusesResponse, ReadContentRequest,
    ReadContentResponse, SubscribeRequest,
};

/// The content service.
const CONTENT_SERVICE: &str = "/containerd.services.content.v1.Content";

/// The events service.
const EVENTS_SERVICE: &str = "/containerd.services.events.v1.Events";

/// The namespace of the CRI in containerd.
const CRI_NAMESPACE: &str = "k8s.io";

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest response that is read, in bytes.
const MAX_RESPONSE_LEN: usize = 4 << 20;

/// Largest manifest that is read, in bytes.
const MAX_MANIFEST_LEN: i64 = 1 << 20;

/// Largest event that is read, in bytes. Events of tasks have some hundred.
const MAX_EVENT_LEN: usize = 1 << 20;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainerdError {
    /// There is no connection, or it broke.
    #[error("no connection: {0}")]
    Connection(String),
    /// No answer in time.
    #[error("no answer for {CALL_TIMEOUT:?}")]
    Late,
    /// The service answered with an error.
    #[error("{0:?}")]
    Status(Code),
    /// The service ended a subscription: it shuts down, for example.
    #[error("the service ended the subscription")]
    Ended,
    /// The response is too large, or another message.
    #[error("the response is not understood")]
    Response,
}

impl From<h2::Error> for ContainerdError {
    fn from(error: h2::Error) -> Self {
        Self::Connection(error.to_string())
    }
}

/// A connection to containerd. Dropping the client closes it.
#[derive(Debug)]
pub(super) struct ContainerdClient {
    sender: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Drop for ContainerdClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl ContainerdClient {
    /// Connects to the socket of a containerd.
    pub(super) async fn connect(socket: &Path) -> Result<Self, ContainerdError> {
        let connecting = async {
            let stream = UnixStream::connect(socket).await;
            let stream = stream.map_err(|error| ContainerdError::Connection(error.to_string()))?;
            Ok(h2::client::handshake(stream).await?)
        };
        let connected: Result<_, ContainerdError> = timeout(CALL_TIMEOUT, connecting)
            .await
            .map_err(|_| ContainerdError::Late)?;
        let (sender, connection) = connected?;
        Ok(Self {
            sender,
            // Every call reports an error of the connection.
            connection: tokio::spawn(async move { drop(connection.await) }),
        })
    }

    /// Lists content that is being written.
    pub(super) async fn statuses(&self) -> Result<Vec<IngestStatus>, ContainerdError> {
        let pieces = self
            .call("ListStatuses", &ContentFilters::default())
            .await?;
        Ok(pieces
            .into_iter()
            .flat_map(|response: ListStatusesResponse| response.statuses)
            .collect())
    }

    /// Lists complete content with this filter.
    pub(super) async fn list(&self, filter: &str) -> Result<Vec<ContentInfo>, ContainerdError> {
        let filters = vec![filter.to_owned()];
        let pieces = self.call("List", &ContentFilters { filters }).await?;
        Ok(pieces
            .into_iter()
            .flat_map(|piece: ListContentResponse| piece.info)
            .collect())
    }

    /// Finds complete content; `None` if there is none with this digest.
    pub(super) async fn info(&self, digest: &str) -> Result<Option<ContentInfo>, ContainerdError> {
        let digest = digest.to_owned();
        match self.call("Info", &ContentInfoRequest { digest }).await {
            Ok(pieces) => Ok(pieces
                .into_iter()
                .find_map(|piece: ContentInfoResponse| piece.info)),
            Err(ContainerdError::Status(Code::NotFound)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a manifest.
    pub(super) async fn read(&self, digest: &str) -> Result<Vec<u8>, ContainerdError> {
        let request = ReadContentRequest {
            digest: digest.to_owned(),
            offset: 0,
            // 0 reads all content.
            size: 0,
        };
        let pieces: Vec<ReadContentResponse> = self.call("Read", &request).await?;
        let len = pieces.iter().map(|chunk| chunk.data.len()).sum::<usize>();
        if i64::try_from(len).is_ok_and(|len| len > MAX_MANIFEST_LEN) {
            return Err(ContainerdError::Response);
        }
        Ok(pieces.into_iter().flat_map(|chunk| chunk.data).collect())
    }

    /// Makes a call and collects the messages of its response.
    async fn call<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<Vec<A>, ContainerdError> {
        let answer = timeout(CALL_TIMEOUT, self.exchange(method, message)).await;
        answer.map_err(|_| ContainerdError::Late)?
    }

    async fn exchange<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<Vec<A>, ContainerdError> {
        let response = self.send(CONTENT_SERVICE, method, message).await?;
        let mut body = body(response).await?;
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            if bytes.len() + data.len() > MAX_RESPONSE_LEN {
                return Err(ContainerdError::Response);
            }
            bytes.extend_from_slice(&data);
        }
        end(&mut body).await?;
        messages(bytes.freeze())
    }

    /// Sends a request.
    async fn send(
        &self,
        service: &str,
        method: &str,
        message: &impl Message,
    ) -> Result<ResponseFuture, ContainerdError> {
        let request = http::Request::post(format!("http://localhost{service}/{method}"))
            .version(http::Version::HTTP_2)
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header(http::header::TE, "trailers")
            .header("containerd-namespace", CRI_NAMESPACE)
            .body(());
        let request = request.map_err(|_| ContainerdError::Response)?;
        let body = frame::frame(&message.encode_to_vec()).map_err(|_| ContainerdError::Response)?;
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, false)?;
        stream.send_data(body, true)?;
        Ok(response)
    }

    /// Subscribes to the events of the CRI's namespace with these topics. The response begins with the first event.
    pub(super) async fn subscribe(
        self,
        topics: &[&str],
    ) -> Result<EventSubscription, ContainerdError> {
        let filters = topics
            .iter()
            .map(|topic| format!("namespace=={CRI_NAMESPACE},topic==\"{topic}\""));
        let request = SubscribeRequest {
            filters: filters.collect(),
        };
        let sent = self.send(EVENTS_SERVICE, "Subscribe", &request);
        let response = timeout(CALL_TIMEOUT, sent)
            .await
            .map_err(|_| ContainerdError::Late)??;
        Ok(EventSubscription {
            response: Some(response),
            body: None,
            bytes: BytesMut::new(),
            _client: self,
        })
    }
}

/// A subscription to events. Dropping it ends the subscription.
#[derive(Debug)]
pub(super) struct EventSubscription {
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    /// The beginning of the next event.
    bytes: BytesMut,
    _client: ContainerdClient,
}

impl EventSubscription {
    /// Waits for the next event.
    ///
    /// # Errors
    /// If the subscription has ended.
    pub(super) async fn next(&mut self) -> Result<EventEnvelope, ContainerdError> {
        if let Some(response) = self.response.take() {
            self.body = Some(body(response).await?);
        }
        let body = self.body.as_mut().ok_or(ContainerdError::Response)?;
        loop {
            if let Some(event) = take_event(&mut self.bytes)? {
                return Ok(event);
            }
            let Some(data) = body.data().await else {
                end(body).await?;
                return Err(ContainerdError::Ended);
            };
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            self.bytes.extend_from_slice(&data);
        }
    }
}

/// Takes the first complete event out of the buffer.
fn take_event(bytes: &mut BytesMut) -> Result<Option<EventEnvelope>, ContainerdError> {
    let Some(head) = FrameHeader::read(bytes) else {
        return Ok(None);
    };
    if head.compressed || head.len > MAX_EVENT_LEN {
        return Err(ContainerdError::Response);
    }
    let len = frame::HEADER_LENGTH + head.len;
    if bytes.len() < len {
        return Ok(None);
    }
    let message = bytes.split_to(len).split_off(frame::HEADER_LENGTH);
    let event = EventEnvelope::decode(message).map_err(|_| ContainerdError::Response)?;
    Ok(Some(event))
}

/// The body of a response whose head has no error.
async fn body(response: ResponseFuture) -> Result<RecvStream, ContainerdError> {
    let (head, body) = response.await?.into_parts();
    check(frame::status(&head.headers).map(|(code, _)| code))?;
    match frame::code_of_http(head.status) {
        _ if head.status.is_success() => Ok(body),
        code => Err(ContainerdError::Status(code)),
    }
}

/// Checks the status after a body.
async fn end(body: &mut RecvStream) -> Result<(), ContainerdError> {
    let trailers = body.trailers().await?;
    let status = trailers.as_ref().and_then(frame::status);
    check(status.map(|(code, _)| code))
}

fn check(status: Option<Code>) -> Result<(), ContainerdError> {
    match status {
        Some(code) if code != Code::Ok => Err(ContainerdError::Status(code)),
        _ => Ok(()),
    }
}

/// Decodes the frames of a response.
fn messages<A: Message + Default>(mut bytes: Bytes) -> Result<Vec<A>, ContainerdError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let head = FrameHeader::read(&bytes).filter(|head| !head.compressed);
        let head = head.ok_or(ContainerdError::Response)?;
        bytes.advance(frame::HEADER_LENGTH);
        if bytes.len() < head.len {
            return Err(ContainerdError::Response);
        }
        let message = bytes.split_to(head.len);
        all.push(A::decode(message).map_err(|_| ContainerdError::Response)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_may_come_in_any_pieces() {
        let event = |topic: &str| EventEnvelope {
            topic: topic.to_owned(),
            ..EventEnvelope::default()
        };
        let all: Vec<_> = ["/tasks/oom", "/tasks/exit"]
            .map(|topic| frame::frame(&event(topic).encode_to_vec()).expect("a frame"))
            .concat();
        for size in 1..all.len() {
            let (mut bytes, mut read) = (BytesMut::new(), Vec::new());
            for piece in all.chunks(size) {
                bytes.extend_from_slice(piece);
                while let Some(event) = take_event(&mut bytes).expect("events") {
                    read.push(event);
                }
            }
            assert_eq!(read, [event("/tasks/oom"), event("/tasks/exit")], "{size}");
        }
        let mut large = BytesMut::from(&[0, 255, 0, 0, 0][..]);
        assert!(matches!(
            take_event(&mut large),
            Err(ContainerdError::Response)
        ));
    }
}
