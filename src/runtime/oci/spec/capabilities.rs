//! Capabilities: defaults, `ALL`, single and ambient ones.

use std::collections::HashSet;
use std::str::FromStr;

use oci_spec::runtime::{Capability, LinuxCapabilities};

use super::error::SpecError;
use super::facts::NodeFacts;
use crate::cri::v1::LinuxContainerSecurityContext;

fn parse(name: &str) -> Result<Capability, SpecError> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    Capability::from_str(bare).map_err(|_| SpecError::Invalid(format!("unknown capability {name}")))
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("ALL")
}

/// The capability sets of a container. `ALL` in add or drop is applied first, then single names, added before dropped. The
/// inheritable and ambient sets contain only the requested ambient capabilities: root does not need them, and files with
/// inheritable capabilities must not gain privileges from them (CVE-2022-24769).
pub(super) fn capabilities(
    context: &LinuxContainerSecurityContext,
    node: &NodeFacts,
) -> Result<LinuxCapabilities, SpecError> {
    let mut set: HashSet<Capability> = if context.privileged {
        node.all_capabilities.iter().copied().collect()
    } else {
        node.default_capabilities.iter().copied().collect()
    };
    let mut ambient = HashSet::new();
    // A privileged container keeps all of them: the kubelet sends no list for it, and containerd ignores one.
    if let Some(requested) = context
        .capabilities
        .as_ref()
        .filter(|_| !context.privileged)
    {
        if requested.add_capabilities.iter().any(|name| is_all(name)) {
            set = node.all_capabilities.iter().copied().collect();
        }
        if requested.drop_capabilities.iter().any(|name| is_all(name)) {
            set.clear();
        }
        for name in requested
            .add_capabilities
            .iter()
            .filter(|name| !is_all(name))
        {
            set.insert(parse(name)?);
        }
        for name in requested
            .drop_capabilities
            .iter()
            .filter(|name| !is_all(name))
        {
            set.remove(&parse(name)?);
        }
        for name in &requested.add_ambient_capabilities {
            let capability = parse(name)?;
            set.insert(capability);
            ambient.insert(capability);
        }
    }
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(Some(set.clone()))
        .set_effective(Some(set.clone()))
        .set_permitted(Some(set))
        .set_inheritable(Some(ambient.clone()))
        .set_ambient(Some(ambient));
    Ok(sets)
}
