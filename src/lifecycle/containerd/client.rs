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

use super::messages::{
    Envelope, Filters, Info, InfoRequest, InfoResponse, Infos, Piece, ReadRequest, Status,
    Statuses, SubscribeRequest,
};
use crate::grpc::frame::{self, FrameHeader};

/// The services.
const CONTENT: &str = "/containerd.services.content.v1.Content";
const EVENTS: &str = "/containerd.services.events.v1.Events";

/// The namespace of the CRI in containerd.
const NAMESPACE: &str = "k8s.io";

/// How long a call may take, and the most bytes of its response.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST: usize = 4 << 20;

/// Largest manifest that is read.
const MANIFEST: i64 = 1 << 20;

/// Largest event that is read, in bytes. Those of tasks have some hundred.
const EVENT: usize = 1 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// There is no connection, or it broke.
    #[error("no connection: {0}")]
    Connection(String),
    /// No answer in time.
    #[error("no answer for {PATIENCE:?}")]
    Late,
    /// The service answered with an error.
    #[error("{0:?}")]
    Status(Code),
    /// The service ended a subscription, as when it shuts down.
    #[error("the service ended the subscription")]
    Ended,
    /// The response is too large or not of these messages.
    #[error("the response is not understood")]
    Response,
}

impl From<h2::Error> for Error {
    fn from(error: h2::Error) -> Self {
        Self::Connection(error.to_string())
    }
}

/// A connection. It ends with this.
#[derive(Debug)]
pub(super) struct Client {
    sender: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    /// Connects to the socket of a containerd.
    pub(super) async fn connect(socket: &Path) -> Result<Self, Error> {
        let connecting = async {
            let stream = UnixStream::connect(socket).await;
            let stream = stream.map_err(|error| Error::Connection(error.to_string()))?;
            Ok(h2::client::handshake(stream).await?)
        };
        let connected: Result<_, Error> = timeout(PATIENCE, connecting)
            .await
            .map_err(|_| Error::Late)?;
        let (sender, connection) = connected?;
        Ok(Self {
            sender,
            // Each call sees an error of the connection itself.
            connection: tokio::spawn(async move { drop(connection.await) }),
        })
    }

    /// Content that is being written.
    pub(super) async fn statuses(&self) -> Result<Vec<Status>, Error> {
        let pieces = self.call("ListStatuses", &Filters::default()).await?;
        Ok(pieces
            .into_iter()
            .flat_map(|it: Statuses| it.statuses)
            .collect())
    }

    /// Complete content with this filter.
    pub(super) async fn list(&self, filter: &str) -> Result<Vec<Info>, Error> {
        let filters = vec![filter.to_owned()];
        let pieces = self.call("List", &Filters { filters }).await?;
        Ok(pieces.into_iter().flat_map(|it: Infos| it.infos).collect())
    }

    /// Complete content; `None` if there is none with this digest.
    pub(super) async fn info(&self, digest: &str) -> Result<Option<Info>, Error> {
        let digest = digest.to_owned();
        match self.call("Info", &InfoRequest { digest }).await {
            Ok(pieces) => Ok(pieces.into_iter().find_map(|it: InfoResponse| it.info)),
            Err(Error::Status(Code::NotFound)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A manifest.
    pub(super) async fn read(&self, digest: &str) -> Result<Vec<u8>, Error> {
        let request = ReadRequest {
            digest: digest.to_owned(),
            offset: 0,
            // All of it.
            size: 0,
        };
        let pieces: Vec<Piece> = self.call("Read", &request).await?;
        let len = pieces.iter().map(|it| it.data.len()).sum::<usize>();
        if i64::try_from(len).is_ok_and(|len| len > MANIFEST) {
            return Err(Error::Response);
        }
        Ok(pieces.into_iter().flat_map(|it| it.data).collect())
    }

    /// Makes a call and collects the messages of its response.
    async fn call<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<Vec<A>, Error> {
        let answer = timeout(PATIENCE, self.exchange(method, message)).await;
        answer.map_err(|_| Error::Late)?
    }

    async fn exchange<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<Vec<A>, Error> {
        let response = self.send(CONTENT, method, message).await?;
        let mut body = body(response).await?;
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            if bytes.len() + data.len() > MOST {
                return Err(Error::Response);
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
    ) -> Result<ResponseFuture, Error> {
        let request = http::Request::post(format!("http://localhost{service}/{method}"))
            .version(http::Version::HTTP_2)
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header(http::header::TE, "trailers")
            .header("containerd-namespace", NAMESPACE)
            .body(());
        let request = request.map_err(|_| Error::Response)?;
        let body = frame::frame(&message.encode_to_vec()).map_err(|_| Error::Response)?;
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, false)?;
        stream.send_data(body, true)?;
        Ok(response)
    }

    /// Subscribes to the events of the CRI's namespace with these topics. The response begins with the first event.
    pub(super) async fn subscribe(self, topics: &[&str]) -> Result<Subscription, Error> {
        let filter = |topic: &&str| format!("namespace=={NAMESPACE},topic==\"{topic}\"");
        let filters = topics.iter().map(filter).collect();
        let request = SubscribeRequest { filters };
        let sent = self.send(EVENTS, "Subscribe", &request);
        let response = timeout(PATIENCE, sent).await.map_err(|_| Error::Late)??;
        Ok(Subscription {
            response: Some(response),
            body: None,
            bytes: BytesMut::new(),
            _client: self,
        })
    }
}

/// Events as they come. It ends with this.
#[derive(Debug)]
pub(super) struct Subscription {
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    /// The beginning of the next event.
    bytes: BytesMut,
    _client: Client,
}

impl Subscription {
    /// The next event.
    ///
    /// # Errors
    /// If the subscription has ended.
    pub(super) async fn next(&mut self) -> Result<Envelope, Error> {
        if let Some(response) = self.response.take() {
            self.body = Some(body(response).await?);
        }
        let body = self.body.as_mut().ok_or(Error::Response)?;
        loop {
            if let Some(event) = first(&mut self.bytes)? {
                return Ok(event);
            }
            let Some(data) = body.data().await else {
                end(body).await?;
                return Err(Error::Ended);
            };
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            self.bytes.extend_from_slice(&data);
        }
    }
}

/// The first complete event.
fn first(bytes: &mut BytesMut) -> Result<Option<Envelope>, Error> {
    let Some(head) = FrameHeader::read(bytes) else {
        return Ok(None);
    };
    if head.compressed || head.len > EVENT {
        return Err(Error::Response);
    }
    let len = frame::HEADER_LENGTH + head.len;
    if bytes.len() < len {
        return Ok(None);
    }
    let message = bytes.split_to(len).split_off(frame::HEADER_LENGTH);
    let event = Envelope::decode(message).map_err(|_| Error::Response)?;
    Ok(Some(event))
}

/// The body of a response whose head has no error.
async fn body(response: ResponseFuture) -> Result<RecvStream, Error> {
    let (head, body) = response.await?.into_parts();
    check(frame::status(&head.headers).map(|(code, _)| code))?;
    match frame::code_of_http(head.status) {
        _ if head.status.is_success() => Ok(body),
        code => Err(Error::Status(code)),
    }
}

/// Checks the status after a body.
async fn end(body: &mut RecvStream) -> Result<(), Error> {
    let trailers = body.trailers().await?;
    let status = trailers.as_ref().and_then(frame::status);
    check(status.map(|(code, _)| code))
}

fn check(status: Option<Code>) -> Result<(), Error> {
    match status {
        Some(code) if code != Code::Ok => Err(Error::Status(code)),
        _ => Ok(()),
    }
}

/// Decodes the frames of a response.
fn messages<A: Message + Default>(mut bytes: Bytes) -> Result<Vec<A>, Error> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let head = FrameHeader::read(&bytes).filter(|head| !head.compressed);
        let head = head.ok_or(Error::Response)?;
        bytes.advance(frame::HEADER_LENGTH);
        if bytes.len() < head.len {
            return Err(Error::Response);
        }
        let message = bytes.split_to(head.len);
        all.push(A::decode(message).map_err(|_| Error::Response)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_may_come_in_any_pieces() {
        let event = |topic: &str| Envelope {
            topic: topic.to_owned(),
            ..Envelope::default()
        };
        let all: Vec<_> = ["/tasks/oom", "/tasks/exit"]
            .map(|topic| frame::frame(&event(topic).encode_to_vec()).expect("a frame"))
            .concat();
        for size in 1..all.len() {
            let (mut bytes, mut read) = (BytesMut::new(), Vec::new());
            for piece in all.chunks(size) {
                bytes.extend_from_slice(piece);
                while let Some(event) = first(&mut bytes).expect("events") {
                    read.push(event);
                }
            }
            assert_eq!(read, [event("/tasks/oom"), event("/tasks/exit")], "{size}");
        }
        let mut large = BytesMut::from(&[0, 255, 0, 0, 0][..]);
        assert!(matches!(first(&mut large), Err(Error::Response)));
    }
}
