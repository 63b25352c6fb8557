//! The daemon is killed at every step of every verb, at random moments, and with the machine. After a restart, what ran
//! still runs, a retried call succeeds, and in the end nothing is left. With real runc, CNI plugins and busybox, in a
//! separate network namespace. Needs root.

mod left;
mod life;
mod node;
mod pulls;
mod random;
mod stories;

use criscope::runtime::failpoint::Failpoint;

use self::life::{Life, Verb};
use self::node::{Node, Witness};

/// Kills the daemon at each step of a lifecycle, on a separate node, beside a container that must not be affected.
async fn campaign(verbs: &[Verb], steps: &[Failpoint]) {
    let mut node = Node::new().await;
    node.start(None).await;
    let witness = Witness::new(&mut node).await;
    for (number, step) in steps.iter().enumerate() {
        node.restart(Some(step.name())).await;
        let mut life = Life::new(&node, &format!("p{number}"), number % 2 == 0);
        let mut crashed = None;
        for verb in verbs {
            let Err(status) = life.ask(&node, *verb).await else {
                continue;
            };
            assert!(
                crashed.is_none(),
                "{step}: {verb:?} after {crashed:?}: {status:?}"
            );
            node.died(&format!("{step}: {verb:?}: {status:?}")).await;
            crashed = Some(*verb);
            node.start(None).await;
            witness.is_well(&mut node, &format!("{step}")).await;
            if let Err(status) = life.ask(&node, *verb).await {
                panic!("{step}: {verb:?} again: {status:?}");
            }
        }
        assert!(crashed.is_some(), "{step} was never reached");
        left::nothing_but(&node, &witness, step.name()).await;
    }
    witness.end(&node).await;
    left::nothing(&node, "the end").await;
}

const LONG: &[Verb] = &[
    Verb::Run,
    Verb::Create,
    Verb::Start,
    Verb::Exec,
    Verb::StopContainer,
    Verb::RemoveContainer,
    Verb::StopPod,
    Verb::RemovePod,
];

/// The pod is removed with its running container.
const SHORT: &[Verb] = &[Verb::Run, Verb::Create, Verb::Start, Verb::RemovePod];

#[tokio::test(flavor = "multi_thread")]
async fn while_a_pod_is_made() {
    campaign(LONG, &Failpoint::ALL[..9]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_container_runs() {
    campaign(LONG, &Failpoint::ALL[9..18]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_pod_is_taken_away() {
    campaign(LONG, &Failpoint::ALL[18..]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_pod_is_taken_away_that_runs() {
    let from = Failpoint::ALL
        .iter()
        .position(|step| *step == Failpoint::ContainerEnded);
    campaign(SHORT, &Failpoint::ALL[from.expect("a step")..]).await;
}
