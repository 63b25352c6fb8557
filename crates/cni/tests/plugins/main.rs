//! The verbs of CNI: with plugins that misbehave on command, and with the real ones.

mod fake;
mod misbehaviour;
mod real;
mod support;
mod verbs;
