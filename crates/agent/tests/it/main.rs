//! The agent and the plugin, as programs, against what stands in for an API server: it speaks the real API over TLS, with the
//! roles of `deploy/kubernetes`, and refuses what they do not allow.

mod agent;
mod api;
mod coordinator;
mod crowd;
mod daemon;
mod manifests;
mod plugin;
mod rbac;
mod real_daemon;
mod rollout;
mod separation;
mod support;
