//! Finds the backend that has a sandbox or container.

use std::sync::Arc;

use futures_util::future::join_all;
use tonic::Code;

use super::CallRouter;
use super::rules::BackendIndex;
use crate::call::RouteReason;
use crate::cri::lists::{Container, Sandbox};
use crate::cri::subject::Subject;
use crate::cri::v1;
use crate::grpc::status::Status;
use crate::grpc::{CriService, unary};

impl CallRouter {
    /// The backend that has the object a call names; asks all of them if the index does not know. Calls for an id that no
    /// backend knows go to the default backend, which answers with its own error.
    ///
    /// # Errors
    /// `UNAVAILABLE` if a backend cannot be asked: it may be the owner, and another's "not found", or its
    /// "success" for stopping an object it never had, would be wrong.
    pub(super) async fn owner(
        &self,
        subject: Option<&Subject>,
    ) -> Result<(BackendIndex, RouteReason), Status> {
        let default = (self.table.rules.default, RouteReason::Default);
        let Some(subject) = subject else {
            return Ok(default);
        };
        if let Some(name) = self.table.index.owner(subject) {
            return Ok((self.id_of(&name), RouteReason::Owner));
        }
        let Some(id) = subject
            .container_id
            .as_ref()
            .or(subject.sandbox_id.as_ref())
        else {
            return Ok(default);
        };
        let is_container = subject.container_id.is_some();
        let asked = self.backends.iter().zip(&self.table.names);
        let answers = join_all(asked.map(|(service, name)| async move {
            let has = self.has(service.clone(), name, id, is_container).await;
            has.map_err(|status| {
                status.reworded(Code::Unavailable, |text| {
                    format!("cannot tell which backend has {id}: backend {name}: {text}")
                })
            })
        }))
        .await;
        for (backend, has) in answers.into_iter().enumerate() {
            if has? {
                return Ok((backend, RouteReason::Owner));
            }
        }
        Ok(default)
    }

    /// Returns whether a backend lists this object, which the index then knows.
    async fn has(
        &self,
        mut service: CriService,
        backend: &Arc<str>,
        id: &str,
        is_container: bool,
    ) -> Result<bool, Status> {
        let index = &self.table.index;
        let found = if is_container {
            let filter = v1::ContainerFilter {
                id: id.to_owned(),
                ..Default::default()
            };
            let request = v1::ListContainersRequest {
                filter: Some(filter),
            };
            let path = "/runtime.v1.RuntimeService/ListContainers";
            unary::each(&mut service, path, &request, |container: Container| {
                index.insert_listed_container(&container.into(), backend);
            })
            .await
        } else {
            let filter = v1::PodSandboxFilter {
                id: id.to_owned(),
                ..Default::default()
            };
            let request = v1::ListPodSandboxRequest {
                filter: Some(filter),
            };
            let path = "/runtime.v1.RuntimeService/ListPodSandbox";
            unary::each(&mut service, path, &request, |sandbox: Sandbox| {
                index.insert_listed_sandbox(&sandbox.into(), backend);
            })
            .await
        };
        Ok(found? > 0)
    }
}
