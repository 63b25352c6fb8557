//! Many pods at once, and calls in nonsensical order.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

/// The calls of a pod: an ordinary life, with random retries and restarts.
fn life(n: u64, random: &mut StdRng) -> Vec<EpisodeCall> {
    let pod = pod(&format!("p{n}"));
    let from = random.random_range(0..5000);
    let mut calls = Vec::new();
    if n.is_multiple_of(3) {
        calls.push(pod.run(from, 100).late());
    }
    calls.extend(start(&pod, from + 1000));
    if n.is_multiple_of(5) {
        calls.push(pod.create(("app", 1), from + 3000, 20));
        calls.push(pod.start(("app", 1), from + 3100, 20));
    }
    calls.extend(stop(&pod, from + 100_000));
    calls
}

#[test]
fn two_hundred_pods_at_once_never_mix() {
    let mut random = StdRng::seed_from_u64(200);
    let mut store = store();
    for round in 0..5 {
        let mut calls: Vec<_> = (0..200)
            .flat_map(|n| life(round * 200 + n, &mut random))
            .collect();
        // They arrive in the order in which they end; those that end at the same time in any order.
        calls.shuffle(&mut random);
        calls.sort_by_key(|c| (c.ended_at(), c.began));
        let mut ticked = UnixMicros::EPOCH;
        for call in calls {
            if call.ended_at().since(ticked) > Duration::from_secs(1) {
                ticked = call.ended_at();
                store.tick(ticked, &[]);
            }
            store.apply(call);
        }
        store.tick(at(1_000_000), &[]);
        let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for episode in store.episodes() {
            assert!(
                episode
                    .calls
                    .iter()
                    .all(|c| c.pod.as_ref() == Some(&episode.pod))
            );
            assert_eq!(episode.state, EpisodeState::Ok, "{episode:?}");
            let summary = (episode.kind.name(), episode.calls.len(), episode.failures);
            kinds
                .entry(episode.pod.name.to_string())
                .or_default()
                .push(summary);
        }
        // The limit is 512: the last two hundred are complete.
        for n in 0..200_u64 {
            let n = round * 200 + n;
            let late = u32::from(n.is_multiple_of(3));
            let mut wanted = vec![("start", 4 + late as usize, late)];
            if n.is_multiple_of(5) {
                wanted.push(("restart", 2, 0));
            }
            wanted.push(("stop", 2, 0));
            assert_eq!(kinds[&format!("p{n}")], wanted, "p{n}");
        }
        assert!(store.episodes.len() <= store.limits.episodes);
        let in_pods: usize = store.pods.values().map(Vec::len).sum();
        assert_eq!((in_pods, store.open.len()), (store.episodes.len(), 0));
        store.take_closed();
    }
}

/// In any order of any calls, the tables respect their bounds and the phases add up.
#[test]
fn nonsense_stays_within_bounds() {
    let mut random = StdRng::seed_from_u64(9);
    let mut store = store();
    store.limits.episodes = 40;
    store.limits.give_up = Duration::from_secs(60);
    for n in 0..20_000_u64 {
        let pod =
            pod(&format!("p{}", random.random_range(0..30))).attempt(random.random_range(0..3));
        let container = (
            ["app", "side"][random.random_range(0..2)],
            random.random_range(0..4),
        );
        let (began, took) = (n * 50, random.random_range(0..3000));
        let call = match random.random_range(0..8) {
            0 => pod.run(began, took),
            1 => pod.pull("app:1", began, took),
            2 => pod.create(container, began, took),
            3 => pod.start(container, began, took),
            4 => pod.kill(container, began, took),
            5 => pod.stop(began, took),
            6 => pod.sweep(container, began, took),
            _ => pod.remove(began, took),
        };
        let call = match random.random_range(0..5) {
            0 => call.fails(Code::Unknown, "no"),
            1 => call.late(),
            _ => call,
        };
        store.apply(call);
        if n.is_multiple_of(20) {
            store.tick(at(began), &[]);
        }
        store.take_closed();
        assert!(store.episodes.len() <= 40);
    }
    for episode in store.episodes() {
        assert_eq!(
            episode.shares().iter().sum::<Duration>(),
            episode.duration()
        );
        assert!(!episode.calls.is_empty());
    }
    let in_pods: usize = store.pods.values().map(Vec::len).sum();
    assert_eq!(in_pods, store.episodes.len());
}
