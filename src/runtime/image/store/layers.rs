//! Unpacked layers: what is known of each, and who needs it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::disk::{Disk, names, sync_parent};
use crate::runtime::image::digest::Digest;
use crate::runtime::image::error::{At as _, Error, Result};

/// `layer.json`: written before the layer gets its name, so that a layer with a name has one.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::runtime::image) struct LayerRecord {
    /// Bytes on the disk, about.
    pub(in crate::runtime::image) bytes: u64,
    /// Inodes on the disk, about.
    pub(in crate::runtime::image) inodes: u64,
    /// See `Unpacked`.
    #[serde(default)]
    pub(in crate::runtime::image) implied: Vec<String>,
    /// In which life of the machine it was unpacked. What was not synced in an earlier one cannot be trusted: its name
    /// may have reached the disk without its content.
    boot: String,
}

/// A layer in the index.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) record: LayerRecord,
    pub(super) synced: bool,
}

/// The file that says that a layer is safe from a power failure.
const SYNCED: &str = "synced";
const RECORD: &str = "layer.json";

impl LayerRecord {
    pub(in crate::runtime::image) fn new(bytes: u64, inodes: u64, implied: Vec<String>) -> Self {
        Self {
            bytes,
            inodes,
            implied,
            boot: boot(),
        }
    }

    /// Puts it beside an unpacked layer that has no name yet.
    pub(in crate::runtime::image) fn write(&self, staging: &Path) -> Result<()> {
        let path = staging.join(RECORD);
        let bytes = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        fs::write(&path, bytes).at(&path)
    }
}

/// Why a folder is not used as a layer.
pub(super) enum Fault {
    /// Not now: containers may be using it, so it stays.
    Unreadable(String),
    /// It cannot be trusted.
    Distrusted(String),
}

/// All layers with a name. What cannot be used is given to `fault`, with the reason.
pub(super) fn load(
    disk: &Disk,
    mut fault: impl FnMut(String, Fault),
) -> Result<HashMap<Digest, Layer>> {
    let boot = boot();
    let mut layers = HashMap::new();
    for name in names(&disk.layers())? {
        let Ok(id) = Digest::from_file_name(&name) else {
            let why = "not the name of a layer".to_owned();
            fault(name, Fault::Distrusted(why));
            continue;
        };
        match read(&disk.layer(&id), &boot) {
            Ok(layer) => drop(layers.insert(id, layer)),
            Err(why) => fault(name, why),
        }
    }
    Ok(layers)
}

fn read(dir: &Path, boot: &str) -> std::result::Result<Layer, Fault> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Fault::Distrusted(error.to_string())
        }
        _ => Fault::Unreadable(error.to_string()),
    };
    let distrusted = |why: &str| Err(Fault::Distrusted(why.to_owned()));
    let bytes = fs::read(dir.join(RECORD)).map_err(unreadable)?;
    let record: LayerRecord =
        serde_json::from_slice(&bytes).map_err(|e| Fault::Distrusted(e.to_string()))?;
    let synced = dir.join(SYNCED).try_exists().map_err(unreadable)?;
    if !synced && record.boot != boot {
        return distrusted("the machine stopped before it was safely on disk");
    }
    if !fs::metadata(dir.join("fs")).map_err(unreadable)?.is_dir() {
        return distrusted("its folder is missing");
    }
    Ok(Layer { record, synced })
}

/// Says of a layer that it is on disk; only after a sync.
pub(super) fn mark_synced(dir: &Path) -> Result<()> {
    let path = dir.join(SYNCED);
    File::create(&path).at(&path)?;
    sync_parent(&path)
}

/// Gives an unpacked layer its name. One that is there already is as good.
pub(super) fn place(staging: &Path, dir: &Path) -> Result<()> {
    match fs::rename(staging, dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) => Err(Error::io(dir, error)),
    }
}

/// This life of the machine.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(
        // Then nothing that is not synced is trusted.
        |_| format!("unknown-{}", std::process::id()),
        |id| id.trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;
    use crate::runtime::image::ImagesConfig;

    /// Containers may run on it.
    #[test]
    fn a_layer_that_cannot_be_read_now_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let [kept, gone] = [b"kept", b"gone"].map(|text| Digest::of(text));
        let layer = |id: &Digest| dir.path().join("layers").join(id.file_name());
        fs::create_dir_all(layer(&kept).join(RECORD)).expect("in place of a file");
        fs::create_dir_all(layer(&gone)).expect("a folder");
        fs::write(layer(&gone).join(RECORD), "{").expect("damaged");
        let (_store, problems) = Store::open(&ImagesConfig::new(dir.path())).expect("a store");
        assert_eq!(problems.len(), 2);
        assert!(layer(&kept).exists() && !layer(&gone).exists());
    }
}
