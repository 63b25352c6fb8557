//! The single integration test binary, which is linked only once: tests of criscope from outside, between callers and
//! runtimes, and of the rules of the repository.

mod admin;
mod architecture;
mod backends;
mod canary;
mod cancellation;
mod capture;
mod commands;
mod configuration;
mod containerd;
mod dashboards;
mod documents;
mod drills;
mod exec_command;
mod faults;
mod fixture;
mod handover;
mod hostile;
mod identity;
mod injected;
mod listener;
mod metrics_tls;
mod node;
mod otlp;
mod pages;
mod prelude;
mod prometheus;
mod promql;
mod receiver;
mod recorder;
mod replay;
mod rules;
mod runtime;
mod sampler;
mod selinux;
mod service_manager;
mod story;
mod streaming;
mod streams;
mod supply_chain;
mod transparency;
mod truth;

use criscope_testkit as harness;

/// The binaries under test.
const CRISCOPE: &str = env!("CARGO_BIN_EXE_criscope");
const SHIM: &str = env!("CARGO_BIN_EXE_criscope-shim");
