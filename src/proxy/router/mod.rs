//! Chooses the backend of a call, and joins the responses to calls that go to several.
//!
//! With one backend, the usual case, this costs a comparison. With several, a call that names a sandbox or container goes
//! to its owner, and a list contains those of all backends, or fails: the kubelet would take a shorter list for pods that
//! died.

pub mod fan_out;
pub mod join;
pub mod owner;
pub mod rules;
pub mod runtime_status;
pub mod settings;

use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use self::rules::{BackendIndex, CallTarget, ResponseJoin, RoutingRules};
use crate::call::{Call, Route, RouteReason};
use crate::cri::Method;
use crate::grpc::{BoxError, CriService, Request, Response, ResponseFuture};
use crate::proxy::pod_index::PodIndex;

/// State that all connections share.
#[derive(Debug)]
pub struct RoutingTable {
    /// How to choose.
    pub rules: RoutingRules,
    /// Owners by id.
    pub index: Arc<PodIndex>,
    /// Names of the backends, in their order.
    pub names: Vec<Arc<str>>,
    /// All names as one, for calls that go to all.
    pub all: Arc<str>,
}

impl RoutingTable {
    /// The table for backends of these names.
    pub fn new(rules: RoutingRules, index: Arc<PodIndex>, names: Vec<Arc<str>>) -> Self {
        let all = names.join("+").into();
        Self {
            rules,
            index,
            names,
            all,
        }
    }
}

/// The backends as seen from one connection of a caller.
#[derive(Clone, Debug)]
pub struct CallRouter {
    table: Arc<RoutingTable>,
    backends: Arc<[CriService]>,
}

impl CallRouter {
    /// A router over these backends, in the order of the table.
    pub fn new(table: Arc<RoutingTable>, backends: Vec<CriService>) -> Self {
        Self {
            table,
            backends: backends.into(),
        }
    }

    /// Targets that need a lookup, or several backends.
    async fn route(
        self,
        request: Request,
        call: Option<Arc<Call>>,
        target: CallTarget,
    ) -> Result<Response, BoxError> {
        let call = call.as_deref();
        let subject = call.and_then(|c| c.subject.get());
        let (backend, reason) = match target {
            CallTarget::One(backend, reason) => (backend, reason),
            CallTarget::Owner => self.owner(subject).await?,
            CallTarget::PodOwner(otherwise) => {
                let pod = subject.and_then(|s| s.pod.as_ref());
                match pod.and_then(|pod| self.table.index.owner_of_pod(&pod.uid)) {
                    Some(name) => (self.id_of(&name), RouteReason::Owner),
                    None => (otherwise, RouteReason::Images),
                }
            }
            CallTarget::All(join) => {
                note(call, &self.table.all, RouteReason::All);
                let method = call.map_or(Method::Other, |c| c.method);
                return self.all(request, method, join).await;
            }
        };
        self.one(request, call, backend, reason).await
    }

    fn one(
        &self,
        request: Request,
        call: Option<&Call>,
        backend: BackendIndex,
        reason: RouteReason,
    ) -> ResponseFuture {
        note(call, &self.table.names[backend], reason);
        self.backends[backend].answer(request)
    }

    fn id_of(&self, name: &str) -> BackendIndex {
        let found = self.table.names.iter().position(|n| **n == *name);
        found.unwrap_or(self.table.rules.default)
    }

    async fn all(
        &self,
        request: Request,
        method: Method,
        join: ResponseJoin,
    ) -> Result<Response, BoxError> {
        let order = self.table.rules.order(method);
        let backends = order
            .iter()
            .map(|id| {
                (
                    Arc::clone(&self.table.names[*id]),
                    self.backends[*id].clone(),
                )
            })
            .collect();
        let answers = fan_out::ask(request, backends).await?;
        match join {
            ResponseJoin::Concat => join::concat(answers).await,
            ResponseJoin::Chain => Ok(join::chain(answers)),
            ResponseJoin::Interleave => Ok(join::interleave(answers)),
            ResponseJoin::Every => join::every(answers).await,
            ResponseJoin::Status => runtime_status::join(answers, &self.table).await,
        }
    }
}

fn note(call: Option<&Call>, backend: &Arc<str>, reason: RouteReason) {
    if let Some(call) = call {
        let backend = Arc::clone(backend);
        let _ = call.route.set(Route { backend, reason });
    }
}

impl Service<Request> for CallRouter {
    type Response = Response;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> ResponseFuture {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        let method = call.as_ref().map_or(Method::Other, |c| c.method);
        let subject = call.as_ref().and_then(|c| c.subject.get());
        match self.table.rules.decide(method, subject) {
            CallTarget::One(backend, reason) => self.one(request, call.as_deref(), backend, reason),
            target => Box::pin(self.clone().route(request, call, target)),
        }
    }
}

#[cfg(test)]
mod tests;
