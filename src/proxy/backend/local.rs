//! A backend in this process. It is treated as any other: it is probed, its lists fill the pod index, and its part of a
//! call has a CLIENT span.

use std::sync::Arc;

use crate::call::{Call, CallStage};
use crate::grpc::{CallHandler, CriService, Request, ResponseFuture};
use crate::telemetry::propagation;

/// The runtime as seen from one connection of a caller.
#[derive(Clone, Debug)]
pub(super) struct LocalConnection {
    service: CriService,
}

impl LocalConnection {
    pub(super) fn new(service: CriService) -> Self {
        Self { service }
    }
}

impl CallHandler for LocalConnection {
    fn answer(&self, mut request: Request) -> ResponseFuture {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        if let Some(call) = &call {
            if let Some(placement) = call.placement() {
                propagation::inject(&placement, request.headers_mut());
            }
            call.backend_begins();
            call.set_stage(CallStage::Waiting);
        }
        let answering = self.service.answer(request);
        Box::pin(async move {
            let answer = answering.await;
            if let Some(call) = call {
                call.backend_ends();
            }
            answer
        })
    }
}
