//! A typed CRI client over a unix socket, for the commands that call a runtime directly (`smoke`, `doctor`); [`admin`] is the client of
//! the admin endpoint.
//!
//! The request path does not use it: forwarded calls are never decoded (see [`crate::cri`]).

pub mod admin;

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;

/// Largest message sent or accepted, in bytes: above the limit of the kubelet and containerd (16 MiB), so that the
/// runtime's own limit applies, and far above tonic's default of 4 MiB.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Why connecting to a runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The endpoint is not a unix socket.
    #[error("endpoint {0:?} is not a unix socket: write unix:///path or /path")]
    Endpoint(String),
    /// The connection was not accepted in time.
    #[error("{} did not accept a connection within {timeout:?}", path.display())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// The timeout.
        timeout: Duration,
    },
    /// The connection failed.
    #[error("cannot connect to {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system call's error.
        source: io::Error,
    },
    /// Connected, but the HTTP/2 handshake failed.
    #[error("no HTTP/2 on {}: {source}", path.display())]
    Handshake {
        /// The socket.
        path: PathBuf,
        /// The transport's error.
        source: tonic::transport::Error,
    },
}

impl ClientError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Connect { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    Some("no such socket: is the runtime running, and is --endpoint its socket?")
                }
                io::ErrorKind::ConnectionRefused => {
                    Some("no process listens on the socket: a stopped runtime left it behind")
                }
                io::ErrorKind::PermissionDenied => {
                    Some("only the owner of the socket may connect: run as root")
                }
                _ => None,
            },
            Self::Timeout { .. } => Some("the runtime hangs, or its backlog is full"),
            Self::Handshake { .. } => Some("the listening process is not a CRI runtime"),
            Self::Endpoint(_) => None,
        }
    }
}

/// The path in `unix:///path`, `unix:/path` or `/path`, the spellings that the kubelet accepts (gRPC naming, `unix`).
pub fn socket_path(endpoint: &str) -> Result<PathBuf, ClientError> {
    let path = match endpoint.strip_prefix("unix:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => endpoint,
    };
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(ClientError::Endpoint(endpoint.to_owned()));
    }
    Ok(PathBuf::from(path))
}

/// Connects to the socket at `path`. The channel reconnects by itself when the runtime restarts; only this first
/// connection is bound by `timeout`.
pub async fn connect(path: &Path, timeout: Duration) -> Result<Channel, ClientError> {
    let socket = path.to_owned();
    let connector = service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The authority of a unix socket is `localhost` for every gRPC implementation; the address is never resolved.
    let endpoint = Endpoint::from_static("http://localhost");
    let connecting = endpoint.connect_with_connector(connector);
    match tokio::time::timeout(timeout, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(refused(path, error)),
        Err(_) => Err(ClientError::Timeout {
            path: path.to_owned(),
            timeout,
        }),
    }
}

/// A client of `runtime.v1.RuntimeService`.
pub fn runtime(channel: Channel) -> RuntimeServiceClient<Channel> {
    RuntimeServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// A client of `runtime.v1.ImageService`.
pub fn images(channel: Channel) -> ImageServiceClient<Channel> {
    ImageServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

/// Finds the system call's error in tonic's, whose own text is only "transport error".
fn refused(path: &Path, error: tonic::transport::Error) -> ClientError {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(current) = cause {
        if let Some(os) = current
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
        {
            return ClientError::Connect {
                path: path.to_owned(),
                source: io::Error::from_raw_os_error(os),
            };
        }
        cause = current.source();
    }
    ClientError::Handshake {
        path: path.to_owned(),
        source: error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::testing::{PATIENCE, until_stale};

    #[test]
    fn endpoints_are_absolute_unix_paths() {
        for good in ["unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            assert_eq!(
                socket_path(good).expect(good),
                PathBuf::from("/run/a.sock"),
                "{good}"
            );
        }
        for bad in [
            "",
            "run/a.sock",
            "unix://run/a.sock",
            "tcp://127.0.0.1:1",
            "unix:///run/",
        ] {
            assert!(socket_path(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_missing_and_a_dead_socket_say_which_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cri.sock");
        let missing = connect(&path, PATIENCE).await;
        let Err(ClientError::Connect { source, .. }) = &missing else {
            panic!("connected to nothing");
        };
        assert_eq!(source.kind(), io::ErrorKind::NotFound);

        drop(UnixListener::bind(&path).expect("bind"));
        until_stale(&path);
        let dead = connect(&path, PATIENCE).await;
        let error = dead.expect_err("no listener");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("no process listens")),
            "{error}"
        );
        assert!(error.to_string().contains("cri.sock"), "{error}");
    }
}
