//! CRI calls of `doctor`, in either version of the CRI, with an error for each kind of failure.

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::client::{self, ClientError};
use crate::cri::Method;
use crate::cri::method::ApiVersion;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CriCallError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Connected, but the peer does not speak HTTP/2.
    #[error("does not speak gRPC over HTTP/2: {0}")]
    Protocol(String),
    /// No response within the deadline.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The runtime answered with an error.
    #[error("{code}: {message}", code = crate::cri::status::code_name(.0.code()), message = .0.message())]
    Status(Status),
}

/// A connection to a CRI socket.
#[derive(Clone, Debug)]
pub(super) struct CriSocketClient {
    channel: Channel,
    deadline: Duration,
}

impl CriSocketClient {
    /// Connects to the socket; `deadline` applies to every call.
    pub(super) async fn connect(path: &Path, deadline: Duration) -> Result<Self, CriCallError> {
        let channel = client::connect(path, deadline).await.map_err(refused)?;
        Ok(Self { channel, deadline })
    }

    /// Makes a unary call, in either version of the CRI.
    pub(super) async fn call<Q, A>(
        &self,
        version: ApiVersion,
        method: Method,
        request: Q,
    ) -> Result<A, CriCallError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let name = method.full_name().replacen("runtime.v1.", "", 1);
        let path = PathAndQuery::try_from(format!("/{}.{name}", version.package()))
            .map_err(|error| CriCallError::Connect(error.to_string()))?;
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        let call = async {
            grpc.ready()
                .await
                .map_err(|error| CriCallError::Connect(innermost(&error)))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            let answer = grpc.unary(Request::new(request), path, codec).await;
            answer.map_err(classify)
        };
        match timeout(self.deadline, call).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(CriCallError::Timeout(self.deadline)),
        }
    }
}

fn refused(error: ClientError) -> CriCallError {
    match error {
        ClientError::Timeout { timeout, .. } => CriCallError::Timeout(timeout),
        ClientError::Connect { source, .. } => CriCallError::Connect(source.to_string()),
        ClientError::Handshake { source, .. } => CriCallError::Connect(innermost(&source)),
        other @ ClientError::Endpoint(_) => CriCallError::Connect(other.to_string()),
    }
}

/// A status with a source was made on this side, by the transport; so was one for a response without `grpc-status`, such as
/// a plain HTTP/2 server's, which tonic marks only in its text.
fn classify(status: Status) -> CriCallError {
    const MADE_UP: [&str; 2] = ["grpc-status header missing", "protocol error"];
    match status.source() {
        Some(error) => CriCallError::Protocol(innermost(error)),
        None if MADE_UP
            .iter()
            .any(|text| status.message().starts_with(text)) =>
        {
            CriCallError::Protocol(status.message().to_owned())
        }
        None => CriCallError::Status(status),
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
