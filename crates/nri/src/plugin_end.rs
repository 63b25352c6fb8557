//! The plugin's side of the interface: for plugins in Rust, and for tests of runtimes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::api::{
    ConfigureResponse, Event, RUNTIME_SERVICE, RegisterPluginRequest, SynchronizeRequest,
    SynchronizeResponse, UpdateContainersRequest, UpdateContainersResponse, VERSION,
};
use crate::connection::{IncomingRequest, PluginConnection};
use crate::error::CallError;
use crate::observer::CloseReason;

/// How long the runtime may take for a request of the plugin.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The reply of a plugin to a request.
pub enum PluginReply {
    /// Answers it with an encoded message.
    Message(Bytes),
    /// Answers it with a status: gRPC code and text.
    Error(i32, String),
    /// Does not answer it.
    Never,
    /// Closes the connection.
    Disconnect,
}

impl PluginReply {
    /// An answer.
    pub fn message(message: &impl Message) -> Self {
        Self::Message(message.encode_to_vec().into())
    }

    /// The empty answer, which is valid for every method.
    pub fn empty() -> Self {
        Self::Message(Bytes::new())
    }
}

impl std::fmt::Debug for PluginReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Message(_) => "Message",
            Self::Error(..) => "Error",
            Self::Never => "Never",
            Self::Disconnect => "Disconnect",
        })
    }
}

/// A connected plugin.
#[derive(Clone, Debug)]
pub struct PluginStub {
    connection: Arc<PluginConnection>,
}

impl PluginStub {
    /// Connects to the socket of a runtime, registers, and serves its requests with `serve`, which receives the method and the
    /// encoded request. Configure, with these events (all of them if empty), and Synchronize are served by this; `serve` receives
    /// Synchronize as well, and answers the last of its messages.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn connect(
        path: &Path,
        index: &str,
        name: &str,
        events: &[Event],
        serve: impl FnMut(&str, Bytes) -> PluginReply + Send + 'static,
    ) -> io::Result<(Self, Result<(), CallError>)> {
        let socket = UnixStream::connect(path).await?;
        let (connection, requests) = PluginConnection::to_runtime(socket);
        let end = Self { connection };
        let mask = events.iter().fold(0, |mask, event| mask | event.bit());
        tokio::spawn(end.clone().serve(requests, mask as i32, serve));
        let registration = RegisterPluginRequest {
            plugin_name: name.to_owned(),
            plugin_idx: index.to_owned(),
            nri_version: VERSION.to_owned(),
        };
        let registered = end.call("RegisterPlugin", &registration).await;
        Ok((end, registered.map(drop)))
    }

    /// Asks for updates and evictions of containers.
    ///
    /// # Errors
    /// The error of the runtime, or the reason why there is no answer.
    pub async fn update_containers(
        &self,
        request: &UpdateContainersRequest,
    ) -> Result<UpdateContainersResponse, CallError> {
        let answer = self.call("UpdateContainers", request).await?;
        UpdateContainersResponse::decode(&*answer)
            .map_err(|error| CallError::Malformed(error.to_string()))
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        let _reason = self.connection.closed().await;
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.connection.close(CloseReason::Disconnected);
    }

    async fn call(&self, method: &str, request: &impl Message) -> Result<Vec<u8>, CallError> {
        let payload = request.encode_to_vec();
        let connection = &self.connection;
        connection
            .call(RUNTIME_SERVICE, method, payload, Vec::new(), CALL_TIMEOUT)
            .await
    }

    async fn serve(
        self,
        mut requests: mpsc::Receiver<IncomingRequest>,
        events: i32,
        mut serve: impl FnMut(&str, Bytes) -> PluginReply,
    ) {
        while let Some(IncomingRequest { stream, request }) = requests.recv().await {
            let payload = Bytes::from(request.payload);
            let reply = match request.method.as_str() {
                "Configure" => PluginReply::message(&ConfigureResponse { events }),
                "Synchronize" => match SynchronizeRequest::decode(payload.clone()) {
                    Ok(part) if part.more => {
                        drop(serve("Synchronize", payload));
                        PluginReply::message(&SynchronizeResponse {
                            more: true,
                            update: Vec::new(),
                        })
                    }
                    _ => serve("Synchronize", payload),
                },
                method => serve(method, payload),
            };
            match reply {
                PluginReply::Message(answer) => {
                    self.connection.answer(stream, Ok(answer.into())).await
                }
                PluginReply::Error(code, text) => {
                    self.connection.answer(stream, Err((code, text))).await;
                }
                PluginReply::Never => {}
                PluginReply::Disconnect => return self.close(),
            }
        }
    }
}
