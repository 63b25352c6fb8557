//! Version, Status and RuntimeConfig.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use criscope_cni::Loaded;
use serde_json::{Value, json};

use super::Runtime;
use super::handler::Handlers;
use super::oci::spec::CgroupDriver;
use super::sections;
use super::settings::LiveSettings;
use criscope_cri::v1;
use criscope_settings::{EffectiveSettings, SettingsSection as _, without_user};

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
        let live = self.live();
        let network = match live.handlers.get("") {
            Ok(handler) => handler.cni.ready().await,
            Err(error) => Err(criscope_cni::Error::NotReady {
                why: error.to_string(),
            }),
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
            info.insert("config".to_owned(), self.configuration(&live.settings));
            info.extend(self.networks_of(&live.handlers).await);
            let problems = self.problems().into_iter().map(|problem| {
                json!({"what": problem.what, "path": problem.path, "reason": problem.reason})
            });
            let problems = problems.collect::<serde_json::Value>();
            info.insert("problems".to_owned(), problems.to_string());
        }
        let handlers = live.handlers.list();
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
                        recursive_read_only_mounts: handler.features.recursive_read_only,
                        user_namespaces: handler.features.user_namespaces,
                    }),
                })
                .collect(),
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: handlers
                    .iter()
                    .any(|(_, handler)| handler.features.user_namespaces),
                mount_options: true,
            }),
        }
    }

    /// The configuration that the kubelet adopts.
    pub fn runtime_config(&self) -> v1::RuntimeConfigResponse {
        let driver = match self.live().settings.node.cgroup_driver {
            CgroupDriver::Systemd => v1::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => v1::CgroupDriver::Cgroupfs,
        };
        v1::RuntimeConfigResponse {
            linux: Some(v1::LinuxRuntimeConfiguration {
                cgroup_driver: driver as i32,
            }),
        }
    }

    /// The configuration in effect, shown by `crictl info`: under containerd's names what scripts read there, and under
    /// `settings` every key of `[runtime]`.
    fn configuration(&self, live: &LiveSettings) -> String {
        let (paths, config) = (&self.settings.paths, &live.config);
        let handlers: HashMap<_, _> = live
            .handlers
            .iter()
            .map(|handler| {
                let shown = json!({"path": handler.oci.path, "root": handler.oci.root});
                (&handler.settings.name, shown)
            })
            .collect();
        let mut in_effect = EffectiveSettings::new();
        config.list(sections::Runtime::PATH, &mut in_effect);
        let in_effect = in_effect.iter();
        let in_effect = in_effect.map(|(key, setting)| (key, without_user(&setting.value)));
        json!({
            "root": paths.root(),
            "state": paths.state(),
            "defaultHandler": live.default_handler,
            "handlers": handlers,
            "containerd": {"defaultRuntimeName": live.default_handler, "runtimes": handlers},
            "cni": {
                "confDir": config.cni.conf_dir,
                "binDir": config.cni.bin_dirs.first(),
                "binDirs": config.cni.bin_dirs,
                "maxConfNum": config.cni.max_conf_num,
            },
            "enableSelinux": live.node.selinux,
            "maxContainerLogLine": config.max_container_log_line_size,
            "enableCriu": config.enable_criu,
            "settings": in_effect.collect::<BTreeMap<_, _>>(),
        })
        .to_string()
    }

    /// The networks of each handler, under containerd's names: which are configured, and the problems of the ones that are
    /// not. Not the configurations of the plugins, which may have credentials.
    async fn networks_of(&self, handlers: &Handlers) -> HashMap<String, String> {
        let cni = &self.settings.live.config.cni;
        let mut info = HashMap::new();
        for (name, handler) in handlers.list() {
            let loaded = handler.cni.networks().await;
            let status = load_status(&loaded);
            let dir = handler.cni.conf_dir();
            if name.is_empty() {
                info.insert("lastCNILoadStatus".to_owned(), status.clone());
                info.insert("lastCNILoadStatus.default".to_owned(), status);
                let shown = networks(cni, dir, &loaded);
                info.insert("cniconfig".to_owned(), shown.to_string());
            } else if dir != cni.conf_dir {
                info.insert(format!("lastCNILoadStatus.{name}"), status);
            }
        }
        info
    }
}

fn condition(kind: &str, status: bool, reason: &str, message: String) -> v1::RuntimeCondition {
    v1::RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
    }
}

/// `OK`, or the problem, by file.
fn load_status(loaded: &Loaded) -> String {
    let problems = loaded.problems.iter();
    let problems = problems.map(|problem| format!("{}: {}", problem.path.display(), problem.why));
    let problems: Vec<_> = problems.collect();
    match (problems.is_empty(), loaded.networks.is_empty()) {
        (true, true) => "no network configuration".to_owned(),
        (true, false) => "OK".to_owned(),
        (false, _) => problems.join("; "),
    }
}

fn networks(settings: &sections::Cni, dir: &Path, loaded: &Loaded) -> Value {
    let networks = loaded.networks.iter().enumerate().map(|(index, network)| {
        let plugins = network.plugins().iter();
        let plugins = plugins.map(|plugin| json!({"Network": {"type": plugin.kind()}}));
        json!({
            "Config": {
                "Name": network.name(),
                "CNIVersion": network.version().to_string(),
                "Plugins": plugins.collect::<Value>(),
                "Path": network.source(),
            },
            "IFName": format!("{}{index}", settings.interface_prefix),
        })
    });
    json!({
        "PluginDirs": settings.bin_dirs,
        "PluginConfDir": dir,
        "PluginMaxConfNum": settings.max_conf_num,
        "Prefix": settings.interface_prefix,
        "Networks": networks.collect::<Value>(),
    })
}
