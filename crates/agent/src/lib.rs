//! The agent for Kubernetes clusters: it reports to the cluster what criscope knows of a node. `docs/adr/0056-*` has the data flow
//! and the reasons.
//!
//! [`daemon`] reads the pages of the daemon on this node; [`events`] reports slow and failing pods as Events; [`serve`] offers
//! metrics and stories over TLS to users whom [`guard`] admits. [`install`] puts criscope on the node in a pod of its own, whose
//! readiness is [`check`]; [`rollout`] decides which node is next. [`plugin`] is `kubectl criscope`; [`capture`] is the part of its command
//! `capture` that runs on a node. People run the plugin on other systems too, so it is all that is compiled there.

#[cfg(target_os = "linux")]
pub mod agent;
#[cfg(target_os = "linux")]
pub mod capture;
mod capture_log;
#[cfg(target_os = "linux")]
pub mod certificate;
#[cfg(target_os = "linux")]
pub mod check;
#[cfg(target_os = "linux")]
mod compress;
#[cfg(target_os = "linux")]
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod events;
#[cfg(target_os = "linux")]
pub mod guard;
#[cfg(target_os = "linux")]
pub mod install;
pub mod plugin;
pub mod rollout;
#[cfg(target_os = "linux")]
pub mod serve;

/// The header with a token for agents. API servers remove `Authorization` from proxied requests.
pub const TOKEN_HEADER: &str = "x-criscope-token";

/// The audience of such a token.
pub const AUDIENCE: &str = "criscope-agent";

/// The service account of such a token.
pub const READER_ACCOUNT: &str = "criscope-reader";

/// The header that names the node. It distinguishes an agent's answer from the API server's own.
pub const NODE_HEADER: &str = "x-criscope-node";

/// Prefix of the paths of stories.
pub const STORIES_PREFIX: &str = "/criscope";

/// Suffix of the namespace of installers and captures, after the name of the agents' namespace. Users reach the ports of agents,
/// so pods with the node's namespaces are elsewhere.
pub const NODE_NAMESPACE_SUFFIX: &str = "-node";

/// The port of the agent.
pub const AGENT_PORT: u16 = 9479;
