//! Dynamic parameters of plugins (`runtimeConfig`, CNI conventions): each plugin gets only the capabilities that it
//! declares.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::conf::Plugin;

/// Protocol of a forwarded port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the node that is forwarded to the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// Port of the node; 0 or less means not forwarded.
    pub host_port: i32,
    /// Port of the pod.
    pub container_port: i32,
    /// Transport.
    pub protocol: Protocol,
    /// Address of the node; empty means all addresses.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
}

/// Limits of rate in bits per second and of bursts in bits; 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// Rate to the pod.
    pub ingress_rate: u64,
    /// Burst to the pod.
    pub ingress_burst: u64,
    /// Rate from the pod.
    pub egress_rate: u64,
    /// Burst from the pod.
    pub egress_burst: u64,
}

impl Bandwidth {
    /// Parses the annotations `kubernetes.io/ingress-bandwidth` and `kubernetes.io/egress-bandwidth`, quantities between 1k
    /// and 1P. The burst is the largest value that the plugin accepts, as in containerd and CRI-O.
    ///
    /// # Errors
    /// An error about the invalid annotation.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        let ingress_rate = rate_limit(annotations, "kubernetes.io/ingress-bandwidth")?;
        let egress_rate = rate_limit(annotations, "kubernetes.io/egress-bandwidth")?;
        let some = Self {
            ingress_rate,
            ingress_burst: max_burst(ingress_rate),
            egress_rate,
            egress_burst: max_burst(egress_rate),
        };
        Ok((ingress_rate != 0 || egress_rate != 0).then_some(some))
    }
}

/// The rate in an annotation; 0 if the annotation is not set.
fn rate_limit(annotations: &BTreeMap<String, String>, key: &str) -> Result<u64, String> {
    match annotations.get(key) {
        None => Ok(0),
        Some(text) => quantity(text)
            .filter(|rate| (1_000..=1_000_000_000_000_000).contains(rate))
            .ok_or_else(|| format!("annotation {key} is not a quantity between 1k and 1P")),
    }
}

fn max_burst(rate: u64) -> u64 {
    if rate == 0 { 0 } else { u64::from(u32::MAX) }
}

/// Parses a Kubernetes quantity as a whole number, rounded up.
fn quantity(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        exponent => match exponent.strip_prefix(['e', 'E'])?.parse::<i32>() {
            Ok(exponent) if exponent.abs() <= 18 => 10_f64.powi(exponent),
            _ => return None,
        },
    };
    let value = (number.parse::<f64>().ok()? * factor).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: whole and between 0 and 10^18"
    )]
    (0.0..=1e18).contains(&value).then_some(value as u64)
}

/// DNS settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// Addresses.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options of resolv.conf.
    pub options: Vec<String>,
}

/// A range of addresses to allocate from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IpRange {
    /// CIDR.
    pub subnet: String,
    /// First address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_start: Option<String>,
    /// Last address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_end: Option<String>,
    /// Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

/// All dynamic parameters of a pod. Empty ones are omitted.
#[derive(Clone, Default)]
pub struct Capabilities {
    /// `portMappings`.
    pub port_mappings: Vec<PortMapping>,
    /// `bandwidth`.
    pub bandwidth: Option<Bandwidth>,
    /// `dns`.
    pub dns: Option<Dns>,
    /// `ipRanges`: sets of ranges, one address of each set.
    pub ip_ranges: Vec<Vec<IpRange>>,
    /// `mac`.
    pub mac: Option<String>,
    /// `ips`.
    pub ips: Vec<String>,
    /// `cgroupPath`.
    pub cgroup_path: Option<String>,
    /// `io.kubernetes.cri.pod-annotations`.
    pub annotations: BTreeMap<String, String>,
}

// Annotations are private to the pod's owner.
impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capabilities")
            .field("port_mappings", &self.port_mappings)
            .field("bandwidth", &self.bandwidth)
            .finish_non_exhaustive()
    }
}

impl Capabilities {
    /// All capabilities by name, as for a plugin that declares all.
    pub(crate) fn arguments(&self) -> Map<String, Value> {
        let ports: Vec<_> = self
            .port_mappings
            .iter()
            .filter(|port| port.host_port > 0)
            .collect();
        let all = [
            (
                "portMappings",
                !ports.is_empty(),
                serde_json::to_value(&ports),
            ),
            (
                "bandwidth",
                self.bandwidth.is_some(),
                serde_json::to_value(self.bandwidth),
            ),
            ("dns", self.dns.is_some(), serde_json::to_value(&self.dns)),
            (
                "ipRanges",
                !self.ip_ranges.is_empty(),
                serde_json::to_value(&self.ip_ranges),
            ),
            ("mac", self.mac.is_some(), serde_json::to_value(&self.mac)),
            ("ips", !self.ips.is_empty(), serde_json::to_value(&self.ips)),
            (
                "cgroupPath",
                self.cgroup_path.is_some(),
                serde_json::to_value(&self.cgroup_path),
            ),
            (
                "io.kubernetes.cri.pod-annotations",
                !self.annotations.is_empty(),
                serde_json::to_value(&self.annotations),
            ),
        ];
        all.into_iter()
            .filter(|(_, is_set, _)| *is_set)
            .filter_map(|(key, _, value)| Some((key.to_owned(), value.ok()?)))
            .collect()
    }
}

/// Returns the `runtimeConfig` of a plugin: the capabilities that it declares and the pod uses.
pub(crate) fn runtime_config(plugin: &Plugin, arguments: &Map<String, Value>) -> Option<Value> {
    let told: Map<_, _> = arguments
        .iter()
        .filter(|(capability, _)| plugin.declares(capability))
        .map(|(capability, value)| (capability.clone(), value.clone()))
        .collect();
    (!told.is_empty()).then_some(Value::Object(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_without_a_host_port_are_omitted() {
        let port = |host_port| PortMapping {
            host_port,
            container_port: 80,
            protocol: Protocol::Tcp,
            host_ip: String::new(),
        };
        let mut asked = Capabilities {
            port_mappings: vec![port(0), port(-1)],
            ..Capabilities::default()
        };
        assert!(asked.arguments().is_empty());
        asked.port_mappings.push(port(8080));
        let told = serde_json::to_string(&asked.arguments()).expect("json");
        assert_eq!(
            told,
            r#"{"portMappings":[{"containerPort":80,"hostPort":8080,"protocol":"tcp"}]}"#
        );
    }

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        for (text, value) in [
            ("10M", Some(10_000_000)),
            ("1.5k", Some(1500)),
            ("1Ki", Some(1024)),
            ("2e6", Some(2_000_000)),
        ] {
            assert_eq!(quantity(text), value, "{text}");
        }
        for text in ["", "M", "-1M", "1X", "1e99", "NaN", "1.2.3"] {
            assert_eq!(quantity(text), None, "{text}");
        }
        let ask = |rate: &str| {
            Bandwidth::from_annotations(&BTreeMap::from([(
                "kubernetes.io/ingress-bandwidth".to_owned(),
                rate.to_owned(),
            )]))
        };
        assert!(ask("10").is_err());
        let limits = ask("1M").expect("valid").expect("some");
        assert_eq!(
            (
                limits.ingress_rate,
                limits.ingress_burst,
                limits.egress_burst
            ),
            (1_000_000, 4_294_967_295, 0)
        );
        assert_eq!(Bandwidth::from_annotations(&BTreeMap::new()), Ok(None));
    }
}
