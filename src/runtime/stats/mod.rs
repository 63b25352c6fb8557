//! What pods and containers use. Nothing here knows of sandboxes: cgroups, directories and counters go in, the messages
//! of the CRI come out.
//!
//! [`cgroup::read`] reads what one cgroup uses; [`Rates`] makes a rate of two such readings; [`DiskUsage`] measures
//! writable layers in the background; [`message`] builds the statistics of containers and pods, [`metrics`] the list that
//! stands in for cAdvisor's, [`filter`] says which are asked for. Files of `/sys` and `/proc` are read where the call is
//! made: blocking, but from memory. Only [`disk::usage`] takes time.

pub mod cgroup;
pub mod disk;
pub mod filter;
pub mod message;
pub mod metrics;
mod network;
pub mod processes;
mod rates;
mod watch;

use std::time::{SystemTime, UNIX_EPOCH};

pub use self::network::usage as network_usage;
pub use self::rates::Rates;
pub use self::watch::{DiskUsage, Measured};

/// Nanoseconds since 1970, as the CRI writes times.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
