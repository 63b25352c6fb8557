//! Telemetry: set-up and sinks. How metrics, log lines and spans leave the process, and how trace context enters and
//! leaves it. What is told about a call is decided elsewhere (`instrument::signals`).
//!
//! Nothing here can fail, delay or block a call: every buffer is bounded, every hand-over is a try, and what is lost
//! is counted in [`drops`].
//!
//! | module | what |
//! |---|---|
//! | [`metric`] | how a module declares its metrics |
//! | [`registry`], [`family`], [`computed`] | metrics made from declarations, their series resolved once or read at scrape time |
//! | [`openmetrics`], [`exemplars`] | the other format of a scrape, and the traces that it leads to |
//! | [`process`] | figures about this process, read at scrape time |
//! | [`logging`] | log lines, their level and their limits |
//! | [`otlp`] | spans to an OpenTelemetry collector |
//! | [`propagation`] | W3C trace context in and out |
//! | [`sampling`] | which calls become spans |
//! | [`drops`] | what was exported and what was lost |

pub mod computed;
pub mod drops;
pub mod exemplars;
pub mod family;
pub mod logging;
pub mod metric;
pub mod openmetrics;
pub mod otlp;
pub mod process;
pub mod propagation;
pub mod registry;
pub mod sampling;
pub mod settings;

pub use drops::Drops;
pub use registry::Registry;
