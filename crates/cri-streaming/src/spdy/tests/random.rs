//! Pseudorandom input, the same in each run.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::super::{CloseReason, frame, fuzz};
use super::peer::{HeaderDeflater, control, data, ping, syn_stream, two};

/// Runs of each kind.
const ROUNDS: usize = 400;

/// Valid connections as seeds: the files of the corpus, an `exec` as sent by a Go client, and one made here.
fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/spdy");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect(folder)
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 3, "{paths:?}");
    let mut all: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).expect("a seed"))
        .collect();
    all.push(exec());
    all
}

/// The input of an exec client.
fn exec() -> Vec<u8> {
    let mut deflater = HeaderDeflater::new();
    let mut bytes = Vec::new();
    for (i, kind) in ["error", "stdin", "stdout", "stderr", "resize"]
        .iter()
        .enumerate()
    {
        let block = deflater.block(&[("streamtype", kind)]);
        bytes.extend(syn_stream(2 * i as u32 + 1, 0, &block));
    }
    bytes.extend(ping(1));
    bytes.extend(data(3, 0, &[b'x'; 5000]));
    bytes.extend(data(9, 0, b"{\"Width\":80,\"Height\":24}\n"));
    bytes.extend(data(3, frame::FIN, b""));
    bytes.extend(two(frame::RST_STREAM, 5, 5));
    bytes.extend(two(frame::GOAWAY, 0, 0));
    bytes
}

#[test]
fn the_corpus_is_well_formed() {
    for seed in corpus() {
        let end = fuzz(&seed);
        let is_fine = matches!(end.reason, CloseReason::ClientGone | CloseReason::GoAway);
        assert!(is_fine && end.counters.streams >= 2, "{end:?}");
    }
}

#[test]
fn random_bytes() {
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..ROUNDS {
        let mut bytes = vec![0; rng.random_range(0..300)];
        rng.fill(&mut bytes[..]);
        fuzz(&bytes);
    }
}

#[test]
fn random_frames() {
    let mut rng = StdRng::seed_from_u64(2);
    let mut reasons = [0; 2];
    for _ in 0..ROUNDS {
        let mut deflater = HeaderDeflater::new();
        let mut bytes = Vec::new();
        for _ in 0..rng.random_range(1..40) {
            bytes.extend(frame_at_random(&mut rng, &mut deflater));
        }
        let end = fuzz(&bytes);
        reasons[usize::from(matches!(end.reason, CloseReason::Malformed(_)))] += 1;
    }
    // Most are well-formed; otherwise little would be parsed.
    assert!(
        reasons[0] > ROUNDS / 3 && reasons[1] > ROUNDS / 100,
        "{reasons:?}"
    );
}

fn frame_at_random(rng: &mut StdRng, deflater: &mut HeaderDeflater) -> Vec<u8> {
    let id = rng.random_range(1..24);
    let flags = rng.random_range(0..4);
    match rng.random_range(0..100) {
        0..30 => {
            let block = deflater.block(&[("streamtype", "data"), ("n", &id.to_string())]);
            syn_stream(id, flags & rng.random_range(0..4), &block)
        }
        30..70 => data(id, flags & 1, &vec![7; rng.random_range(0..3000)]),
        70..80 => two(frame::RST_STREAM, id, 5),
        80..90 => ping(id),
        90..93 => two(frame::WINDOW_UPDATE, id, 1),
        93..96 => control(rng.random_range(4..6), flags, &[1; 20]),
        96 => control(rng.random_range(0..12), flags, &[1; 9]),
        97 => two(frame::GOAWAY, id, 0),
        _ => {
            let block = deflater.block(&[("a", "b")]);
            let payload = [&id.to_be_bytes(), &block[..]].concat();
            control(frame::HEADERS, flags & 1, &payload)
        }
    }
}

#[test]
fn connections_with_some_changed_bytes() {
    let mut rng = StdRng::seed_from_u64(3);
    for seed in corpus() {
        for _ in 0..ROUNDS / 2 {
            let mut bytes = seed.clone();
            for _ in 0..rng.random_range(1..5) {
                change(&mut rng, &mut bytes);
            }
            fuzz(&bytes);
        }
    }
}

fn change(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..5) {
        0 => bytes[at] = rng.random(),
        1 => bytes[at] ^= 1 << rng.random_range(0..8),
        2 => bytes.truncate(at),
        3 => {
            let end = (at + rng.random_range(0..64)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            let end = (at + rng.random_range(0..64)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = rng.random_range(0..bytes.len());
            bytes.splice(to..to, copy);
        }
    }
}
