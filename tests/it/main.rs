//! One integration test binary, so that it is linked once: the program from outside, between a caller and a runtime, and
//! the rules of the house.

mod admin;
mod architecture;
mod backends;
mod canary;
mod cancellation;
mod containerd;
mod faults;
mod harness;
mod hostile;
mod identity;
mod listener;
mod otlp;
mod prometheus;
mod runtime;
mod service_manager;
mod streams;
mod supply_chain;
mod transparency;
