//! `[telemetry.identity]`

use crate::settings::settings;
use crate::settings::value::BoundedNumber;

settings! {
    /// How many objects are remembered to name the pod of a call that carries only an id. The oldest are forgotten
    /// first.
    #[derive(Copy)]
    pub struct IdentityLimits in "telemetry.identity" {
        /// Pod sandboxes.
        sandboxes: usize = 8192, BoundedNumber::between(1, 1 << 20);
        /// Containers.
        containers: usize = 32768, BoundedNumber::between(1, 1 << 20);
    }
}
