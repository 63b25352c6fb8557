//! `[faults]`

use crate::settings::settings;
use crate::settings::value::BooleanValue;

settings! {
    /// Faults that are injected on purpose, to try alerts and upgrades: delays, errors and hangs of calls.
    #[derive(Copy)]
    pub struct FaultSettings in "faults" {
        /// Lets `criscope fault` add faults, over the socket of `admin.socket` only. Each fault ends by itself after an hour
        /// at most.
        enabled: bool = false, BooleanValue;
    }
}
