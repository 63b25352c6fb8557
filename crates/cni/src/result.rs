//! The result of an ADD, which can be converted between versions. Unknown keys are kept.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::error::ParseError;
use super::version::Version;

/// The result of an ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct CniResult {
    version: Version,
    raw: Map<String, Value>,
}

/// An address of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network.
    pub prefix: u8,
    /// Gateway.
    pub gateway: Option<IpAddr>,
    /// Name of the interface in the pod; `None` if the plugin omits it.
    pub interface: Option<String>,
}

/// The address that becomes the pod's primary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// The first IPv4 address.
    #[default]
    Ipv4,
    /// The first IPv6 address.
    Ipv6,
    /// The first in the order of the plugin.
    Cni,
}

impl Preference {
    /// Splits addresses into the primary one and the others.
    #[must_use]
    pub fn choose(self, addresses: &[Address]) -> (Option<IpAddr>, Vec<IpAddr>) {
        let mut ips: Vec<_> = addresses.iter().map(|address| address.ip).collect();
        if ips.is_empty() {
            return (None, ips);
        }
        let preferred = ips.iter().position(|ip| self.is_met_by(ip));
        let first = ips.remove(preferred.unwrap_or(0));
        (Some(first), ips)
    }

    fn is_met_by(self, ip: &IpAddr) -> bool {
        match self {
            Self::Ipv4 => ip.is_ipv4(),
            Self::Ipv6 => ip.is_ipv6(),
            Self::Cni => true,
        }
    }
}

impl CniResult {
    /// Parses a result. As in libcni, one without a version has the network's version.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(text: &[u8], fallback: Version) -> Result<Self, ParseError> {
        Self::from_value(serde_json::from_slice(text)?, fallback)
    }

    pub(crate) fn from_value(value: Value, fallback: Version) -> Result<Self, ParseError> {
        let Value::Object(mut raw) = value else {
            return Err(ParseError::WrongType {
                key: "result",
                expected: "an object",
            });
        };
        let version = match raw.get("cniVersion").and_then(Value::as_str) {
            None | Some("") => fallback,
            Some(text) => {
                Version::parse(text).ok_or_else(|| ParseError::Version(text.to_owned()))?
            }
        };
        raw.insert("cniVersion".to_owned(), version.to_string().into());
        let result = Self { version, raw };
        result.read()?;
        Ok(result)
    }

    /// The version of the specification.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the result as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.raw.clone())
    }

    /// Converts it to another version. Keys that the older version does not define are removed.
    #[must_use]
    pub fn in_version(mut self, version: Version) -> Self {
        self.raw
            .insert("cniVersion".to_owned(), version.to_string().into());
        let family = version < Version::V1_0_0;
        for ip in objects(self.raw.get_mut("ips")) {
            let v4 = ip
                .get("address")
                .and_then(Value::as_str)
                .is_none_or(|address| !address.contains(':'));
            if family {
                ip.insert("version".to_owned(), if v4 { "4" } else { "6" }.into());
            } else {
                ip.remove("version");
            }
        }
        if version < Version::V1_1_0 {
            let newer = [
                ("interfaces", &["mtu", "socketPath", "pciID"][..]),
                (
                    "routes",
                    &["mtu", "advmss", "priority", "table", "scope"][..],
                ),
            ];
            for (list, keys) in newer {
                for object in objects(self.raw.get_mut(list)) {
                    object.retain(|key, _| !keys.contains(&key.as_str()));
                }
            }
        }
        self.version = version;
        self
    }

    /// The addresses of the pod, without those of interfaces on the node's side.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        // `parse` has validated them.
        self.read().unwrap_or_default()
    }

    fn read(&self) -> Result<Vec<Address>, ParseError> {
        let interfaces = self.list("interfaces")?;
        let mut addresses = Vec::new();
        for ip in self.list("ips")? {
            let interface = match ip.get("interface") {
                None | Some(Value::Null) => None,
                Some(index) => {
                    let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
                    Some(
                        index
                            .and_then(|index| interfaces.get(index))
                            .ok_or(ParseError::Interface)?,
                    )
                }
            };
            if interface.is_some_and(|interface| text(interface, "sandbox").is_empty()) {
                continue;
            }
            let cidr = text(ip, "address");
            let (address, prefix) =
                parse_cidr(cidr).ok_or_else(|| ParseError::Cidr(cidr.to_owned()))?;
            addresses.push(Address {
                ip: address,
                prefix,
                gateway: text(ip, "gateway").parse().ok(),
                interface: interface.map(|interface| text(interface, "name").to_owned()),
            });
        }
        Ok(addresses)
    }

    fn list(&self, key: &'static str) -> Result<&[Value], ParseError> {
        match self.raw.get(key) {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => Err(ParseError::WrongType {
                key,
                expected: "a list",
            }),
        }
    }
}

fn parse_cidr(cidr: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = cidr.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u8 = prefix.parse().ok()?;
    let max_prefix = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= max_prefix).then_some((address, prefix))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = r#"{"cniVersion":"1.1.0","odd":1,
        "interfaces":[{"name":"br0","mac":"a","mtu":1500},{"name":"eth0","sandbox":"/n","mtu":1500,"pciID":"x"}],
        "ips":[{"address":"fd00::2/64","interface":1},{"address":"10.0.0.2/24","gateway":"10.0.0.1","interface":1},
               {"address":"10.0.0.1/24","interface":0}],
        "routes":[{"dst":"0.0.0.0/0","mtu":9,"gw":"10.0.0.1"}]}"#;

    #[test]
    fn the_first_ipv4_address_of_the_pod_is_preferred() {
        let result = CniResult::parse(NEW.as_bytes(), Version::V1_1_0).expect("valid");
        let addresses = result.addresses();
        let ip = |text: &str| text.parse::<IpAddr>().expect("ip");
        assert_eq!(addresses.len(), 2, "without the bridge's own address");
        assert_eq!(addresses[1].gateway, Some(ip("10.0.0.1")));
        assert_eq!(
            Preference::Ipv4.choose(&addresses),
            (Some(ip("10.0.0.2")), vec![ip("fd00::2")])
        );
        assert_eq!(
            Preference::Ipv6.choose(&addresses),
            (Some(ip("fd00::2")), vec![ip("10.0.0.2")])
        );
        assert_eq!(Preference::Cni.choose(&addresses).0, Some(ip("fd00::2")));
        assert_eq!(
            Preference::Ipv6.choose(&addresses[1..]).0,
            Some(ip("10.0.0.2"))
        );
        assert_eq!(Preference::Ipv4.choose(&[]), (None, Vec::new()));
    }

    #[test]
    fn results_are_converted_between_versions() {
        let result = CniResult::parse(NEW.as_bytes(), Version::V1_1_0).expect("valid");
        for version in Version::ALL {
            let other = result.clone().in_version(version);
            let value = other.to_value();
            assert_eq!(value["cniVersion"], version.to_string());
            assert_eq!(value["odd"], 1);
            assert_eq!(
                value["routes"][0].get("mtu").is_some(),
                version >= Version::V1_1_0
            );
            assert_eq!(
                value["interfaces"][1].get("pciID").is_some(),
                version >= Version::V1_1_0
            );
            let family = value["ips"][0].get("version").and_then(Value::as_str);
            assert_eq!(family, (version < Version::V1_0_0).then_some("6"));
            assert_eq!(other.addresses(), result.addresses());
            let back = CniResult::from_value(value, version).expect("valid");
            assert_eq!(back, other);
        }
    }

    #[test]
    fn invalid_results_are_rejected() {
        for text in [
            "",
            "[]",
            "null",
            "{",
            r#"{"cniVersion":"7"}"#,
            r#"{"ips":{}}"#,
            r#"{"ips":[{"address":"10.0.0.2"}]}"#,
            r#"{"ips":[{"address":"10.0.0.2/33"}]}"#,
            r#"{"ips":[{"address":"10.0.0.2/24","interface":0}]}"#,
            r#"{"ips":[{"address":"10.0.0.2/24","interface":-1}],"interfaces":[{}]}"#,
        ] {
            assert!(
                CniResult::parse(text.as_bytes(), Version::V1_0_0).is_err(),
                "{text}"
            );
        }
        assert!(
            CniResult::parse(b"{}", Version::V1_0_0)
                .expect("an empty result is valid")
                .addresses()
                .is_empty()
        );
    }
}
