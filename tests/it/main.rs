//! Tests of the whole program from outside: the real binary between a caller and a runtime.

mod admin;
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
mod service_manager;
mod streams;
mod transparency;
