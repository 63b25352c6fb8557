//! Statistics of pods and containers. The modules convert cgroups, directories and counters to CRI messages and do not depend on
//! the store.
//!
//! [`criscope_linux::cgroup::usage`] reads the usage of a cgroup; [`task_metrics`] decodes that which a shim of containerd reports,
//! and [`reported`] completes it; [`Rates`] computes a rate from two such readings;
//! [`DiskUsage`] measures writable layers in the background; [`message`] builds the statistics of containers and pods,
//! [`metrics`] the ones that replace cAdvisor's; [`filter`] applies the filters of requests. Files of `/sys` and `/proc` are read
//! on the calling thread, since they are in memory. Only [`disk::count`] can take long.

pub mod disk;
pub mod filter;
pub mod message;
pub mod metrics;
mod network;
pub mod processes;
mod rates;
pub mod reported;
pub mod task_metrics;
mod watch;

pub use criscope_linux::cgroup::usage::now;

pub use self::network::usage as network_usage;
pub use self::rates::Rates;
pub use self::watch::{DiskUsage, Measured};
