//! Calls of containerd's content service, on a connection of their own.

use std::path::Path;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use prost::Message;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Code;

use super::messages::{
    Filters, Info, InfoRequest, InfoResponse, Infos, Piece, ReadRequest, Status, Statuses,
};
use crate::grpc::frame::{self, Head};

/// The service.
const SERVICE: &str = "/containerd.services.content.v1.Content";

/// The namespace of the CRI in containerd.
const NAMESPACE: &str = "k8s.io";

/// How long a call may take, and the most bytes of its response.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST: usize = 4 << 20;

/// Largest manifest that is read.
const MANIFEST: i64 = 1 << 20;

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
        let request = http::Request::post(format!("http://localhost{SERVICE}/{method}"))
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
        let (head, mut body) = response.await?.into_parts();
        check(frame::status(&head.headers).map(|(code, _)| code))?;
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            if bytes.len() + data.len() > MOST {
                return Err(Error::Response);
            }
            bytes.extend_from_slice(&data);
        }
        let trailers = body.trailers().await?;
        let status = trailers.as_ref().and_then(frame::status);
        check(status.map(|(code, _)| code))?;
        messages(bytes.freeze())
    }
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
        let head = Head::read(&bytes).filter(|head| !head.compressed);
        let head = head.ok_or(Error::Response)?;
        bytes.advance(frame::HEADER);
        if bytes.len() < head.len {
            return Err(Error::Response);
        }
        let message = bytes.split_to(head.len);
        all.push(A::decode(message).map_err(|_| Error::Response)?);
    }
    Ok(all)
}
