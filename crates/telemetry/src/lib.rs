//! Telemetry set-up and sinks: how metrics, log lines and spans leave the process, and how trace context enters and
//! leaves it. What is emitted for a call is decided in `instrument::signals`.
//!
//! Nothing here can fail, delay or block a call: buffers are bounded, queueing never waits, and losses are counted in
//! [`drops`].
//!
//! | module | content |
//! |---|---|
//! | [`metric`] | how a module declares its metrics |
//! | [`labels`] | labels whose values are names in the configuration |
//! | [`registry`], [`family`], [`computed`] | registered metrics; series are resolved once, or computed at scrape time |
//! | [`openmetrics`], [`exemplars`] | the OpenMetrics format, and links from buckets to traces |
//! | [`process`] | metrics of this process, computed at scrape time |
//! | [`job`] | background jobs as spans |
//! | [`logging`] | log lines, their level and their limits |
//! | [`otlp`] | spans to an OpenTelemetry collector |
//! | [`propagation`] | W3C trace context in and out |
//! | [`sampling`] | decides which calls become spans |
//! | [`version`] | the version of the program and its commit |
//! | [`drops`] | counters of exported spans and of losses |

pub mod computed;
pub mod drops;
pub mod exemplars;
pub mod family;
pub mod job;
pub mod labels;
pub mod logging;
pub mod metric;
pub mod openmetrics;
pub mod otlp;
pub mod process;
pub mod propagation;
pub mod registry;
pub mod sampling;
pub mod settings;
pub mod version;

pub use drops::Drops;
pub use job::{BackgroundJob, JobSpan};
pub use registry::Registry;

/// How long tests wait for what must happen: only a hang takes longer, however busy the machine is.
#[cfg(test)]
const TEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);
