//! Tests of the whole program from outside: the real binary between a caller and a runtime.

mod admin;
mod backends;
mod cancellation;
mod faults;
mod harness;
mod hostile;
mod identity;
mod listener;
mod service_manager;
mod streams;
mod transparency;
