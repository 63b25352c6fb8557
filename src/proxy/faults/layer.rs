//! The layer that injects faults. It stands below `inspect`, where the pod of a call is known, and above the router.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either};
use tower::Service;

use super::{ActiveFault, ActiveFaults, FaultEffect};
use crate::call::Call;
use crate::cri::status::{Code, code_name};
use crate::grpc::status::Status;
use crate::grpc::{BoxError, Request, Response};

/// Delays, fails or holds the calls that an active fault applies to.
#[derive(Clone, Debug)]
pub struct FaultInjection<S> {
    inner: S,
    faults: Arc<ActiveFaults>,
}

impl<S> FaultInjection<S> {
    /// Injects these.
    pub fn new(inner: S, faults: Arc<ActiveFaults>) -> Self {
        Self { inner, faults }
    }
}

impl<S> Service<Request> for FaultInjection<S>
where
    S: Service<Request, Response = Response, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = BoxError;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response, BoxError>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let call = request.extensions().get::<Arc<Call>>();
        let found = call.and_then(|call| Some((Arc::clone(call), self.faults.matching(call)?)));
        let Some((call, fault)) = found else {
            return Either::Left(self.inner.call(request));
        };
        // The service that is ready must make the call; its clone becomes ready before the next.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Either::Right(Box::pin(async move {
            inject(&call, &fault).await?;
            inner.call(request).await
        }))
    }
}

/// Holds the call, or returns the error that it fails with.
async fn inject(call: &Call, fault: &ActiveFault) -> Result<(), Status> {
    call.fault_begins(fault.rule.effect.kind());
    report(call, fault);
    fault.hold().await;
    call.fault_ends();
    match fault.rule.effect {
        FaultEffect::Fail { code } => Err(failure(code, fault.number)),
        _ => Ok(()),
    }
}

/// The text is for the kubelet, whose events show it.
fn failure(code: Code, number: u64) -> Status {
    let name = code_name(code);
    let text = format!("injected fault: criscope fault {number} lets this call fail with {name}");
    Status::new(code, text)
}

fn report(call: &Call, fault: &ActiveFault) {
    let pod = call
        .subject
        .get()
        .and_then(|subject| subject.pod.as_deref());
    tracing::warn!(
        event = "fault.injected",
        fault = fault.number,
        kind = fault.rule.effect.kind().name(),
        seq = call.seq,
        rpc.method = call.method.full_name(),
        k8s.namespace.name = pod.map(|pod| &*pod.namespace),
        k8s.pod.name = pod.map(|pod| &*pod.name),
        "injected fault: {}",
        fault.rule
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance, timeout};
    use tower::ServiceExt as _;

    use super::*;
    use crate::call::FaultKind;
    use crate::cri::Method;
    use crate::grpc::{Body, CallHandler, CriService, ResponseFuture};
    use crate::proxy::faults::FaultRule;
    use crate::telemetry::registry::Registry;

    #[derive(Debug)]
    struct OkHandler;

    impl CallHandler for OkHandler {
        fn answer(&self, _: Request) -> ResponseFuture {
            Box::pin(async { Ok(Response::new(Body::Empty)) })
        }
    }

    struct Rig {
        faults: Arc<ActiveFaults>,
        registry: Registry,
    }

    impl Rig {
        fn new() -> Self {
            let registry = Registry::new(prometheus::Registry::new(), []);
            let faults = Arc::new(ActiveFaults::new(&registry).expect("once"));
            Self { faults, registry }
        }

        fn add(&self, effect: FaultEffect, for_ms: u64) -> u64 {
            let rule = FaultRule {
                method: Method::RunPodSandbox,
                namespace: None,
                pod: None,
                effect,
                for_ms,
            };
            self.faults.add(rule).expect("valid").number
        }

        /// A call, and how long it took to be answered.
        async fn call(&self, method: Method) -> (Arc<Call>, Result<Duration, BoxError>) {
            let call = Arc::new(Call::example(method));
            let mut request = Request::new(Body::Empty);
            request.extensions_mut().insert(Arc::clone(&call));
            let service = FaultInjection::new(CriService::new(OkHandler), Arc::clone(&self.faults));
            let begin = Instant::now();
            let answer = service.oneshot(request).await;
            (call, answer.map(|_| begin.elapsed()))
        }

        fn scrape(&self) -> String {
            String::from_utf8(self.registry.encode().expect("encodes")).expect("utf-8")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_held_fails_or_passes() {
        let rig = Rig::new();
        let (call, took) = rig.call(Method::RunPodSandbox).await;
        assert_eq!(took.expect("answered"), Duration::ZERO);
        assert_eq!(call.injected(Duration::ZERO), None);

        rig.add(
            FaultEffect::Fail {
                code: Code::Unavailable,
            },
            60_000,
        );
        // The first that was added counts.
        rig.add(FaultEffect::Hang, 60_000);
        let (call, error) = rig.call(Method::RunPodSandbox).await;
        let error = error
            .expect_err("it fails")
            .downcast::<Status>()
            .expect("ours");
        assert_eq!(error.code, Code::Unavailable);
        assert!(error.message.starts_with("injected fault: "), "{error}");
        let injected = call.injected(Duration::ZERO).expect("known");
        assert_eq!(injected.kind(), FaultKind::Fail);
        let (_, others) = rig.call(Method::StartContainer).await;
        assert_eq!(others.expect("answered"), Duration::ZERO);

        assert_eq!(rig.faults.clear(None).len(), 2);
        let text = rig.scrape();
        let line = "criscope_faults_injected_total{kind=\"fail\",method=\"RunPodSandbox\"} 1";
        assert!(text.lines().any(|found| found == line), "{text}");
        assert!(text.contains("criscope_faults_active 0"), "{text}");
    }

    #[tokio::test]
    async fn a_delay_ends_with_the_call_going_on() {
        let rig = Rig::new();
        rig.add(FaultEffect::Delay { ms: 50 }, 60_000);
        let (call, took) = rig.call(Method::RunPodSandbox).await;
        assert!(took.expect("answered") >= Duration::from_millis(50));
        let injected = call.injected(call.age()).expect("known");
        assert_eq!(injected.kind(), FaultKind::Delay);
        assert!((50..5000).contains(&injected.held_ms()), "{injected:?}");
    }

    #[tokio::test]
    async fn a_hang_ends_with_its_fault_or_when_it_is_cleared() {
        let rig = Rig::new();
        let number = rig.add(FaultEffect::Hang, 3_600_000);
        let hanging = rig.call(Method::RunPodSandbox);
        tokio::pin!(hanging);
        assert!(
            timeout(Duration::from_millis(50), &mut hanging)
                .await
                .is_err()
        );
        assert_eq!(rig.faults.list()[0].calls, 1);
        assert_eq!(rig.faults.clear(Some(number + 1)), []);
        assert_eq!(rig.faults.clear(Some(number)).len(), 1);
        assert!(hanging.await.1.is_ok());

        rig.add(FaultEffect::Hang, 100);
        let (_, took) = rig.call(Method::RunPodSandbox).await;
        assert!(took.expect("answered") <= Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_ends_by_itself_and_there_are_few() {
        let rig = Rig::new();
        for _ in 0..super::super::MAX_FAULTS {
            rig.add(FaultEffect::Hang, 1000);
        }
        let rule = rig.faults.list()[0].rule.clone();
        let refused = rig.faults.add(rule).expect_err("too many");
        assert!(refused.to_string().contains("clear some"), "{refused}");
        tokio::task::yield_now().await;
        advance(Duration::from_secs(2)).await;
        while !rig.faults.list().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(rig.scrape().contains("criscope_faults_active 0"));
    }
}
