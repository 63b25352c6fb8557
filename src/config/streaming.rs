//! `[streaming]`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `[streaming]`: the server of exec, attach and port-forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streaming {
    /// TCP address; port 0 is one that the system chooses.
    pub listen: SocketAddr,
    /// What URLs begin with, if it is not the address: `http://host:port`.
    pub base_url: Option<String>,
    /// Whether TLS is spoken.
    pub tls: Option<StreamingTls>,
    /// Silence after which a session is ended.
    pub idle_timeout: Duration,
    /// How long a client may take to open its streams.
    pub creation_timeout: Duration,
    /// Sessions at a time.
    pub max_sessions: usize,
    /// Whether commands are written to the log in full.
    pub audit_commands: bool,
    /// Whether the sessions of an upstream are led through this program.
    pub observe: bool,
}

/// Files of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamingTls {
    /// The chain of certificates, in PEM.
    pub cert: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}
