//! The content store: records, layers, manifests and configurations on disk, and their index in memory. All functions may
//! block, and are called on blocking threads.
//!
//! Three locks: `writing` serialises changes of records, `moving` serialises renames of layers, and `index` is held only
//! briefly, so that queries never wait for a disk.

mod annotations;
mod claims;
mod content;
mod disk;
mod garbage;
mod index;
mod known;
mod layers;
mod origin;
mod pending;
mod placing;
mod record;
mod settle;

pub(super) use self::claims::LayerClaim;
pub use self::content::Problem;
pub(super) use self::content::{ContentStore, Held, NewImage};
pub(super) use self::disk::Disk;
pub use self::garbage::Collected;
pub(super) use self::index::{Resolved, is_part_of_id, whole_id};
pub use self::layers::LayerUsage;
pub(super) use self::layers::NewLayer;
pub(super) use self::origin::Origin;
pub(super) use self::record::Record;
pub use self::record::VERSION as RECORD_VERSION;

/// Parses records of the store, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    let _ = Record::read(bytes, &super::digest::Digest::sha256(b""));
    layers::fuzz(bytes);
}
