//! Lists of all pods and containers, and of their statistics.

use std::time::Instant;

use serde::Serialize;

use crate::cri::{Cri, Poll};
use crate::error::{Error, Result};
use crate::rounds::ms;
use crate::stats::Spread;

/// Calls of each kind.
const ROUNDS: usize = 15;

/// The duration of each kind, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Lists {
    pub(crate) pods: usize,
    pub(crate) took: Vec<Spread>,
}

/// Calls each list in turn, after a round that is not counted.
///
/// # Errors
/// If a call fails, or lists another number of pods.
pub(super) async fn measure(cri: &mut Cri, pods: usize) -> Result<Lists> {
    let mut took = vec![Vec::new(); Poll::LISTS.len()];
    for round in 0..=ROUNDS {
        for (poll, took) in Poll::LISTS.into_iter().zip(&mut took) {
            let begin = Instant::now();
            let found = cri.poll(poll).await?;
            if found != pods {
                let name = poll.name();
                return Err(Error::Setup(format!("{name} has {found} of {pods}")));
            }
            if round > 0 {
                took.push(ms(begin.elapsed()));
            }
        }
    }
    Ok(Lists {
        pods,
        took: took.into_iter().map(Spread::of).collect(),
    })
}
