//! Exec, Attach and PortForward.

use super::Runtime;
use super::error::{Error, Result};
use crate::cri::v1;

impl Runtime {
    /// Where a client is served that runs a command.
    ///
    /// # Errors
    /// Not served yet.
    pub fn exec(&self, _request: v1::ExecRequest) -> Result<String> {
        Err(not_yet())
    }

    /// Where a client is served that attaches.
    ///
    /// # Errors
    /// Not served yet.
    pub fn attach(&self, _request: v1::AttachRequest) -> Result<String> {
        Err(not_yet())
    }

    /// Where a client is served that forwards ports.
    ///
    /// # Errors
    /// Not served yet.
    pub fn port_forward(&self, _request: v1::PortForwardRequest) -> Result<String> {
        Err(not_yet())
    }
}

fn not_yet() -> Error {
    Error::Unavailable("streaming is not served yet".to_owned())
}
