//! The namespaces that a pod does not share with the node, with their host name, sysctls and id mappings.

use criscope_linux::idmap::{Mappings, Range};
use criscope_linux::namespace::{Kind, Request};
use criscope_linux::sysctl::Sysctl;
use oci_spec::runtime::LinuxIdMapping;

use crate::error::{Error, Result};
use crate::oci::spec::{sandbox_sysctls, user_mappings};
use crate::sections::PodDefaults;
use crate::store::SandboxRecord;
use criscope_cri::v1::NamespaceMode;

/// The sysctls of interfaces that CNI makes (`net.ipv4.conf.eth0.rp_filter`): they exist only once the network is attached.
pub(super) fn interface_sysctls(
    record: &SandboxRecord,
    policy: &PodDefaults,
) -> Result<Vec<Sysctl>> {
    let mut all = sysctls(record, policy)?;
    all.retain(|sysctl| sysctl.interface().is_some());
    Ok(all)
}

fn sysctls(record: &SandboxRecord, policy: &PodDefaults) -> Result<Vec<Sysctl>> {
    sandbox_sysctls(&record.config, policy)?
        .into_iter()
        .map(|(name, value)| Sysctl::new(&name, &value))
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| Error::invalid(error.to_string()))
}

/// The request for the namespaces of a pod.
pub(super) fn request(
    record: &SandboxRecord,
    hostname: &str,
    policy: &PodDefaults,
) -> Result<Request> {
    let options = record.namespaces();
    let mut kinds = Vec::new();
    if options.network != NamespaceMode::Node as i32 {
        kinds.push(Kind::Net);
    }
    if record.own_host_name() {
        kinds.push(Kind::Uts);
    }
    if options.ipc != NamespaceMode::Node as i32 {
        kinds.push(Kind::Ipc);
    }
    let mut sysctls = sysctls(record, policy)?;
    sysctls.retain(|sysctl| sysctl.interface().is_none());
    Ok(Request {
        user: mappings(record)?,
        hostname: kinds.contains(&Kind::Uts).then(|| hostname.to_owned()),
        kinds,
        sysctls,
    })
}

/// The id mappings of a pod's user namespace, if it has one.
pub(crate) fn mappings(record: &SandboxRecord) -> Result<Option<Mappings>> {
    let options = record.namespaces().userns_options;
    let Some((uids, gids)) = user_mappings(options.as_ref())? else {
        return Ok(None);
    };
    Mappings::new(ranges(uids), ranges(gids))
        .map(Some)
        .map_err(|error| Error::invalid(error.to_string()))
}

fn ranges(mappings: Vec<LinuxIdMapping>) -> Vec<Range> {
    let ranges = mappings.into_iter().map(|mapping| Range {
        container_id: mapping.container_id(),
        host_id: mapping.host_id(),
        length: mapping.size(),
    });
    ranges.collect()
}
