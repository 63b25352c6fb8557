//! Kills a command together with the processes that it has started.

use std::time::Duration;

use super::client::Shim;
use super::error::Error;
use criscope_shim::protocol::{Answer, Kill, Request, Target};

/// How long a shim may take to find all processes of a command.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

const SIGKILL: i32 = 9;

impl Shim {
    /// Kills an exec with the processes that it has started. Shims of earlier versions, and those of containerd, kill it alone.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it has exited.
    pub async fn end_command(&self, exec: Target) -> Result<(), Error> {
        let request = Request::EndCommand(exec.clone());
        match self.call(request, ENDED_WITHIN).await {
            Ok(Answer::Done(_)) => Ok(()),
            Ok(_) => Err(self.malformed()),
            Err(Error::Unimplemented { .. }) => {
                let kill = Kill {
                    target: exec,
                    signal: SIGKILL,
                    all: false,
                };
                self.kill(kill).await
            }
            Err(error) => Err(error),
        }
    }
}
