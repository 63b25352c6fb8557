//! The parts of the built-in runtime, each on its own.

mod image;
