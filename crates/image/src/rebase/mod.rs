//! Layers with implied directories.
//!
//! A layer may contain `lib/x` without an entry for `lib`. Unpacked on its own, `lib` is a directory with default owner and
//! mode that hides those of the layers below, or even a link (`lib -> usr/lib`). Most layers have entries for all their
//! directories. Those that do not are copied to match the layers below: files are hard links, so the copy takes hardly any
//! space. Its name is derived from all layers below it, so images with the same base share it.

mod copy;
mod lower;

use std::sync::Arc;

use criscope_linux::free_space::MinFree;

use self::copy::LinkCopy;
use self::lower::LowerLayers;
use super::digest::Digest;
use super::error::{At as _, Error, Result, carried};
use super::store::{ContentStore, Held, NewLayer};

pub(super) use self::lower::{is_opaque, xattrs};

/// Replaces layers with implied directories by matching copies, which leave `min_free` on the disk. Returns the layers to stack,
/// held.
pub(super) fn rebase(store: &Arc<ContentStore>, held: &Held, min_free: MinFree) -> Result<Held> {
    let mut stack: Vec<Digest> = Vec::new();
    let mut chain = String::new();
    let mut guards = Vec::new();
    for id in &held.layers {
        let record = store
            .layer(id)
            .ok_or_else(|| Error::internal(format!("layer {id} has gone")))?;
        chain.push_str(id.as_str());
        if !record.implies() {
            stack.push(id.clone());
            continue;
        }
        let _alone = store.rebasing();
        let implied = store.implied(id)?;
        let below = LowerLayers::open(store, &stack)?;
        if below.fits(&implied).at(store.disk.layer(id))? {
            stack.push(id.clone());
            continue;
        }
        let based = Digest::sha256(format!("rebased {chain}").as_bytes());
        guards.push(store.hold([based.clone()]));
        if store.layer(&based).is_none() {
            make(store, id, &based, &below, &implied, min_free)?;
        }
        stack.push(based);
    }
    Ok(store.hold(stack))
}

/// Creates the copy of a layer.
fn make(
    store: &ContentStore,
    id: &Digest,
    based: &Digest,
    below: &LowerLayers,
    implied: &[String],
    min_free: MinFree,
) -> Result<()> {
    let staging = store.disk.staging()?;
    let source = store.disk.layer(id).join("fs");
    let made = LinkCopy::new(&source, &staging, below, implied, min_free)
        .and_then(LinkCopy::run)
        .map_err(|error| carried(error).unwrap_or_else(|error| Error::io(&source, error)))
        .and_then(|directories| {
            // The files already exist; only directories are new. Its name can be computed, and no pull may claim it: nothing shows it.
            let new = NewLayer::new(0, directories, Vec::new(), store.disk.boot());
            store.add_layer(based, &staging, new)
        });
    store.disk.remove(&staging)?;
    made
}
