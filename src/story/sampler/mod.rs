//! What the node's processes do for a call that takes long.

pub mod sightings;

pub use self::sightings::{Sighting, Sightings, Work};
