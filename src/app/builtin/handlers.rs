//! Finds the programs of the runtime handlers, and asks them what they support.

use std::ffi::OsStr;

use super::BuiltinError;
use super::knobs;
use crate::config;
use crate::runtime::node::{self, NodeOptions};
use crate::runtime::oci::spec::{CgroupDriver, CgroupVersion, NodeFacts, RuntimeSupport};
use crate::runtime::oci::{Filters, runtime::Version};
use crate::runtime::sections::ProgramError;
use crate::runtime::{self, HandlerSettings};

/// The first kernel whose overlayfs supports id-mapped layers.
const USER_NAMESPACES: (u32, u32) = (5, 19);

/// The usable handlers.
pub(super) struct Found {
    pub(super) handlers: Vec<HandlerSettings>,
    /// One of them.
    pub(super) default: String,
    /// The facts of the node with the OCI runtime of the default.
    pub(super) node: NodeFacts,
    /// Handlers that cannot be used.
    pub(super) missing: Vec<ProgramError>,
}

impl Found {
    /// Logs which handlers cannot be used.
    pub(super) fn report_missing(&self) {
        for missing in &self.missing {
            tracing::warn!(event = "runtime.handler", error.message = %missing, "a runtime handler cannot be used");
        }
    }
}

/// Finds the handlers; `search` is a list of directories like `PATH`.
///
/// # Errors
/// If the default handler cannot be used, or the node cannot run containers as configured.
pub(super) async fn find(config: &config::Runtime, search: &OsStr) -> Result<Found, BuiltinError> {
    let programs = config.handler_programs(search)?;
    let mut handlers = Vec::new();
    let mut facts = None;
    for (handler, program) in &programs.handlers {
        let mut oci = knobs::oci_runtime(config, handler, program);
        let is_shim = oci.shim.is_some();
        let asked = knobs::asked(handler, &oci);
        let version = match &asked {
            Some(asked) => asked.version().await.ok(),
            None => None,
        };
        let takes_filters = !is_shim && version.as_ref().is_some_and(Filters::supported_by);
        let features = match &asked {
            Some(asked) => asked.features().await.ok(),
            None => None,
        };
        let support = RuntimeSupport::of_features(features.as_ref());
        let node = look(config, features, version).await?;
        // As containerd: with v1 a container has no cgroup namespace of its own.
        if handler.cgroup_writable && node.cgroup_version != CgroupVersion::V2 {
            return Err(BuiltinError::CgroupWritable(handler.name.clone()));
        }
        oci.systemd_cgroup = handler
            .systemd_cgroup
            .unwrap_or(node.cgroup_driver == CgroupDriver::Systemd);
        handlers.push(HandlerSettings {
            recursive_read_only: node.recursive_read_only,
            support,
            user_namespaces: !is_shim && node.kernel >= USER_NAMESPACES,
            takes_filters,
            ..knobs::handler(config, handler, oci)
        });
        if handler.name == programs.default {
            facts = Some(node);
        }
    }
    Ok(Found {
        handlers,
        default: programs.default,
        node: facts.ok_or(ProgramError::NoRuntime)?,
        missing: programs.missing,
    })
}

/// The facts of the node with the features of an OCI runtime, if there is one to ask.
async fn look(
    config: &config::Runtime,
    features: Option<serde_json::Value>,
    version: Option<Version>,
) -> Result<NodeFacts, BuiltinError> {
    let options = NodeOptions {
        runtime_features: features,
        runtime_version: version,
        ..knobs::node_options(config)
    };
    let facts = tokio::task::spawn_blocking(move || node::detect(&options)).await;
    Ok(facts.map_err(runtime::Error::from)??)
}
