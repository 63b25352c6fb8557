//! containerd's services, as far as cAdvisor calls them. Everything only reads; any other method is `UNIMPLEMENTED`.

use std::sync::Arc;

use prost::Message;
use tokio::runtime::Handle;
use tonic::server::Grpc;
use tonic::{Code, Request as Call, Response as Answer, Status as Refusal};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::grpc::status::Status;
use crate::grpc::{Answering, Body, BoxError, Handler, Request, Response};
use crate::runtime::containerd::NAMESPACE;
use crate::runtime::containerd::messages::{GetContainer, GetTask, GotContainer, GotTask, Version};
use crate::runtime::error::{Error, What};
use crate::runtime::{Result, Runtime};

/// Largest request, in bytes: an id.
const MOST: usize = 4 << 10;

/// The header that names the namespace.
const HEADER: &str = "containerd-namespace";

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

    async fn serve(self, request: Request) -> Response {
        let runtime = Arc::clone(&self.runtime);
        match request.uri().path() {
            "/containerd.services.version.v1.Version/Version" => {
                let version = Version {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                };
                unary(request, async move |(): ()| Ok(version)).await
            }
            "/containerd.services.containers.v1.Containers/Get" => {
                let get = async move |asked: GetContainer| {
                    let container = Some(runtime.containerd_container(&asked.id)?);
                    Ok(GotContainer { container })
                };
                in_namespace(request, get, |asked| &asked.id).await
            }
            "/containerd.services.tasks.v1.Tasks/Get" => {
                let get = async move |asked: GetTask| {
                    if !asked.exec_id.is_empty() {
                        return Err(Error::not_found(What::Task, &asked.exec_id));
                    }
                    let process = Some(runtime.containerd_task(&asked.container_id).await?);
                    Ok(GotTask { process })
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

impl Handler for Containerd {
    fn answer(&self, request: Request) -> Answering {
        // Not on the thread of the request path.
        let work = self.threads.spawn(self.clone().serve(request));
        Box::pin(async move { work.await.map_err(BoxError::from) })
    }
}

/// As [`unary`], for objects that are in a namespace: all are in that of the CRI.
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
    let namespace = request.headers().get(HEADER).cloned();
    let ours = match namespace {
        None => {
            let text = "namespace is required: the header containerd-namespace";
            return Status::new(Code::FailedPrecondition, text).into_response();
        }
        Some(namespace) => namespace == NAMESPACE,
    };
    unary(request, async move |asked: Q| match ours {
        true => work(asked).await,
        false => Err(Error::not_found(What::Container, id(&asked))),
    })
    .await
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
    let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(MOST), None);
    let service = service_fn(move |call: Call<Q>| {
        let work = work.clone()(call.into_inner());
        async move { work.await.map(Answer::new).map_err(Refusal::from) }
    });
    let response = grpc.unary(service, request).await;
    response.map(|body| Body::boxed(http_body_util::BodyExt::map_err(body, BoxError::from)))
}
