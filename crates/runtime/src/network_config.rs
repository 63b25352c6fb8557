//! UpdateRuntimeConfig: the pod CIDR of the node, from which a network configuration can be generated.

use criscope_cni::write_network;

use super::Runtime;
use super::error::Result;
use super::sandbox::teardown::blocking;
use criscope_cri::v1;

/// File name of the generated configuration: last in the directory, so that any other one takes precedence.
const MADE: &str = "99-criscope-net.conflist";

impl Runtime {
    /// Handles the pod CIDR: writes a network configuration if a template is configured and no network is ready yet.
    ///
    /// # Errors
    /// If the template cannot be read, its result is not JSON, or the file cannot be written.
    pub async fn update_runtime_config(
        &self,
        request: &v1::UpdateRuntimeConfigRequest,
    ) -> Result<()> {
        let config = request.runtime_config.as_ref();
        let cidr = config
            .and_then(|config| config.network_config.as_ref())
            .map_or("", |network| network.pod_cidr.as_str())
            .to_owned();
        let cni = &self.settings.live.config.cni;
        let Some(template) = cni.conf_template.clone() else {
            return Ok(());
        };
        if cidr.is_empty() || self.live().handlers.get("")?.cni.ready().await.is_ok() {
            return Ok(());
        }
        let target = cni.conf_dir.join(MADE);
        blocking(move || Ok(write_network(&template, &target, &cidr)?)).await
    }
}
