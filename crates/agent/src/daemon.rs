//! Reads pages of the daemon on this node, over its socket for agents or its read-only port.

use std::fmt;
use std::io;
use std::net::{AddrParseError, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::Bytes;
use criscope::client::admin::{self, AdminListener, AdminSendError, REQUEST_TIMEOUT};
use criscope::client::{ClientError, socket_path};
use criscope::lifecycle::node::BypassFiles;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use serde::de::DeserializeOwned;

/// The largest page, in bytes.
const MAX_PAGE_LEN: usize = 16 << 20;

/// The address of a daemon's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonAddress {
    /// `admin.agent_socket`.
    Socket(PathBuf),
    /// `admin.listen`.
    Port(SocketAddr),
}

impl fmt::Display for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "unix://{}", path.display()),
            Self::Port(address) => write!(f, "{address}"),
        }
    }
}

/// The reason why a text is not the address of a daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonAddressError {
    /// The text begins like a socket.
    #[error(transparent)]
    Socket(#[from] ClientError),
    /// The text is not an IP address with a port.
    #[error("neither unix:///path nor an IP address with a port: {0}")]
    Port(#[from] AddrParseError),
}

impl FromStr for DaemonAddress {
    type Err = DaemonAddressError;

    fn from_str(text: &str) -> Result<Self, DaemonAddressError> {
        if text.starts_with("unix:") || text.starts_with('/') {
            return Ok(Self::Socket(socket_path(text)?));
        }
        Ok(Self::Port(text.parse()?))
    }
}

/// A client of the daemon.
#[derive(Clone, Debug)]
pub struct DaemonClient {
    address: DaemonAddress,
}

/// A page of the daemon.
#[derive(Debug)]
pub struct DaemonPage {
    /// The HTTP status.
    pub status: StatusCode,
    /// `Content-Type`.
    pub content_type: Option<HeaderValue>,
    /// The body.
    pub body: Bytes,
}

/// The reason why a page could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// No listener.
    #[error("criscope does not answer on {0}: {1}")]
    Connect(DaemonAddress, io::Error),
    /// No answer within five seconds.
    #[error("no answer from criscope on {0} within {limit} s", limit = REQUEST_TIMEOUT.as_secs())]
    Timeout(DaemonAddress),
    /// The daemon does not speak HTTP/1.1, broke the answer off, or sent too much.
    #[error("criscope on {0} sent an incomplete answer: {1}")]
    Broken(DaemonAddress, String),
    /// An HTTP error.
    #[error("criscope on {0} answered {1} with {2}")]
    Status(DaemonAddress, String, StatusCode),
}

impl DaemonClient {
    /// The daemon at this address.
    pub const fn new(address: DaemonAddress) -> Self {
        Self { address }
    }

    /// The directory of the daemon's socket for agents. Other files for agents are next to it.
    pub fn directory(&self) -> Option<&Path> {
        match &self.address {
            DaemonAddress::Socket(path) => path.parent(),
            DaemonAddress::Port(_) => None,
        }
    }

    /// The files in which the daemon's units tell of a bypass.
    pub fn bypass_files(&self) -> BypassFiles {
        self.directory().map(BypassFiles::at).unwrap_or_default()
    }

    /// Gets a page with any status.
    ///
    /// # Errors
    /// If there is no complete answer within five seconds.
    pub async fn get(
        &self,
        path: &str,
        accept: Option<&HeaderValue>,
    ) -> Result<DaemonPage, DaemonError> {
        let mut request = Request::get(path);
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        let request = request.body(Full::default());
        let request = request.map_err(|error| self.broken(&error))?;
        let port;
        let listener = match &self.address {
            DaemonAddress::Socket(path) => AdminListener::Socket(path),
            DaemonAddress::Port(address) => {
                port = address.to_string();
                AdminListener::Port(&port)
            }
        };
        let sent = admin::send(listener, request, MAX_PAGE_LEN).await;
        let (head, body) = sent
            .map_err(|error| {
                let address = self.address.clone();
                match error {
                    AdminSendError::Connect(source) => DaemonError::Connect(address, source),
                    AdminSendError::Timeout => DaemonError::Timeout(address),
                    AdminSendError::Broken(cause) => DaemonError::Broken(address, cause),
                }
            })?
            .into_parts();
        Ok(DaemonPage {
            status: head.status,
            content_type: head.headers.get(header::CONTENT_TYPE).cloned(),
            body,
        })
    }

    /// Gets a page and parses its JSON.
    ///
    /// # Errors
    /// If there is no complete answer with status 200 and of this form.
    pub async fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, DaemonError> {
        let page = self.get(path, None).await?;
        if page.status != StatusCode::OK {
            return Err(DaemonError::Status(
                self.address.clone(),
                path.to_owned(),
                page.status,
            ));
        }
        serde_json::from_slice(&page.body).map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &dyn ToString) -> DaemonError {
        DaemonError::Broken(self.address.clone(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_port() {
        for text in ["unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            let address: DaemonAddress = text.parse().expect(text);
            assert_eq!(address, DaemonAddress::Socket("/run/a.sock".into()));
            assert_eq!(address.to_string(), "unix:///run/a.sock");
        }
        let port: DaemonAddress = "127.0.0.1:9478".parse().expect("an address");
        assert_eq!(port.to_string(), "127.0.0.1:9478");
        for text in [
            "",
            "9478",
            "localhost:9478",
            "unix:",
            "unix://a.sock",
            "run/a.sock",
        ] {
            assert!(text.parse::<DaemonAddress>().is_err(), "{text}");
        }
    }
}
