//! A runtime in this process, seen as any other backend: it is probed, its lists fill the index, and its part of a call
//! has its own span.

use std::sync::Arc;

use crate::call::{Call, CallStage};
use crate::grpc::{Answering, Backend, CriService, Request};
use crate::telemetry::propagation;

/// The runtime as seen from a caller.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct Local {
    service: CriService,
}

impl Local {
    /// In front of what answers.
    pub(in crate::proxy) fn new(service: CriService) -> Self {
        Self { service }
    }
}

impl Backend for Local {
    fn answer(&self, mut request: Request) -> Answering {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        if let Some(call) = &call {
            if let Some(place) = call.placement() {
                propagation::inject(&place, request.headers_mut());
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
