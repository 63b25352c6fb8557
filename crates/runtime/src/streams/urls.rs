//! Exec, Attach and PortForward as CRI calls: request in, URL out.

use std::sync::Arc;

use cri_streaming::{
    AttachRequest, ExecRequest, InvalidRequest, SessionRequest, StreamOptions, UrlError,
};
use http::Extensions;

use super::super::Runtime;
use super::super::error::{Error, Result};
use criscope_cri::call::Call;
use criscope_cri::v1;

impl Runtime {
    /// Returns the URL of a session that runs a command.
    ///
    /// # Errors
    /// If the container is not running, the request is invalid, or too many URLs were issued and not used.
    pub fn exec(&self, request: v1::ExecRequest, call: Option<Arc<Call>>) -> Result<String> {
        let container = self.store.containers.get(&request.container_id)?;
        container.running()?;
        let wanted = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        let exec = ExecRequest {
            container: container.id.clone(),
            argv: request.cmd,
            tty: request.tty,
        };
        self.issue_url(SessionRequest::exec(exec, wanted), call)
    }

    /// Returns the URL of a session that attaches.
    ///
    /// # Errors
    /// If the container is not running, the request is invalid, or too many URLs were issued and not used.
    pub fn attach(&self, request: &v1::AttachRequest, call: Option<Arc<Call>>) -> Result<String> {
        let container = self.store.containers.get(&request.container_id)?;
        container.running()?;
        let wanted = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        let attach = AttachRequest {
            container: container.id.clone(),
            tty: request.tty,
        };
        self.issue_url(SessionRequest::attach(attach, wanted), call)
    }

    /// Returns the URL of a session that forwards ports.
    ///
    /// # Errors
    /// If the pod is not ready, the request is invalid, or too many URLs were issued and not used.
    pub fn port_forward(
        &self,
        request: &v1::PortForwardRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String> {
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        sandbox.ready()?;
        let forward = SessionRequest::port_forward(sandbox.id.clone(), &request.port);
        self.issue_url(forward, call)
    }

    /// Observers of the session find the call that requested it in its extensions.
    fn issue_url(
        &self,
        request: std::result::Result<SessionRequest, InvalidRequest>,
        call: Option<Arc<Call>>,
    ) -> Result<String> {
        let server = self
            .streaming
            .get()
            .ok_or_else(|| Error::Unavailable("there is no streaming server".to_owned()))?;
        let mut extensions = Extensions::new();
        if let Some(call) = call {
            extensions.insert(call);
        }
        Ok(server.issue(request.map_err(UrlError::from)?, extensions)?)
    }
}

impl From<UrlError> for Error {
    fn from(error: UrlError) -> Self {
        match error {
            UrlError::Invalid(_) => Self::invalid(error.to_string()),
            UrlError::Full => Self::Exhausted(error.to_string()),
            UrlError::Random => Self::Internal(error.to_string()),
        }
    }
}
