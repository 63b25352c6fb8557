//! Tests of the whole program from outside: the real binary between a caller and a runtime.

mod canary;
mod cancellation;
mod faults;
mod harness;
mod otlp;
mod streams;
mod transparency;
