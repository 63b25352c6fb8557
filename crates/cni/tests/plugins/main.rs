//! The CNI verbs, with plugins that misbehave on command and with real ones.

mod damaged;
mod fake;
mod misbehaviour;
mod real;
mod support;
mod verbs;
