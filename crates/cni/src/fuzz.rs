//! Fuzz targets: arbitrary bytes as configurations, results and annotations.

use std::path::Path;

use super::cache::Entry;
use super::capabilities::Bandwidth;
use super::conf::Network;
use super::result::{CniResult, Preference};
use super::template;
use super::version::Version;

/// Parses the configuration of one plugin, and a list.
///
/// # Panics
/// If a valid configuration is not valid when parsed again.
pub fn configuration(bytes: &[u8]) {
    for name in ["/fuzz/none.d/a.conf", "/fuzz/none.d/a.conflist"] {
        if let Ok(network) = Network::parse(Path::new(name), bytes) {
            assert!(Network::from_list(Path::new(name), network.list).is_ok());
        }
    }
}

/// Parses the result of an ADD.
///
/// # Panics
/// If a conversion between versions changes the addresses.
pub fn result(bytes: &[u8]) {
    for asked in [Version::V0_3_1, Version::V1_0_0, Version::V1_1_0] {
        let Ok(result) = CniResult::parse(bytes, asked) else {
            continue;
        };
        let addresses = result.addresses();
        let (first, others) = Preference::Ipv6.choose(&addresses);
        assert_eq!(usize::from(first.is_some()) + others.len(), addresses.len());
        let older = result.in_version(Version::V0_3_1);
        assert_eq!(older.addresses(), addresses);
    }
}

/// Parses an entry of the cache.
pub fn cached(bytes: &[u8]) {
    let _ = serde_json::from_slice::<Entry>(bytes);
}

/// Parses an annotation of a pod.
///
/// # Panics
/// If a rate is out of bounds.
pub fn bandwidth(text: &str) {
    let annotations = [(
        "kubernetes.io/ingress-bandwidth".to_owned(),
        text.to_owned(),
    )];
    if let Ok(Some(found)) = Bandwidth::from_annotations(&annotations.into()) {
        assert!((1_000..=1_000_000_000_000_000).contains(&found.ingress_rate));
    }
}

/// Parses a pod CIDR in the first line and a template in the others.
///
/// # Panics
/// If the result exceeds its limit.
pub fn template(text: &str) {
    let (cidr, template) = text
        .split_once('\n')
        .unwrap_or(("10.0.0.0/8,fd00::/8", text));
    if let Some(made) = template::made(cidr, template) {
        assert!(made.len() <= 2 * (1 << 20) + text.len());
    }
}
