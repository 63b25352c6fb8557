//! The daemon is killed at random moments while ten pods run concurrently.

use super::life::{Life, Verb};
use super::node::{Node, Witness};
use super::{LONG, left};
use crate::prelude::*;

/// Fixed, so that failures are reproducible.
const SEED: u64 = 4;

const PODS: usize = 10;
const ROUNDS: u32 = 5;

/// Pseudorandom numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A pod and its progress.
struct Progress {
    life: Life,
    done: usize,
}

/// Continues until the daemon is killed or the lifecycle is complete.
async fn go_on(node: &Node, mut pod: Progress) -> (Progress, Option<Status>) {
    while let Some(verb) = LONG.get(pod.done) {
        if let Err(status) = pod.life.ask(node, *verb).await {
            return (pod, Some(status));
        }
        pod.done += 1;
    }
    (pod, None)
}

#[tokio::test(flavor = "multi_thread")]
async fn at_random_moments() {
    let mut node = Node::new().await;
    node.start(None).await;
    let witness = Witness::new(&mut node).await;
    let mut numbers = Numbers(SEED);
    let mut pods: Vec<_> = (0..PODS)
        .map(|n| {
            let mut life = Life::new(&node, &format!("r{n}"), n % 2 == 0);
            // A distinct host port for each.
            for port in &mut life.pod.port_mappings {
                port.host_port += i32::try_from(n).expect("small");
            }
            Progress { life, done: 0 }
        })
        .collect();
    for round in 0..ROUNDS {
        let running = futures_util::future::join_all(pods.drain(..).map(|pod| go_on(&node, pod)));
        let moment = Duration::from_millis(200 + numbers.below(1500));
        let pid = node.pid();
        let killer = async {
            tokio::time::sleep(moment).await;
            Node::end(pid);
        };
        let (outcomes, ()) = tokio::join!(running, killer);
        pods.extend(outcomes.into_iter().map(|(pod, _)| pod));
        node.restart(None).await;
        witness.is_well(&mut node, &format!("round {round}")).await;
        // Completed lifecycles start over.
        for pod in pods.iter_mut().filter(|pod| pod.done == LONG.len()) {
            pod.done = 0;
        }
    }
    for pod in pods {
        let (mut pod, failed) = go_on(&node, pod).await;
        if let Some(status) = failed {
            let verb = LONG[pod.done];
            // A retry must succeed even if the verb had completed and only its response was lost.
            panic!("{verb:?} of {}: {status:?}", pod.life.sandbox);
        }
        let gone = pod.life.ask(&node, Verb::RemovePod).await;
        gone.expect("removing an absent pod succeeds");
    }
    left::nothing_but(&node, &witness, "after all rounds").await;
    witness.end(&node).await;
    left::nothing(&node, "the end").await;
}
