//! Fuzz target: parses untrusted input from CNI plugins, device vendors, images, the kubelet, the kernel and shims of containerd.

use std::path::Path;

use criscope_cni::fuzz as cni;
use criscope_linux::cgroup::{self, Hierarchies};
use criscope_linux::rootfs::mounts_in_table;

use super::oci;
use super::stats::task_metrics;

/// The number of parsers.
const KINDS: u8 = 13;

/// Passes the input to the parser that its first byte selects; that byte is not part of the parser's input.
///
/// # Panics
///
/// If the parsed form takes much more memory than the input.
pub fn fuzz(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    match kind % KINDS {
        0 => cni::configuration(bytes),
        1 => cni::result(bytes),
        2 => cni::cached(bytes),
        3 => oci::spec::cdi::fuzz(&text, false),
        4 => oci::spec::cdi::fuzz(&text, true),
        5 => oci::spec::fuzz_seccomp(&text),
        6 => oci::spec::fuzz_users(bytes),
        7 => {
            let _ = Hierarchies::parse(bytes);
            let found = mounts_in_table(bytes, Path::new("/"));
            let held = found.iter().map(|path| path.as_os_str().len());
            assert!(held.sum::<usize>() <= bytes.len());
        }
        8 => cgroup::usage::fuzz(&text),
        9 => cni::template(&text),
        10 => cni::bandwidth(&text),
        11 => oci::spec::hooks::fuzz(&text),
        _ => task_metrics::fuzz(bytes),
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::{KINDS, fuzz};

    #[test]
    fn untrusted_input_is_parsed_or_rejected() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/node");
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect(folder)
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        let mut kinds = std::collections::BTreeSet::new();
        let mut rng = StdRng::seed_from_u64(7);
        for path in paths {
            let seed = std::fs::read(path).expect("a seed");
            kinds.extend(seed.first().map(|kind| kind % KINDS));
            fuzz(&seed);
            for _ in 0..200 {
                let mut bytes = seed.clone();
                for _ in 0..rng.random_range(1..4) {
                    let at = rng.random_range(1..bytes.len().max(2));
                    match (rng.random_range(0..4), bytes.get_mut(at)) {
                        (0, _) => bytes.extend_from_within(at.min(seed.len()).min(bytes.len())..),
                        (_, Some(byte)) => *byte = rng.random(),
                        _ => {}
                    }
                    bytes.truncate(1 << 16);
                }
                bytes.truncate(rng.random_range(1..=bytes.len()));
                fuzz(&bytes);
            }
        }
        assert_eq!(kinds.len(), usize::from(KINDS), "a seed for every kind");
    }
}
