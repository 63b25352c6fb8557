//! The CNI attachment request of a pod.

use std::collections::BTreeMap;

use criscope_cni::{Bandwidth, Capabilities, Dns, Pod, PortMapping, Protocol};
use criscope_linux::namespace::{Kind, State};

use super::teardown::blocking;
use crate::Runtime;
use crate::error::{Error, Result};
use crate::store::SandboxRecord;
use criscope_cri::v1::{self, PodSandboxConfig};

impl Runtime {
    /// Describes a pod to CNI plugins. Omits the path of a network namespace that is not pinned any more: DEL works
    /// without it.
    pub(super) async fn pod_of(&self, record: &SandboxRecord) -> Result<Pod> {
        let metadata = record.config.metadata.clone().unwrap_or_default();
        let (pins, id) = (self.pins.clone(), record.id.clone());
        let pinned = blocking(move || Ok(pins.state(&id, Kind::Net)?)).await?;
        Ok(Pod {
            id: record.id.clone(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            netns: (pinned == State::Pinned).then(|| self.pins.path(&record.id, Kind::Net)),
            capabilities: capabilities(&record.config)?,
        })
    }
}

fn capabilities(config: &PodSandboxConfig) -> Result<Capabilities> {
    let annotations: BTreeMap<_, _> = config
        .annotations
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let ports = config.port_mappings.iter().map(|port| {
        Ok(PortMapping {
            host_port: port.host_port,
            container_port: port.container_port,
            protocol: protocol(port.protocol)?,
            host_ip: port.host_ip.clone(),
        })
    });
    let parent = config.linux.as_ref().map(|linux| &linux.cgroup_parent);
    Ok(Capabilities {
        port_mappings: ports.collect::<Result<_>>()?,
        bandwidth: Bandwidth::from_annotations(&annotations).map_err(Error::invalid)?,
        dns: config.dns_config.as_ref().map(|dns| Dns {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        cgroup_path: parent.filter(|parent| !parent.is_empty()).cloned(),
        annotations,
        ..Capabilities::default()
    })
}

fn protocol(number: i32) -> Result<Protocol> {
    match v1::Protocol::try_from(number) {
        Ok(v1::Protocol::Tcp) => Ok(Protocol::Tcp),
        Ok(v1::Protocol::Udp) => Ok(Protocol::Udp),
        Ok(v1::Protocol::Sctp) => Ok(Protocol::Sctp),
        Err(_) => Err(Error::invalid(format!("unknown protocol {number}"))),
    }
}
