//! Tests of the whole program from outside: the real binary between a caller and a runtime.

mod backends;
mod cancellation;
mod faults;
mod harness;
mod listener;
mod service_manager;
mod streams;
mod transparency;
