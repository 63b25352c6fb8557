//! RuntimeConfig for runtimes that do not implement it, as containerd before 2.0: the answer `UNIMPLEMENTED` is replaced by the cgroup
//! driver, if something tells it. A kubelet that finds no RuntimeConfig will not start from Kubernetes 1.38 on.

use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tonic::Code;

use super::BackendHealth;
use super::cgroup_driver::FoundDriver;
use crate::cri::v1::{CgroupDriver, LinuxRuntimeConfiguration, RuntimeConfigResponse};
use crate::grpc::{
    Body, BoxError, CallHandler, CriService, Request, Response, ResponseFuture, frame,
};

/// The method, in any version of the CRI.
const METHOD_SUFFIX: &str = ".RuntimeService/RuntimeConfig";

/// Answers in place of the backend where the backend has no answer. Other calls pass unchanged.
#[derive(Clone, Debug)]
pub(super) struct RuntimeConfigFallback {
    inner: CriService,
    name: Arc<str>,
    health: Arc<BackendHealth>,
}

impl RuntimeConfigFallback {
    pub(super) fn new(inner: CriService, name: Arc<str>, health: Arc<BackendHealth>) -> Self {
        Self {
            inner,
            name,
            health,
        }
    }

    async fn replace(self, response: Response) -> Result<Response, BoxError> {
        // A method that is not known is answered by headers alone.
        let status = frame::status(response.headers());
        if status.is_none_or(|(code, _)| code != Code::Unimplemented) {
            self.health.set_found_driver(None);
            return Ok(response);
        }
        let Some(found) = FoundDriver::find(self.inner, Path::new("/proc")).await else {
            tracing::warn!(
                event = "backend.runtime_config",
                criscope.backend = &*self.name,
                "the runtime does not implement RuntimeConfig, and nothing tells its cgroup driver"
            );
            return Ok(response);
        };
        tracing::info!(
            event = "backend.runtime_config",
            criscope.backend = &*self.name,
            "the runtime does not implement RuntimeConfig: answered with the cgroup driver {found}"
        );
        self.health.set_found_driver(Some(found));
        answer(found)
    }
}

impl CallHandler for RuntimeConfigFallback {
    fn answer(&self, request: Request) -> ResponseFuture {
        let is_runtime_config = request.uri().path().ends_with(METHOD_SUFFIX);
        let answering = self.inner.answer(request);
        if !is_runtime_config {
            return answering;
        }
        let fallback = self.clone();
        Box::pin(async move { fallback.replace(answering.await?).await })
    }
}

fn answer(found: FoundDriver) -> Result<Response, BoxError> {
    let message = RuntimeConfigResponse {
        linux: Some(LinuxRuntimeConfiguration {
            cgroup_driver: CgroupDriver::from(found.driver).into(),
        }),
    };
    let framed = frame::frame(&message.encode_to_vec())?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(Code::Ok as i32));
    let body = Full::new(framed).with_trailers(async move { Some(Ok(trailers)) });
    let body = body.map_err(|never| match never {});
    let mut response = Response::new(Body::boxed(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use crate::cri::v1;
    use crate::grpc::status::Status;
    use crate::grpc::unary;

    use super::*;

    const CONFIG: &str = r#"{"containerd":{"defaultRuntimeName":"runc","runtimes":{
        "runc":{"runtimeType":"io.containerd.runc.v2","options":{"SystemdCgroup":true}}}}}"#;

    /// A runtime that implements the verbose Status only.
    #[derive(Debug)]
    struct OldRuntime(&'static str);

    impl CallHandler for OldRuntime {
        fn answer(&self, request: Request) -> ResponseFuture {
            let answer = match request.uri().path() {
                "/runtime.v1.RuntimeService/Status" => {
                    let info = [("config".to_owned(), self.0.to_owned())];
                    let status = v1::StatusResponse {
                        info: info.into(),
                        ..v1::StatusResponse::default()
                    };
                    let framed = frame::frame(&status.encode_to_vec()).expect("small");
                    let mut response = Response::new(Body::full(framed));
                    let headers = response.headers_mut();
                    headers.insert("grpc-status", HeaderValue::from(0));
                    response
                }
                _ => Status::new(Code::Unimplemented, "unknown method").into_response(),
            };
            Box::pin(async move { Ok(answer) })
        }
    }

    async fn ask(config: &'static str, health: &Arc<BackendHealth>) -> Result<i32, Code> {
        let inner = CriService::new(OldRuntime(config));
        let fallback = RuntimeConfigFallback::new(inner, "main".into(), Arc::clone(health));
        let mut service = CriService::new(fallback);
        let path = "/runtime.v1.RuntimeService/RuntimeConfig";
        let request = v1::RuntimeConfigRequest {};
        let answer: Result<RuntimeConfigResponse, _> =
            unary::call(&mut service, path, &request).await;
        let linux = answer.map_err(|status| status.code)?.linux;
        Ok(linux.map_or(-1, |linux| linux.cgroup_driver))
    }

    #[tokio::test]
    async fn the_driver_is_answered_if_something_tells_it() {
        let health = Arc::<BackendHealth>::default();
        assert_eq!(ask(CONFIG, &health).await, Ok(CgroupDriver::Systemd.into()));
        let found = health.state().found_driver.expect("noted");
        assert_eq!(found.to_string(), "systemd (from its configuration)");
        let health = Arc::<BackendHealth>::default();
        assert_eq!(ask("{}", &health).await, Err(Code::Unimplemented));
        assert_eq!(health.state().found_driver, None);
    }
}
