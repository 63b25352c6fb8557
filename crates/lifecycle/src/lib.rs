//! Episodes of pods, reconstructed from CRI calls: why was this pod slow to start, or never ready?
//!
//! ```text
//!   instrument::signals --end of a call--> CallSink --+--> recorder   (ring of the last calls, no task)
//!        (request path, never waits)                   |
//!                                                      +--> feed --> aggregator --> episodes --> metrics, summary line, trace
//!                                                    (bounded queue,   |  ^                  journal (survives a restart)
//!                                                     tried)           |  |
//!                              admin, CLI read <---- Stories <---------+  +-- process scanner: CNI plugins and OCI runtimes
//!                                                                             at work; OTLP receiver: the upstream's spans
//! ```
//!
//! Everything right of the feed runs on the side thread. On pages and in help, a story is all episodes of a pod.

pub mod activity;
pub mod aggregator;
mod allocated_pods;
pub mod call_sink;
pub mod capture;
pub mod container_events;
pub mod containerd;
mod diagnosis;
mod episode_call;
mod episode_store;
pub mod episode_subscriber;
pub mod handover;
mod journal;
pub mod kubelet;
mod listed_pods;
pub mod metrics;
pub mod node;
pub mod otlp_receiver;
mod pod_dirs;
pub mod pod_gauges;
mod pods;
pub mod process_scanner;
pub mod rates;
pub mod recorder;
pub mod sessions;
pub mod settings;
mod show;
pub mod stories;
mod summary;
pub mod tables;
#[cfg(any(test, feature = "test-util"))]
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "tests of this crate use the rest")
)]
mod tests;
mod texts;
pub mod timeline;
pub mod trace;
mod transfer_words;
mod usual;
mod waiting_pods;

#[cfg(any(test, feature = "test-util"))]
pub use criscope_pages::examples;
pub use criscope_pages::view;

pub use self::aggregator::Aggregator;
pub use self::call_sink::{AggregatorEvent, CallSink, RuntimeSpan};
pub use self::episode_subscriber::EpisodeSubscriber;
pub use self::stories::Stories;
pub use self::trace::EpisodeTracer;
pub use self::waiting_pods::ActivePods;

/// How long tests wait for what must happen: only a hang takes longer, however busy the machine is.
#[cfg(test)]
const TEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);
