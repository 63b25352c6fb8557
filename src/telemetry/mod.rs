//! placeholder
pub mod propagation;
