//! The same load on every path, in rounds: each round has a block for each path, so that changes of the machine's
//! performance affect all of them, and comparisons are made within a round.

use std::time::Instant;

use serde::Serialize;

use crate::args::Plan;
use crate::client::{Client, Prepared, Reading};
use crate::error::{Error, Result};
use crate::load::{many_callers, one_caller};
use crate::paths::{Kind, Route};
use crate::stats::Spread;
use crate::upstream::LONG_LIST;

/// The number of concurrent callers.
pub(crate) const CALLERS: usize = 16;

/// The name of the list that a runtime with 1,000 containers returns.
pub(crate) const THOUSAND: &str = "list of 1,000 containers";

/// Latencies of one caller of one method.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) method: &'static str,
    pub(crate) rows: Vec<LatencyRow>,
}

/// The result of one path. Microseconds; medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct LatencyRow {
    pub(crate) path: Kind,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    /// p50 minus the p50 of the direct path in the same round.
    pub(crate) added: Spread,
}

/// Throughput of 16 callers.
#[derive(Debug, Serialize)]
pub(crate) struct Throughput {
    pub(crate) shape: Shape,
    pub(crate) rows: Vec<ThroughputRow>,
}

/// The result of one path; medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct ThroughputRow {
    pub(crate) path: Kind,
    pub(crate) calls_per_second: f64,
    /// Relative to the direct path in the same round.
    pub(crate) share: Spread,
}

/// How the 16 callers connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// All on one connection, like the kubelet.
    Streams,
    /// Each on its own connection.
    Connections,
}

impl Shape {
    /// The name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Streams => "16 callers, 1 connection",
            Self::Connections => "16 callers, 16 connections",
        }
    }
}

/// Duration of the long list, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct ListRow {
    pub(crate) path: Kind,
    pub(crate) milliseconds: f64,
    /// Relative to the direct path in the same round.
    pub(crate) factor: Spread,
}

/// One caller of `method` on each path.
///
/// # Errors
/// If a call fails.
pub(crate) async fn latency(
    routes: &[Route],
    method: &'static str,
    call: &Prepared,
    plan: &Plan,
) -> Result<Latency> {
    let mut clients = connect(routes).await?;
    let mut rounds = Vec::new();
    for round in 0..plan.latency_rounds {
        let mut blocks = vec![Default::default(); clients.len()];
        for path in order(round, clients.len()) {
            blocks[path] = one_caller(&mut clients[path], call, plan.latency_calls).await?;
        }
        rounds.push(blocks);
    }
    let over_rounds = |value: &dyn Fn(usize) -> f64| Spread::of((0..rounds.len()).map(value));
    let rows = routes.iter().enumerate().map(|(path, route)| LatencyRow {
        path: route.kind,
        p50: over_rounds(&|round| rounds[round][path].p50).median,
        p90: over_rounds(&|round| rounds[round][path].p90).median,
        p99: over_rounds(&|round| rounds[round][path].p99).median,
        added: over_rounds(&|round| rounds[round][path].p50 - rounds[round][0].p50),
    });
    Ok(Latency {
        method,
        rows: rows.collect(),
    })
}

/// 16 callers on each path.
///
/// # Errors
/// If a call fails.
pub(crate) async fn throughput(
    routes: &[Route],
    shape: Shape,
    call: &Prepared,
    plan: &Plan,
) -> Result<Throughput> {
    let mut clients = Vec::new();
    for route in routes {
        clients.push(callers(route, shape).await?);
    }
    let mut rounds = Vec::new();
    for round in 0..plan.throughput_rounds {
        let mut rates = vec![0.0; clients.len()];
        for path in order(round, clients.len()) {
            rates[path] = many_callers(&clients[path], call, plan.throughput_block).await?;
        }
        rounds.push(rates);
    }
    let rows = routes.iter().enumerate().map(|(path, route)| {
        let rates = rounds.iter().map(|rates| rates[path]);
        let shares = rounds.iter().map(|rates| rates[path] / rates[0]);
        ThroughputRow {
            path: route.kind,
            calls_per_second: Spread::of(rates).median,
            share: Spread::of(shares),
        }
    });
    Ok(Throughput {
        shape,
        rows: rows.collect(),
    })
}

/// One caller of the long list on each path.
///
/// # Errors
/// If a call fails, or the reply is shorter than the upstream's.
pub(crate) async fn long_list(
    routes: &[Route],
    call: &Prepared,
    plan: &Plan,
) -> Result<Vec<ListRow>> {
    let mut clients = connect(routes).await?;
    let mut rounds = Vec::new();
    // The first round fills buffers and is not counted.
    for round in 0..=plan.list_rounds {
        let mut times = vec![0.0; clients.len()];
        for path in order(round, clients.len()) {
            let start = Instant::now();
            let length = clients[path].call(call).await?;
            times[path] = start.elapsed().as_secs_f64() * 1e3;
            check_length(routes[path].kind, length)?;
        }
        rounds.push(times);
    }
    let rounds = &rounds[1..];
    let rows = routes.iter().enumerate().map(|(path, route)| ListRow {
        path: route.kind,
        milliseconds: Spread::of(rounds.iter().map(|times| times[path])).median,
        factor: Spread::of(rounds.iter().map(|times| times[path] / times[0])),
    });
    Ok(rows.collect())
}

/// Checks that a reply is the long list.
///
/// # Errors
/// If it is shorter.
pub(crate) fn check_length(path: Kind, length: usize) -> Result<()> {
    if length < LONG_LIST {
        return Err(Error::Setup(format!(
            "{}: a list of {length} bytes arrived, not {LONG_LIST} or more",
            path.name()
        )));
    }
    Ok(())
}

/// 16 clients of one path.
///
/// # Errors
/// If a connection fails.
pub(crate) async fn callers(route: &Route, shape: Shape) -> Result<Vec<Client>> {
    let mut clients = vec![Client::connect(&route.socket, Reading::FAST).await?];
    while clients.len() < CALLERS {
        clients.push(match shape {
            Shape::Streams => clients[0].clone(),
            Shape::Connections => Client::connect(&route.socket, Reading::FAST).await?,
        });
    }
    Ok(clients)
}

async fn connect(routes: &[Route]) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for route in routes {
        clients.push(Client::connect(&route.socket, Reading::FAST).await?);
    }
    Ok(clients)
}

/// The order of a round: each path comes first in turn, and every other lap runs backwards, so that no path always follows
/// the same one.
fn order(round: usize, paths: usize) -> impl Iterator<Item = usize> {
    let backwards = (round / paths) % 2 == 1;
    (0..paths).map(move |place| {
        let place = if backwards { paths - 1 - place } else { place };
        (round + place) % paths
    })
}
