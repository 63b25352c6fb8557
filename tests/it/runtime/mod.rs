//! The parts of the built-in runtime, each on its own, with real programs.

mod process;
