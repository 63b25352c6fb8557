//! What pods and containers use. Nothing here knows of sandboxes: cgroups, directories and counters go in, the messages
//! of the CRI come out.
//!
//! [`criscope_linux::cgroup::usage`] reads what one cgroup uses; [`Rates`] makes a rate of two such readings; [`DiskUsage`] measures
//! writable layers in the background; [`message`] builds the statistics of containers and pods, [`metrics`] the list that
//! stands in for cAdvisor's, [`filter`] says which are asked for. Files of `/sys` and `/proc` are read where the call is
//! made: blocking, but from memory. Only [`disk::usage`] takes time.

pub mod disk;
pub mod filter;
pub mod message;
pub mod metrics;
mod network;
pub mod processes;
mod rates;
mod watch;

pub use criscope_linux::cgroup::usage::now;

pub use self::network::usage as network_usage;
pub use self::rates::Rates;
pub use self::watch::{DiskUsage, Measured};
