//! The two loads: one caller that waits for each reply, and many concurrent callers.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::{Client, Prepared};
use crate::error::{Error, Result};
use crate::stats::percentile;

/// Calls to warm up before a block is measured.
const WARM_UP: usize = 30;

/// Latencies of one caller in one block, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
}

/// Makes `calls` calls one after the other.
///
/// # Errors
/// If a call fails.
pub(crate) async fn one_caller(
    client: &mut Client,
    call: &Prepared,
    calls: usize,
) -> Result<Block> {
    for _ in 0..WARM_UP {
        client.call(call).await?;
    }
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        client.call(call).await?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(Block {
        p50: percentile(&times, 0.5),
        p90: percentile(&times, 0.9),
        p99: percentile(&times, 0.99),
    })
}

/// Lets each client call as often as possible for `length`. Returns calls per second, in total.
///
/// # Errors
/// If a call fails.
pub(crate) async fn many_callers(
    clients: &[Client],
    call: &Prepared,
    length: Duration,
) -> Result<f64> {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for client in clients {
        let (mut client, call) = (client.clone(), call.clone());
        callers.spawn(async move {
            let mut calls = 0_u32;
            while start.elapsed() < length {
                client.call(&call).await?;
                calls += 1;
            }
            Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(done) = callers.join_next().await {
        let done: Result<u32> = done.map_err(|error| Error::Setup(error.to_string()))?;
        calls += done?;
    }
    Ok(f64::from(calls) / start.elapsed().as_secs_f64())
}
