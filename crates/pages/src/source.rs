//! Where pages come from: the daemon of a node, a capture, or all nodes of a cluster.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

/// Characters that stay unencoded in a path segment or a value (RFC 3986, unreserved).
const URL_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Percent-encodes a path segment or a query value.
pub fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, URL_ESCAPES)
}

/// A response with any HTTP status.
#[derive(Clone, Debug)]
pub struct PageReply {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
}

/// Why a page could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// The configuration turns the port off, and the socket is not accessible.
    #[error("admin.listen is \"off\" in {}, and its admin.socket cannot be used", .0.display())]
    Off(PathBuf),
    /// No listener, or no permission to connect.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// The error of the system call or the resolver.
        source: io::Error,
    },
    /// Timeout.
    #[error("no answer from {address} within {} s", limit.as_secs())]
    Timeout {
        /// The address.
        address: String,
        /// How long the answer was awaited.
        limit: Duration,
    },
    /// The peer does not speak HTTP/1.1, or closed the connection early.
    #[error("{address} sent an incomplete answer: {cause}")]
    Broken {
        /// The address.
        address: String,
        /// The error.
        cause: String,
    },
    /// HTTP status 404.
    #[error("{address} has no {}", path.split('?').next().unwrap_or_default())]
    NoPage {
        /// The address.
        address: String,
        /// The page.
        path: String,
    },
    /// Another HTTP error.
    #[error("{address} answered {path} with {status}")]
    Status {
        /// The address.
        address: String,
        /// The page.
        path: String,
        /// The HTTP status.
        status: StatusCode,
    },
    /// A change was refused.
    #[error("{address} refused: {text}")]
    Refused {
        /// The address.
        address: String,
        /// The reason.
        text: String,
    },
    /// The body has an unexpected form.
    #[error("{address} answered {path} in an unexpected form: {source}")]
    Json {
        /// The address.
        address: String,
        /// The page.
        path: String,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
}

impl PageError {
    /// An answer that is incomplete.
    pub fn broken(address: &str, cause: impl std::fmt::Display) -> Self {
        Self::Broken {
            address: address.to_owned(),
            cause: cause.to_string(),
        }
    }

    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Off(_) => Some(
                "is criscope running (systemctl status criscope)? Run this as root, set admin.listen, or name another address with --admin",
            ),
            Self::Connect { .. } => Some(
                "is criscope running (systemctl status criscope), and does admin.listen in its configuration name this address? Name another with --admin or CRISCOPE_ADMIN",
            ),
            Self::Timeout { .. } => Some("does criscope listen there? See /livez"),
            Self::Broken { .. } | Self::Json { .. } => {
                Some("does criscope listen there, in the same version?")
            }
            Self::NoPage { .. } => Some(
                "the configuration may have admin.debug = false, or the program there is an older criscope or something else",
            ),
            Self::Status { .. } | Self::Refused { .. } => None,
        }
    }
}

/// Reads pages by their path.
pub trait PageSource {
    /// The address, for messages.
    fn address(&self) -> &str;

    /// Reads a page.
    ///
    /// # Errors
    /// If there is no complete response; any HTTP status is one.
    fn get(&self, path: &str) -> impl Future<Output = Result<PageReply, PageError>> + Send;

    /// The body of a page; as `Err` if the HTTP status is 404.
    ///
    /// # Errors
    /// If it could not be read.
    fn page(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Result<Bytes, Bytes>, PageError>> + Send
    where
        Self: Sync,
    {
        async move {
            let answer = self.get(path).await?;
            match answer.status {
                StatusCode::OK => Ok(Ok(answer.body)),
                StatusCode::NOT_FOUND => Ok(Err(answer.body)),
                status => Err(PageError::Status {
                    address: self.address().to_owned(),
                    path: path.to_owned(),
                    status,
                }),
            }
        }
    }

    /// The body of a page that always exists.
    ///
    /// # Errors
    /// If it could not be read.
    fn bytes(&self, path: &str) -> impl Future<Output = Result<Bytes, PageError>> + Send
    where
        Self: Sync,
    {
        async move { self.page(path).await?.map_err(|_| self.no_page(path)) }
    }

    /// A page that always exists, parsed.
    ///
    /// # Errors
    /// If it could not be read or parsed.
    fn json<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<T, PageError>> + Send
    where
        Self: Sync,
    {
        async move { self.parse(path, &self.bytes(path).await?) }
    }

    /// A page that may not exist: its body, or the parsed body of the 404.
    ///
    /// # Errors
    /// If there is no response, or a 404 without a body of this type.
    fn or_else<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Result<Bytes, T>, PageError>> + Send
    where
        Self: Sync,
    {
        async move {
            Ok(match self.page(path).await? {
                Ok(bytes) => Ok(bytes),
                // The router answers 404 without a body if there is no such page.
                Err(bytes) => Err(serde_json::from_slice(&bytes).map_err(|_| self.no_page(path))?),
            })
        }
    }

    /// Parses the body of a page.
    ///
    /// # Errors
    /// If it has another form.
    fn parse<T: DeserializeOwned>(&self, path: &str, bytes: &[u8]) -> Result<T, PageError> {
        serde_json::from_slice(bytes).map_err(|source| PageError::Json {
            address: self.address().to_owned(),
            path: path.to_owned(),
            source,
        })
    }

    /// The error that there is no such page.
    fn no_page(&self, path: &str) -> PageError {
        PageError::NoPage {
            address: self.address().to_owned(),
            path: path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(encoded("a/b?c d").to_string(), "a%2Fb%3Fc%20d");
    }
}
