//! The network statistics of a pod, from the counters of its interfaces.

use criscope_linux::link::Counters;

use criscope_cri::v1;

/// The default interface of Kubernetes pods.
const DEFAULT: &str = "eth0";

/// The usage of all interfaces except `lo`. The default interface is `eth0`, or the first one if there is no `eth0`.
#[must_use]
pub fn usage(counters: &[Counters], at: i64) -> v1::NetworkUsage {
    let mut interfaces: Vec<_> = counters
        .iter()
        .filter(|counters| counters.name != "lo")
        .map(interface)
        .collect();
    let default = interfaces.iter().find(|one| one.name == DEFAULT);
    let default_interface = default.or(interfaces.first()).cloned();
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    v1::NetworkUsage {
        timestamp: at,
        default_interface,
        interfaces,
    }
}

fn interface(counters: &Counters) -> v1::NetworkInterfaceUsage {
    v1::NetworkInterfaceUsage {
        name: counters.name.clone(),
        rx_bytes: counter(counters.rx_bytes),
        rx_errors: counter(counters.rx_errors),
        tx_bytes: counter(counters.tx_bytes),
        tx_errors: counter(counters.tx_errors),
    }
}

fn counter(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_interface_is_eth0_or_the_first() {
        let named = |name: &str, rx_bytes| Counters {
            name: name.to_owned(),
            rx_bytes,
            ..Counters::default()
        };
        let all = [named("lo", 1), named("net1", 2), named("eth0", 3)];
        let usage_of_all = usage(&all, 7);
        assert_eq!(usage_of_all.timestamp, 7);
        let names: Vec<_> = usage_of_all
            .interfaces
            .iter()
            .map(|one| &one.name)
            .collect();
        assert_eq!(names, ["eth0", "net1"]);
        let default = usage_of_all.default_interface.expect("present");
        assert_eq!(
            (default.name.as_str(), default.rx_bytes.map(|v| v.value)),
            ("eth0", Some(3))
        );
        let default = usage(&all[..2], 7).default_interface.expect("present");
        assert_eq!(default.name, "net1");
        assert!(usage(&all[..1], 7).default_interface.is_none());
    }
}
