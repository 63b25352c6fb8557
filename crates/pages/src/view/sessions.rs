//! Views of sessions, in the story of their pod and on the front page. Times of day are microseconds since 1970-01-01 UTC; durations
//! are milliseconds, with fractions.

use serde::{Deserialize, Serialize};

use criscope_cri::units::times::UnixMicros;

/// A session of exec, attach or port-forward, open or ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionView {
    /// `exec`, `attach` or `portforward`.
    pub kind: String,
    /// Pod uid; empty if the pod of an open session is unknown.
    pub uid: String,
    /// The container of exec and attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The program of exec, without its path and arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Kind of caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// `spdy` or `websocket`.
    pub transport: String,
    /// Protocol version.
    pub protocol: String,
    /// Begin of the session.
    pub began_unix_us: UnixMicros,
    /// Duration, so far if it is open.
    pub duration_ms: f64,
    /// Bytes to the container or pod; including protocol overhead if an upstream served it.
    pub bytes_in: u64,
    /// Bytes from it, likewise.
    pub bytes_out: u64,
    /// `done`, `client_gone`, `failed`, `no_streams`, `protocol`, `idle` or `shutdown`; `open` if it has not ended.
    pub outcome: String,
    /// Exit code of the program, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

impl SessionView {
    /// The outcome of an open session.
    pub const OPEN: &str = "open";

    /// Returns whether it is open.
    pub fn is_open(&self) -> bool {
        self.outcome == Self::OPEN
    }
}

/// An open session, in the list of all pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenSessionView {
    /// Id of its container, or sandbox for port-forward.
    pub id: String,
    /// Kubernetes namespace, if the pod is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Pod name, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The session.
    #[serde(flatten)]
    pub session: SessionView,
}
