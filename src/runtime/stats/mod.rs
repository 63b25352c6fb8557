//! What pods and containers use.
