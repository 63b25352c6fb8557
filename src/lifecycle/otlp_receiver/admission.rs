//! Which users may send spans. Every process of the node reaches a loopback port, also one in a container with the node's network.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criscope_linux::tcp_peer;
use nix::unistd::geteuid;
use tokio::net::TcpStream;

/// How often refused connections are logged at most: any local user can make them.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A client that may not send spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotAdmitted {
    /// It is another user's.
    #[error("spans of user {0} are not accepted: see receiver.allowed_uids")]
    User(u32),
    /// It is on another machine or in another network namespace, or was closed.
    #[error("spans are accepted only from local processes in the network namespace of criscope")]
    Elsewhere,
    /// The kernel does not say whose it is.
    #[error("spans are not accepted: the kernel does not name the user of the connection")]
    Unknown,
}

/// The users that may send spans.
#[derive(Debug)]
pub(super) struct Admission {
    uids: Vec<u32>,
    logged: Option<Instant>,
}

impl Admission {
    /// Besides these, root may, and the user that criscope runs as, who can read its credentials anyway.
    pub(super) fn new(mut uids: Vec<u32>) -> Self {
        uids.extend([0, geteuid().as_raw()]);
        Self { uids, logged: None }
    }

    /// Checks the user at the other end of a connection.
    pub(super) fn check(
        &mut self,
        stream: &TcpStream,
        client: SocketAddr,
    ) -> Result<(), NotAdmitted> {
        let owner = stream
            .local_addr()
            .and_then(|server| tcp_peer::owner(client, server));
        let refusal = match owner {
            Ok(Some(uid)) if self.uids.contains(&uid) => return Ok(()),
            Ok(Some(uid)) => NotAdmitted::User(uid),
            Ok(None) => NotAdmitted::Elsewhere,
            Err(error) => {
                tracing::debug!(target: "criscope::lifecycle", error.message = %error, "the user of a connection is unknown");
                NotAdmitted::Unknown
            }
        };
        if self.logged.is_none_or(|at| at.elapsed() > LOG_EVERY) {
            self.logged = Some(Instant::now());
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "receiver.refused",
                client.address = %client,
                error.message = %refusal,
                "a connection to the OTLP receiver was refused"
            );
        }
        Err(refusal)
    }
}
