//! The users that may send spans. Every process of the node reaches a loopback port, even a process in a container with the
//! node's network.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criscope_linux::tcp_peer;
use nix::unistd::geteuid;
use tokio::net::TcpStream;

/// Minimum interval between two log lines about refused connections: any local user can make them.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A client that may not send spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RefusedClient {
    /// Another user's process.
    #[error("spans of user {0} are not accepted: see receiver.allowed_uids")]
    User(u32),
    /// A process on another machine or in another network namespace, or a connection that was closed.
    #[error("spans are accepted only from local processes in the network namespace of criscope")]
    Elsewhere,
    /// The kernel does not name the owner.
    #[error("spans are not accepted: the kernel does not name the user of the connection")]
    Unknown,
}

/// The users that may send spans.
#[derive(Debug)]
pub(super) struct AllowedUsers {
    uids: Vec<u32>,
    logged: Option<Instant>,
}

impl AllowedUsers {
    /// Allows these users, root, and the user that criscope runs as, who can read its credentials anyway.
    pub(super) fn new(mut uids: Vec<u32>) -> Self {
        uids.extend([0, geteuid().as_raw()]);
        Self { uids, logged: None }
    }

    /// Checks the user at the other end of a connection.
    pub(super) fn check(
        &mut self,
        stream: &TcpStream,
        client: SocketAddr,
    ) -> Result<(), RefusedClient> {
        let owner = stream
            .local_addr()
            .and_then(|server| tcp_peer::owner(client, server));
        let refusal = match owner {
            Ok(Some(uid)) if self.uids.contains(&uid) => return Ok(()),
            Ok(Some(uid)) => RefusedClient::User(uid),
            Ok(None) => RefusedClient::Elsewhere,
            Err(error) => {
                tracing::debug!(target: "criscope::lifecycle", { error.message = %error }, "the user of a connection is unknown");
                RefusedClient::Unknown
            }
        };
        if self
            .logged
            .is_none_or(|at| at.elapsed() > REFUSAL_LOG_INTERVAL)
        {
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
