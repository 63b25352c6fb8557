//! The part of containerd's services that cAdvisor calls. Everything only reads; any other method is `UNIMPLEMENTED`.

use std::sync::Arc;

use criscope_wire::services::{
    GetContainerRequest, GetContainerResponse, GetTaskRequest, GetTaskResponse, VersionResponse,
};
use http::HeaderMap;
use prost::Message;
use tokio::runtime::Handle;
use tonic::server::Grpc;
use tonic::{Code, Request as Call, Response as Answer, Status as Refusal};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::containerd::NAMESPACE;
use crate::error::{Error, What};
use crate::metrics::{ContainerdMethod, ContainerdResult};
use crate::{Result, Runtime};
use criscope_grpc::frame;
use criscope_grpc::status::Status;
use criscope_grpc::{Body, BoxError, CallHandler, Request, Response, ResponseFuture};

/// Largest request, in bytes: an id.
const MAX_REQUEST_BYTES: usize = 4 << 10;

/// The header that names the namespace.
const HEADER: &str = "containerd-namespace";

/// Longest name of a namespace, in bytes.
const LONGEST_NAME: usize = 76;

const VERSION: &str = "/containerd.services.version.v1.Version/Version";
const GET_CONTAINER: &str = "/containerd.services.containers.v1.Containers/Get";
const GET_TASK: &str = "/containerd.services.tasks.v1.Tasks/Get";

/// containerd's services. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Containerd {
    runtime: Arc<Runtime>,
    threads: Handle,
}

impl Containerd {
    /// Creates the services, whose calls run on `threads`, a tokio runtime.
    pub fn new(runtime: Arc<Runtime>, threads: Handle) -> Self {
        Self { runtime, threads }
    }

    /// Serves a call, and counts it.
    async fn serve(self, request: Request) -> Response {
        let method = label(request.uri().path());
        let response = self.answer_to(request).await;
        if let Some(metrics) = self.runtime.steps().metrics() {
            metrics.containerd_requests.inc((method, result(&response)));
        }
        response
    }

    async fn answer_to(&self, request: Request) -> Response {
        let runtime = Arc::clone(&self.runtime);
        match request.uri().path() {
            VERSION => {
                let version = VersionResponse {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                };
                unary(request, async move |(): ()| Ok(version)).await
            }
            GET_CONTAINER => {
                let get = async move |asked: GetContainerRequest| {
                    let container = Some(runtime.containerd_container(&asked.id)?);
                    Ok(GetContainerResponse { container })
                };
                in_namespace(request, get, |asked| &asked.id).await
            }
            GET_TASK => {
                let get = async move |asked: GetTaskRequest| {
                    if !asked.exec_id.is_empty() {
                        return Err(Error::not_found(What::Task, &asked.exec_id));
                    }
                    let process = Some(runtime.containerd_task(&asked.container_id).await?);
                    Ok(GetTaskResponse { process })
                };
                in_namespace(request, get, |asked| &asked.container_id).await
            }
            path => {
                let text = format!(
                    "{path}: criscope is not containerd; of its API it serves what cAdvisor calls"
                );
                Status::new(Code::Unimplemented, text).into_response()
            }
        }
    }
}

impl CallHandler for Containerd {
    fn answer(&self, request: Request) -> ResponseFuture {
        // Not on the thread of the request path.
        let work = self.threads.spawn(self.clone().serve(request));
        Box::pin(async move {
            Ok(work.await.unwrap_or_else(|error| {
                Status::new(Code::Internal, format!("a call failed: {error}")).into_response()
            }))
        })
    }
}

/// The metric's label of a method.
fn label(path: &str) -> ContainerdMethod {
    match path {
        VERSION => ContainerdMethod::Version,
        GET_CONTAINER => ContainerdMethod::GetContainer,
        GET_TASK => ContainerdMethod::GetTask,
        _ => ContainerdMethod::Other,
    }
}

/// The metric's label of a response. One with a message has its status, which is `OK`, at its end.
fn result(response: &Response) -> ContainerdResult {
    match frame::status(response.headers()) {
        None | Some((Code::Ok, _)) => ContainerdResult::Ok,
        Some((Code::NotFound, _)) => ContainerdResult::NotFound,
        Some(_) => ContainerdResult::Error,
    }
}

/// Like [`unary`], for objects that are in a namespace: all are in the namespace of the CRI.
async fn in_namespace<Q, A, W>(
    request: Request,
    work: impl FnOnce(Q) -> W + Clone + Send + Sync + 'static,
    id: impl Fn(&Q) -> &str + Clone + Send + Sync + 'static,
) -> Response
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    W: Future<Output = Result<A>> + Send + 'static,
{
    let ours = match is_ours(request.headers()) {
        Ok(ours) => ours,
        Err(status) => return status.into_response(),
    };
    unary(request, async move |asked: Q| {
        if ours {
            work(asked).await
        } else {
            Err(Error::not_found(What::Container, id(&asked)))
        }
    })
    .await
}

/// Returns whether a call is for the namespace of the CRI.
///
/// # Errors
/// As containerd: `FAILED_PRECONDITION` without a namespace, `INVALID_ARGUMENT` for a name that cannot be one.
fn is_ours(headers: &HeaderMap) -> std::result::Result<bool, Status> {
    let name = headers
        .get(HEADER)
        .map_or(&b""[..], |value| value.as_bytes());
    if name.is_empty() {
        let text = "namespace is required: the header containerd-namespace";
        return Err(Status::new(Code::FailedPrecondition, text));
    }
    // Letters and digits, with single separators between them.
    let is_valid = name.len() <= LONGEST_NAME
        && name
            .split(|byte| b"._-".contains(byte))
            .all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_alphanumeric));
    if !is_valid {
        let text = "the header containerd-namespace is not the name of a namespace";
        return Err(Status::new(Code::InvalidArgument, text));
    }
    Ok(name == NAMESPACE.as_bytes())
}

/// Serves a call with one message each way.
async fn unary<Q, A, W>(
    request: Request,
    work: impl FnOnce(Q) -> W + Clone + Send + Sync + 'static,
) -> Response
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    W: Future<Output = Result<A>> + Send + 'static,
{
    let codec = ProstCodec::<A, Q>::default();
    let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(MAX_REQUEST_BYTES), None);
    let service = service_fn(move |call: Call<Q>| {
        let work = work.clone()(call.into_inner());
        async move { work.await.map(Answer::new).map_err(Refusal::from) }
    });
    let response = grpc.unary(service, request).await;
    response.map(|body| Body::boxed(http_body_util::BodyExt::map_err(body, BoxError::from)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn namespaces_are_judged_as_by_containerd() {
        let judged = |name: Option<&[u8]>| {
            let value = name.map(|name| HeaderValue::from_bytes(name).expect("a header"));
            let headers: HeaderMap = value
                .map(|value| (HEADER.parse().expect("a name"), value))
                .into_iter()
                .collect();
            is_ours(&headers).map_err(|status| status.code)
        };
        assert_eq!(judged(Some(b"k8s.io")), Ok(true));
        let longest = "a".repeat(LONGEST_NAME);
        for other in ["moby", "k8s.io-2", "K8S.io", &longest] {
            assert_eq!(judged(Some(other.as_bytes())), Ok(false), "{other}");
        }
        assert_eq!(judged(None), Err(Code::FailedPrecondition));
        assert_eq!(judged(Some(b"")), Err(Code::FailedPrecondition));
        let long = format!("{longest}a");
        for none in [
            &b"../k8s.io"[..],
            b"k8s..io",
            b"k8s.io.",
            b" ",
            b"\xff",
            long.as_bytes(),
        ] {
            assert_eq!(judged(Some(none)), Err(Code::InvalidArgument), "{none:?}");
        }
    }
}
