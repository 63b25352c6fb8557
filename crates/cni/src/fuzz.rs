//! Any bytes as what plugins and administrators write, for fuzzers.

use std::path::Path;

use super::cache::Entry;
use super::capabilities::Bandwidth;
use super::conf::Network;
use super::result::{CniResult, Preference};
use super::template;
use super::version::Version;

/// Reads a configuration of one plugin, and a list of them.
///
/// # Panics
/// If a configuration that was read cannot be read again.
pub fn configuration(bytes: &[u8]) {
    for name in ["/fuzz/none.d/a.conf", "/fuzz/none.d/a.conflist"] {
        if let Ok(network) = Network::parse(Path::new(name), bytes) {
            assert!(Network::from_list(Path::new(name), network.list).is_ok());
        }
    }
}

/// Reads what a plugin returned from an ADD.
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

/// Reads an entry of the cache.
pub fn cached(bytes: &[u8]) {
    let _ = serde_json::from_slice::<Entry>(bytes);
}

/// Reads an annotation of a pod.
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

/// Reads a pod CIDR in the first line and a template in the others.
///
/// # Panics
/// If the result is larger than the bound.
pub fn template(text: &str) {
    let (cidr, template) = text
        .split_once('\n')
        .unwrap_or(("10.0.0.0/8,fd00::/8", text));
    if let Some(made) = template::made(cidr, template) {
        assert!(made.len() <= 2 * (1 << 20) + text.len());
    }
}
