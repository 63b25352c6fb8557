//! Any bytes as what plugins and administrators write, for the fuzzer.

use std::path::Path;

use super::cache::Entry;
use super::capabilities::Bandwidth;
use super::conf::Network;
use super::result::{CniResult, Preference};
use super::version::Version;

/// As a configuration of one plugin, and as a list of them.
pub(in crate::runtime) fn configuration(bytes: &[u8]) {
    for name in ["/fuzz/none.d/a.conf", "/fuzz/none.d/a.conflist"] {
        if let Ok(network) = Network::parse(Path::new(name), bytes) {
            // What was read once is read again.
            assert!(Network::from_list(Path::new(name), network.list).is_ok());
        }
    }
}

/// As what a plugin answers to an ADD.
pub(in crate::runtime) fn result(bytes: &[u8]) {
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

/// As an entry of the cache.
pub(in crate::runtime) fn cached(bytes: &[u8]) {
    let _ = serde_json::from_slice::<Entry>(bytes);
}

/// As an annotation of a pod.
pub(in crate::runtime) fn bandwidth(text: &str) {
    let annotations = [(
        "kubernetes.io/ingress-bandwidth".to_owned(),
        text.to_owned(),
    )];
    if let Ok(Some(found)) = Bandwidth::from_annotations(&annotations.into()) {
        assert!((1_000..=1_000_000_000_000_000).contains(&found.ingress_rate));
    }
}
