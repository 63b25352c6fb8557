//! Reads pages of the daemon on this node, over its read-only port.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest page, in bytes.
const ENOUGH: usize = 16 << 20;

/// A daemon.
#[derive(Clone, Copy, Debug)]
pub struct Daemon {
    /// `admin.listen`.
    address: SocketAddr,
}

/// A page.
#[derive(Debug)]
pub struct Page {
    /// The HTTP status.
    pub status: StatusCode,
    /// `Content-Type`.
    pub content_type: Option<HeaderValue>,
    /// The body.
    pub body: Bytes,
}

/// Why a page could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// No listener.
    #[error("criscope does not answer on {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// No answer within five seconds.
    #[error("no answer from criscope on {0} within {patience} s", patience = PATIENCE.as_secs())]
    Timeout(SocketAddr),
    /// It does not speak HTTP/1.1, broke the answer off, or sent too much.
    #[error("criscope on {0} sent an incomplete answer: {1}")]
    Broken(SocketAddr, String),
    /// An HTTP error.
    #[error("criscope on {0} answered {1} with {2}")]
    Status(SocketAddr, String, StatusCode),
}

impl Daemon {
    /// The daemon with this `admin.listen`.
    pub const fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Gets a page, whatever its status.
    ///
    /// # Errors
    /// If there is no complete answer within five seconds.
    pub async fn get(&self, path: &str, accept: Option<&HeaderValue>) -> Result<Page, DaemonError> {
        let asked = timeout(PATIENCE, self.ask(path, accept)).await;
        asked.unwrap_or(Err(DaemonError::Timeout(self.address)))
    }

    /// Gets a page and parses its JSON.
    ///
    /// # Errors
    /// If there is no complete answer with status 200 and of this form.
    pub async fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, DaemonError> {
        let page = self.get(path, None).await?;
        if page.status != StatusCode::OK {
            return Err(DaemonError::Status(
                self.address,
                path.to_owned(),
                page.status,
            ));
        }
        serde_json::from_slice(&page.body).map_err(|error| self.broken(&error))
    }

    async fn ask(&self, path: &str, accept: Option<&HeaderValue>) -> Result<Page, DaemonError> {
        let connected = TcpStream::connect(self.address).await;
        let stream = connected.map_err(|error| DaemonError::Connect(self.address, error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        let mut request = Request::get(path).header(header::HOST, self.address.to_string());
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| self.broken(&error))?;
        let talk = async {
            let response = sender.send_request(request).await;
            let (head, body) = response.map_err(|error| self.broken(&error))?.into_parts();
            let body = Limited::new(body, ENOUGH).collect().await;
            Ok(Page {
                status: head.status,
                content_type: head.headers.get(header::CONTENT_TYPE).cloned(),
                body: body.map_err(|error| self.broken(&error))?.to_bytes(),
            })
        };
        tokio::pin!(connection, talk);
        // The connection is driven here, so that it ends with the request.
        tokio::select! {
            page = &mut talk => page,
            ended = &mut connection => {
                ended.map_err(|error| self.broken(&error))?;
                // The rest of the body may be buffered already.
                talk.await
            }
        }
    }

    fn broken(&self, error: &dyn ToString) -> DaemonError {
        DaemonError::Broken(self.address, error.to_string())
    }
}
