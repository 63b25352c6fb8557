//! One integration test binary, so that it is linked once: the program from outside, between a caller and a runtime, and
//! the rules of the house.

mod admin;
mod architecture;
mod backends;
mod canary;
mod cancellation;
mod commands;
mod containerd;
mod dashboards;
mod drills;
mod faults;
mod harness;
mod hostile;
mod identity;
mod listener;
mod otlp;
mod pages;
mod prometheus;
mod promql;
mod receiver;
mod recorder;
mod rules;
mod runtime;
mod sampler;
mod service_manager;
mod story;
mod streaming;
mod streams;
mod supply_chain;
mod transparency;
