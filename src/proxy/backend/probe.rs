//! Probes a runtime: is it up, which version of the CRI does it serve, is it ready?
//!
//! The probe has a separate connection. When that breaks, the runtime is down at once, and the probe reconnects, at first
//! quickly and then every two seconds. Calls do not wait for the probe: each connects on its own and fails at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::client::SendRequest;
use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::remote::exchange::{ExchangeError, ResponseBody, exchange};
use super::{Backend, BackendTransport, remote};
use crate::cri::method::ApiVersion;
use crate::cri::subject::{RuntimeCondition, Unseen};
use crate::cri::v1;
use crate::grpc::status::Status;
use crate::grpc::{Body, CriService, Request, ResponseFuture, unary};
use crate::telemetry::BackgroundJob;

/// The pause between attempts to connect grows from the first to the second.
const FIRST_CONNECT_PAUSE: Duration = Duration::from_millis(50);
const MAX_CONNECT_PAUSE: Duration = Duration::from_secs(2);

/// Interval of Status calls, and their timeout.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Probes until dropped. `came_up` is called each time the runtime comes up.
pub async fn run(backend: Arc<Backend>, came_up: impl Fn()) {
    let mut retry = FIRST_CONNECT_PAUSE;
    let mut before = false;
    let mut connecting = None;
    let mut attempts = 0;
    loop {
        attempts += 1;
        connecting.get_or_insert_with(|| BackgroundJob::BackendConnect.begin());
        let reason = match backend.watched().await {
            Err(error) => error.to_string(),
            Ok((line, mut lost)) => {
                let mut session = ProbeConnection {
                    backend: Arc::clone(&backend),
                    line,
                };
                let ended = tokio::select! {
                    reason = session.run(|| {
                        if std::mem::replace(&mut before, true) {
                            backend.health().reconnected();
                        }
                        retry = FIRST_CONNECT_PAUSE;
                        if let Some(job) = connecting.take() {
                            job.set("criscope.backend", Arc::clone(backend.name()));
                            job.count("criscope.attempts", std::mem::take(&mut attempts));
                        }
                        came_up();
                    }) => reason,
                    reason = &mut lost => reason,
                };
                ended
            }
        };
        mark_down(&backend, reason, Duration::ZERO);
        sleep(retry).await;
        retry = (retry * 2).min(MAX_CONNECT_PAUSE);
    }
}

/// Records that the runtime has not answered for `age`.
fn mark_down(backend: &Backend, reason: String, age: Duration) {
    backend.health().update_since(age, |state| {
        if state.up || state.since.is_none() {
            tracing::warn!(
                event = "backend.down",
                criscope.backend = &**backend.name(),
                reason,
                "backend is down"
            );
        }
        state.up = false;
        state.reason = reason;
    });
}

/// One connection of the probe.
struct ProbeConnection {
    backend: Arc<Backend>,
    line: ProbeTransport,
}

/// The transport of the probe's calls.
enum ProbeTransport {
    Remote(SendRequest<Bytes>),
    Local(CriService),
}

impl ProbeTransport {
    fn ask(&self, request: Request) -> ResponseFuture {
        match self {
            Self::Local(service) => service.answer(request),
            Self::Remote(sender) => {
                let sender = sender.clone();
                Box::pin(async move {
                    match exchange(sender, request).await {
                        Ok(response) => Ok(response.map(whole)),
                        Err(
                            ExchangeError::Broken(error) | ExchangeError::NotProcessed(_, error),
                        ) => Err(error.into()),
                    }
                })
            }
        }
    }
}

impl ProbeConnection {
    /// Runs until the runtime is down; returns the reason.
    async fn run(&mut self, came_up: impl FnOnce()) -> String {
        let version = match self.version().await {
            Ok(version) => version,
            Err(status) => return status.shown().into(),
        };
        self.mark_up(&version);
        came_up();
        loop {
            match self.status().await {
                Ok(conditions) => {
                    self.backend.health().update(|state| {
                        state.up = true;
                        state.reason.clear();
                    });
                    self.backend.saw_conditions(&conditions);
                }
                Err(status) if status.code == Code::DeadlineExceeded => {
                    mark_down(&self.backend, status.shown().into(), STATUS_TIMEOUT);
                    // The next call is answered as soon as the runtime goes on.
                    continue;
                }
                // An error is an answer too; a broken connection ends this probe through `watched`.
                Err(status) => tracing::debug!(error.message = %status.shown(), "probe"),
            }
            sleep(STATUS_INTERVAL).await;
        }
    }

    fn mark_up(&self, version: &v1::VersionResponse) {
        self.backend.health().update(|state| {
            state.up = true;
            state.reason.clear();
            state.runtime = Some((
                version.runtime_name.clone(),
                version.runtime_version.clone(),
            ));
        });
        tracing::info!(
            event = "backend.up",
            criscope.backend = &**self.backend.name(),
            container.runtime.name = version.runtime_name,
            container.runtime.version = version.runtime_version,
            api = self.backend.health().api().package(),
            "backend is up"
        );
    }

    /// Finds the version of the CRI that the runtime serves.
    async fn version(&mut self) -> Result<v1::VersionResponse, Status> {
        let mut last = None;
        for api in [ApiVersion::V1, ApiVersion::V1Alpha2] {
            match self
                .ask(api, "Version", &v1::VersionRequest::default())
                .await
            {
                Ok(version) => {
                    self.backend.health().set_api(api);
                    return Ok(version);
                }
                Err(status) if status.code == Code::Unimplemented => last = Some(status),
                Err(status) => return Err(status),
            }
        }
        Err(last.unwrap_or_else(|| Status::unavailable("no supported version of the CRI")))
    }

    async fn status(&mut self) -> Result<Vec<RuntimeCondition>, Status> {
        let api = self.backend.health().api();
        let answer: v1::StatusResponse = self
            .ask(api, "Status", &v1::StatusRequest::default())
            .await?;
        let conditions = answer.status.unwrap_or_default().conditions;
        Ok(conditions
            .into_iter()
            .map(|c| RuntimeCondition {
                kind: c.r#type.into(),
                status: c.status,
                reason: c.reason.into(),
                message: Unseen::new(&c.message),
            })
            .collect())
    }

    async fn ask<Q, A>(&mut self, api: ApiVersion, method: &str, message: &Q) -> Result<A, Status>
    where
        Q: prost::Message,
        A: prost::Message + Default,
    {
        let path = format!("/{}.RuntimeService/{method}", api.package());
        let mut service = tower::service_fn(|request: Request| self.line.ask(request));
        match timeout(STATUS_TIMEOUT, unary::call(&mut service, &path, message)).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::new(
                Code::DeadlineExceeded,
                format!(
                    "backend {} at {}: no answer to {method} for {STATUS_TIMEOUT:?}",
                    self.backend.name(),
                    self.backend.endpoint()
                ),
            )),
        }
    }
}

fn whole(answer: ResponseBody) -> Body {
    Body::boxed(answer.map_err(Into::into))
}

impl Backend {
    /// A connection, and a future that resolves with the reason when it is lost. The local runtime is never lost while this
    /// process lives.
    async fn watched(&self) -> Result<(ProbeTransport, BoxFuture<'static, String>), remote::Error> {
        let remote = match &self.kind {
            BackendTransport::Local(service) => {
                let never = Box::pin(std::future::pending());
                return Ok((ProbeTransport::Local(service.clone()), never));
            }
            BackendTransport::Remote(remote) => remote,
        };
        let (sender, connection) = remote.handshake().await?;
        let name = format!("backend {} at {}", self.name(), self.endpoint());
        let connection = tokio::spawn(async move {
            match connection.await {
                Ok(()) => format!("{name}: connection closed"),
                Err(error) => format!("{name}: {error}"),
            }
        });
        let lost = Box::pin(async { connection.await.unwrap_or_default() });
        Ok((ProbeTransport::Remote(sender), lost))
    }
}
