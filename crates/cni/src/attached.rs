//! The attachments of a pod, for queries after its ADD.

use super::cache::Entry;
use super::error::Error;
use super::network::{Cni, attachment, blocking};
use super::pod::Interface;
use super::result::CniResult;
use super::version::Version;

impl Cni {
    /// The attached networks of a pod with the results of their plugins, by interface; empty before its ADD and after its DEL.
    /// May be called while a verb on the pod runs.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub async fn interfaces(&self, container: &str) -> Result<Vec<Interface>, Error> {
        let (cache, container) = (self.cache.clone(), container.to_owned());
        let entries = blocking(move || cache.peek(&container)).await?;
        let mut interfaces: Vec<_> = entries.iter().filter_map(interface).collect();
        interfaces.sort_by(|a, b| a.attachment.interface.cmp(&b.attachment.interface));
        Ok(interfaces)
    }
}

/// None if its ADD has not ended, or its result is invalid.
fn interface(entry: &Entry) -> Option<Interface> {
    // A pod that was detached has none, even if a plugin is still to be called.
    let result = entry.result.clone().filter(|result| !result.is_null());
    let result = result.filter(|_| !entry.criscope_lacks_plugins)?;
    let result = CniResult::from_value(result, version(entry)).ok()?;
    Some(Interface {
        attachment: attachment(entry),
        result,
    })
}

/// The version of a result without one: that of its network.
fn version(entry: &Entry) -> Version {
    let version = entry
        .config
        .get("cniVersion")
        .and_then(|text| text.as_str());
    version.and_then(Version::parse).unwrap_or(Version::V1_0_0)
}
