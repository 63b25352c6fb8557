//! Capabilities: defaults, `ALL`, single and ambient ones.

use std::collections::HashSet;
use std::str::FromStr;

use oci_spec::runtime::{Capability, LinuxCapabilities};

use super::facts::NodeFacts;
use criscope_cri::v1::LinuxContainerSecurityContext;

/// A name of the request, with or without `CAP_`, in any case.
#[derive(PartialEq)]
enum Requested {
    All,
    One(Capability),
}

/// Names that this version does not know are left out with a warning: a runtime should not fail because of them (OCI runtime
/// specification, "Linux process"). A container never gets more than it asked for that way.
fn known(names: &[String]) -> impl Iterator<Item = Requested> {
    names.iter().filter_map(|name| {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare == "ALL" {
            return Some(Requested::All);
        }
        let capability = Capability::from_str(bare);
        if capability.is_err() {
            tracing::warn!(target: "criscope::runtime::oci::spec::capabilities", event = "runtime.capability", name = %name, "an unknown capability is ignored");
        }
        capability.ok().map(Requested::One)
    })
}

/// The capability sets of a container. `ALL` in add or drop is applied first, then single names, added before dropped. The
/// inheritable and ambient sets contain only the requested ambient capabilities: root does not need them, and files with
/// inheritable capabilities must not gain privileges from them (CVE-2022-24769).
pub(super) fn capabilities(
    context: &LinuxContainerSecurityContext,
    node: &NodeFacts,
) -> LinuxCapabilities {
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
        let added: Vec<_> = known(&requested.add_capabilities).collect();
        let dropped: Vec<_> = known(&requested.drop_capabilities).collect();
        if added.contains(&Requested::All) {
            set = node.all_capabilities.iter().copied().collect();
        }
        if dropped.contains(&Requested::All) {
            set.clear();
        }
        set.extend(singles(&added));
        for capability in singles(&dropped) {
            set.remove(&capability);
        }
        let requested: Vec<_> = known(&requested.add_ambient_capabilities).collect();
        ambient.extend(singles(&requested));
        set.extend(&ambient);
    }
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(Some(set.clone()))
        .set_effective(Some(set.clone()))
        .set_permitted(Some(set))
        .set_inheritable(Some(ambient.clone()))
        .set_ambient(Some(ambient));
    sets
}

fn singles(list: &[Requested]) -> impl Iterator<Item = Capability> {
    list.iter().filter_map(|one| match one {
        Requested::One(capability) => Some(*capability),
        Requested::All => None,
    })
}
