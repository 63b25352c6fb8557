//! Fuzz target: parses untrusted input from registries, archives and configuration files.

use std::io::{Read as _, sink};
use std::path::Path;

use super::image_config::ParsedConfig;
use super::manifest::Manifest;
use super::reference::Reference;
use super::{docker_config, import, registry, store, unpack, verify};

/// Passes the input to the parser that its first byte selects; that byte is not part of the parser's input.
///
/// # Panics
///
/// If a reference changes when it is formatted and parsed again, if a path leads out of a layer, or an entry takes too much
/// memory.
pub fn fuzz(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    match kind % 11 {
        0 => {
            if let Ok(name) = Reference::parse(&text) {
                let again = Reference::parse(&name.to_string());
                assert_eq!(again.as_ref().ok(), Some(&name), "{text:?}");
            }
        }
        1 => registry::read_hosts_file(&text, Path::new("/certs")),
        2 => registry::read_challenge(&text),
        3 => {
            let (kind, rest) = text.split_once('\n').unwrap_or(("", &text));
            let _ = Manifest::parse(rest.as_bytes(), kind);
        }
        4 => {
            let _ = ParsedConfig::read(bytes);
        }
        5 => archive(bytes),
        6 => docker_config::fuzz(bytes),
        7 => compressed(bytes),
        8 => import::fuzz(bytes),
        9 => store::fuzz(bytes),
        _ => drop(verify::fuzz(bytes)),
    }
}

/// Limit of a layer's uncompressed bytes.
const MAX_FUZZED_BYTES: u64 = 4 << 20;

/// A compressed layer.
fn compressed(bytes: &[u8]) {
    // Large windows take too much memory for a fuzzer.
    let plain = unpack::decompress(bytes, || {
        Err::<(), _>(std::io::Error::other("a large window"))
    });
    let Ok(plain) = plain else {
        return;
    };
    let mut tar = unpack::TarReader::new(plain.take(MAX_FUZZED_BYTES));
    while let Ok(Some(entry)) = tar.next_entry() {
        assert!(entry.held() <= MAX_HELD, "{} bytes", entry.held());
    }
}

/// Maximum memory of one entry: 1 MiB of headers, and the lists of their parts.
const MAX_HELD: usize = (1 << 20) + (64 << 10);

fn archive(bytes: &[u8]) {
    let mut tar = unpack::TarReader::new(bytes);
    while let Ok(Some(entry)) = tar.next_entry() {
        assert!(entry.held() <= MAX_HELD, "{} bytes", entry.held());
        for path in [&entry.path, &entry.link] {
            if let Ok(parts) = unpack::parts(path) {
                assert!(
                    parts.iter().all(|part| {
                        !matches!(*part, b"" | b"." | b"..") && !part.contains(&b'/')
                    })
                );
            }
        }
        if entry.position.is_multiple_of(1024) {
            let _ = std::io::copy(&mut tar.by_ref().take(entry.size), &mut sink());
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::{fuzz, verify};

    #[test]
    fn messages_of_openpgp_in_the_corpus_are_signed() {
        for seed in ["openpgp", "openpgp-armor", "openpgp-rsa"] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/image");
            let seed = std::fs::read(format!("{folder}/{seed}")).expect(seed);
            assert_eq!(seed[0], 10);
            verify::fuzz(&seed[1..]).expect("a signature by the key");
        }
    }

    #[test]
    fn malformed_seeds_do_not_panic() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/image");
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect(folder)
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        assert!(paths.len() >= 6, "{paths:?}");
        let mut rng = StdRng::seed_from_u64(5);
        for path in paths {
            let seed = std::fs::read(path).expect("a seed");
            fuzz(&seed);
            for _ in 0..200 {
                let mut bytes = seed.clone();
                for _ in 0..rng.random_range(1..4) {
                    let at = rng.random_range(0..bytes.len().max(1));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = rng.random();
                    }
                }
                bytes.truncate(rng.random_range(0..=bytes.len()));
                fuzz(&bytes);
            }
        }
    }
}
