//! UpdateRuntimeConfig: the node's pod CIDR, from which a network can be made.

use std::path::Path;

use super::Runtime;
use super::error::{Error, Result};
use super::sandbox::teardown::blocking;
use crate::cri::v1;

/// Name of the configuration made from the template: late in the directory, so that a real one wins.
const MADE: &str = "10-criscope-net.conflist";

impl Runtime {
    /// Takes note of the pod CIDR. With a template of a network configuration, and no configuration there yet, one is made:
    /// `{{.PodCIDR}}` stands for the CIDR, as in containerd's.
    ///
    /// # Errors
    /// The template cannot be read, or the network not be written.
    pub async fn update_runtime_config(
        &self,
        request: &v1::UpdateRuntimeConfigRequest,
    ) -> Result<()> {
        let config = request.runtime_config.as_ref();
        let cidr = config
            .and_then(|config| config.network_config.as_ref())
            .map_or("", |network| network.pod_cidr.as_str())
            .to_owned();
        let Some(template) = self.settings.cni_template.clone() else {
            return Ok(());
        };
        if cidr.is_empty() || self.handlers.get("")?.cni.ready().await.is_ok() {
            return Ok(());
        }
        let target = self.settings.cni.conf_dir.join(MADE);
        blocking(move || write(&template, &target, &cidr)).await
    }
}

fn write(template: &Path, target: &Path, cidr: &str) -> Result<()> {
    let text = std::fs::read_to_string(template).map_err(|e| Error::io("read", template, e))?;
    // Both families in one, as the kubelet sends them: a range for each.
    let mut cidrs = cidr.split(',').map(str::trim);
    let first = cidrs.next().unwrap_or_default();
    let text = text.replace("{{.PodCIDR}}", first);
    let draft = target.with_extension("new");
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, target))
        .map_err(|e| Error::io("write", target, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cidr_takes_its_place_in_the_template() {
        let dir = tempfile::tempdir().unwrap();
        let (template, target) = (dir.path().join("t"), dir.path().join(MADE));
        std::fs::write(&template, r#"{"subnet":"{{.PodCIDR}}"}"#).unwrap();
        write(&template, &target, "10.1.0.0/24,fd00::/64").unwrap();
        let made = std::fs::read_to_string(&target).unwrap();
        assert_eq!(made, r#"{"subnet":"10.1.0.0/24"}"#);
    }
}
