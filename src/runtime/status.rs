//! Version, Status and RuntimeConfig.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::Runtime;
use super::oci::spec::CgroupDriver;
use crate::cri::v1;

/// The API version that every runtime returns and the kubelet requires.
const KUBE_API_VERSION: &str = "0.1.0";

/// The runtime name, used as the scheme of container ids: `criscope://ID`.
const NAME: &str = "criscope";

impl Runtime {
    /// The name and versions of the runtime.
    pub fn version(&self) -> v1::VersionResponse {
        v1::VersionResponse {
            version: KUBE_API_VERSION.to_owned(),
            runtime_name: NAME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }
    }

    /// The conditions of the runtime and the features of the handlers.
    pub async fn status(self: &Arc<Self>, verbose: bool) -> v1::StatusResponse {
        let network = match self.handlers.get("") {
            Ok(handler) => handler.cni.ready().await,
            Err(error) => Err(criscope_cni::Error::NotReady {
                why: error.to_string(),
            }),
        };
        let condition = |kind: &str, status, reason: &str, message: String| v1::RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
        };
        let network = match network {
            Ok(()) => condition("NetworkReady", true, "", String::new()),
            Err(error) => condition(
                "NetworkReady",
                false,
                criscope_cni::Error::NOT_READY,
                error.to_string(),
            ),
        };
        let mut info = HashMap::new();
        if verbose {
            info.insert("config".to_owned(), self.configuration());
            let problems = self.problems().into_iter().map(|problem| {
                json!({"what": problem.what, "path": problem.path, "reason": problem.reason})
            });
            let problems = problems.collect::<serde_json::Value>();
            info.insert("problems".to_owned(), problems.to_string());
        }
        let handlers = self.handlers.list();
        v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![condition("RuntimeReady", true, "", String::new()), network],
            }),
            info,
            runtime_handlers: handlers
                .iter()
                .map(|(name, handler)| v1::RuntimeHandler {
                    name: (*name).to_owned(),
                    features: Some(v1::RuntimeHandlerFeatures {
                        recursive_read_only_mounts: handler.recursive_read_only,
                        user_namespaces: handler.user_namespaces,
                    }),
                })
                .collect(),
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: handlers
                    .iter()
                    .any(|(_, handler)| handler.user_namespaces),
            }),
        }
    }

    /// The configuration that the kubelet adopts.
    pub fn runtime_config(&self) -> v1::RuntimeConfigResponse {
        let driver = match self.settings.node.cgroup_driver {
            CgroupDriver::Systemd => v1::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => v1::CgroupDriver::Cgroupfs,
        };
        v1::RuntimeConfigResponse {
            linux: Some(v1::LinuxRuntimeConfiguration {
                cgroup_driver: driver as i32,
            }),
        }
    }

    /// The verbose info shown by `crictl info`.
    fn configuration(&self) -> String {
        let settings = &self.settings;
        let handlers: HashMap<_, _> = settings
            .handlers
            .iter()
            .map(|handler| {
                let shown = json!({"path": handler.oci.path, "root": handler.oci.root});
                (handler.name.clone(), shown)
            })
            .collect();
        json!({
            "root": settings.paths.root(),
            "state": settings.paths.state(),
            "defaultHandler": settings.default_handler,
            "handlers": handlers,
            "cni": {"confDir": settings.cni.conf_dir, "binDirs": settings.cni.bin_dirs},
            "maxContainerLogLine": settings.max_log_line,
            "enableCriu": settings.criu,
        })
        .to_string()
    }
}
