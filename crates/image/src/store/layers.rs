//! Records of unpacked layers.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::claims::{BlobProof, KeyProof, LayerClaim};
use super::disk::{Disk, names};
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};

/// The size of a layer on the disk, approximately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerUsage {
    /// The name in the store.
    pub id: Digest,
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// `layer.json`, which is written before the layer gets its final name. `I` are the paths of the implied directories, or in memory whether
/// there are any.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LayerFile<I> {
    /// Approximate bytes on disk.
    pub(crate) bytes: u64,
    /// Approximate inodes on disk.
    pub(super) inodes: u64,
    /// See `UnpackSummary::implied` of `unpack`. The first version had none.
    #[serde(default)]
    implied: I,
    /// The boot ID when it was unpacked. A layer of an earlier boot that was not synced cannot be trusted: its name may
    /// have reached the disk before its content.
    boot: String,
    /// The key that it was decrypted with most recently; see [`NewLayer::shown_by`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) proof: Option<KeyProof>,
    /// The blobs that it was unpacked from, the most recent last; see [`NewLayer::shown_by`]. None in records of older versions, whose
    /// layers are fetched once more when they are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) blobs: Vec<BlobProof>,
}

/// A layer that was unpacked.
pub(crate) type NewLayer = LayerFile<Vec<String>>;

/// A layer in the index.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) file: LayerFile<HasItems>,
    pub(super) synced: bool,
}

impl Layer {
    /// Returns whether it has implied directories.
    pub(crate) fn implies(&self) -> bool {
        self.file.implied.0
    }

    /// Returns whether its content came encrypted only.
    pub(crate) fn came_encrypted(&self) -> bool {
        self.file.proof.is_some() && self.file.blobs.is_empty()
    }
}

/// The file that marks a layer as synced to disk.
const SYNCED: &str = "synced";
const RECORD: &str = "layer.json";

/// Whether a list has items, which are not kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct HasItems(bool);

impl<'de> Deserialize<'de> for HasItems {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = HasItems;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> std::result::Result<HasItems, A::Error> {
                let mut any = false;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    any = true;
                }
                Ok(HasItems(any))
            }
        }
        deserializer.deserialize_seq(Any)
    }
}

impl NewLayer {
    pub(crate) fn new(bytes: u64, inodes: u64, implied: Vec<String>, boot: &str) -> Self {
        Self {
            bytes,
            inodes,
            implied,
            boot: boot.to_owned(),
            proof: None,
            blobs: Vec::new(),
        }
    }

    /// Records what a pull showed that brought its content. Only pulls that show the same may use the layer as it is; others must
    /// bring the content themselves: a configuration can name any layer, and a manifest can wrap any key.
    pub(crate) fn shown_by(mut self, claim: LayerClaim) -> Self {
        match claim {
            LayerClaim::Blob(proof) => self.blobs = vec![proof],
            LayerClaim::Key(proof) => self.proof = Some(proof),
        }
        self
    }

    /// The entry in the index, before it is synced to disk.
    pub(super) fn unsynced(&self) -> Layer {
        let file = LayerFile {
            bytes: self.bytes,
            inodes: self.inodes,
            implied: HasItems(!self.implied.is_empty()),
            boot: self.boot.clone(),
            proof: self.proof,
            blobs: self.blobs.clone(),
        };
        Layer {
            file,
            synced: false,
        }
    }

    /// Writes `layer.json` next to the unpacked layer.
    pub(crate) fn write(&self, staging: &Path) -> Result<()> {
        let path = staging.join(RECORD);
        fs::write(&path, self.bytes()?).at(&path)
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))
    }
}

/// Why a directory is not used as a layer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The layer may become readable, and containers may use it, so it is kept.
    Unreadable(String),
    /// The layer may be incomplete.
    Distrusted(String),
}

/// Loads the records of all layers. Calls `fault` for the ones that cannot be used.
pub(super) fn load(
    disk: &Disk,
    mut fault: impl FnMut(String, Fault),
) -> Result<HashMap<Digest, Layer>> {
    let mut layers = HashMap::new();
    for name in names(&disk.layers())? {
        let Ok(id) = Digest::from_file_name(&name) else {
            let why = "not the name of a layer".to_owned();
            fault(name, Fault::Distrusted(why));
            continue;
        };
        match read(&disk.layer(&id), disk.boot()) {
            Ok(layer) => drop(layers.insert(id, layer)),
            Err(why) => fault(name, why),
        }
    }
    Ok(layers)
}

/// A missing file makes a layer distrusted; other errors may be temporary.
fn file_fault(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Fault::Distrusted(error.to_string())
        }
        _ => Fault::Unreadable(error.to_string()),
    }
}

fn read(dir: &Path, boot: &str) -> std::result::Result<Layer, Fault> {
    let file = File::open(dir.join(RECORD)).map_err(|e| file_fault(&e))?;
    let file: serde_json::Result<LayerFile<_>> = serde_json::from_reader(BufReader::new(file));
    let file = file.map_err(|error| {
        if error.is_io() {
            Fault::Unreadable(error.to_string())
        } else {
            Fault::Distrusted(error.to_string())
        }
    })?;
    let synced = dir.join(SYNCED).try_exists();
    let synced = synced.map_err(|e| file_fault(&e))?;
    if !synced && file.boot != boot {
        let why = "the machine stopped before it was safely on disk";
        return Err(Fault::Distrusted(why.to_owned()));
    }
    let root = fs::metadata(dir.join("fs")).map_err(|e| file_fault(&e))?;
    if !root.is_dir() {
        return Err(Fault::Distrusted("its folder is missing".to_owned()));
    }
    Ok(Layer { file, synced })
}

/// Parses `layer.json`, for the fuzzer.
///
/// # Panics
///
/// If the two forms of [`LayerFile`] disagree.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    let short = serde_json::from_slice::<LayerFile<HasItems>>(bytes);
    let whole = serde_json::from_slice::<NewLayer>(bytes);
    if let (Ok(short), Ok(whole)) = (short, whole) {
        assert_eq!(short.implied.0, !whole.implied.is_empty());
    }
}

/// Replaces the record of a layer that is in place.
pub(super) fn rewrite(disk: &Disk, dir: &Path, new: &NewLayer) -> Result<()> {
    disk.write(&dir.join(RECORD), &new.bytes()?)
}

/// Reads the implied directories of a layer.
pub(super) fn implied(dir: &Path) -> Result<Vec<String>> {
    let path = dir.join(RECORD);
    let file = File::open(&path).at(&path)?;
    let whole: NewLayer = serde_json::from_reader(BufReader::new(file))
        .map_err(|e| Error::invalid(path.display().to_string(), e.to_string()))?;
    Ok(whole.implied)
}

/// Marks a layer as synced, after a sync. The mark itself needs another one.
pub(super) fn mark_synced(dir: &Path) -> Result<()> {
    let path = dir.join(SYNCED);
    File::create(&path).at(&path)?;
    Ok(())
}

/// Renames an unpacked layer to its final name. An existing one is kept, because it has the same content.
pub(super) fn place(staging: &Path, dir: &Path) -> Result<()> {
    match fs::rename(staging, dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) => Err(Error::io(dir, error)),
    }
}

/// The boot ID of the kernel.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(
        // A unique ID, so that no layer without `synced` is trusted.
        |_| format!("unknown-{}", std::process::id()),
        |id| id.trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ImageStoreConfig;
    use crate::store::ContentStore;

    #[test]
    fn implied_paths_are_kept_on_disk_only() {
        let dir = tempfile::tempdir().expect("directory");
        fs::create_dir(dir.path().join("fs")).expect("directory");
        for paths in [vec![], vec!["a".to_owned(), "a/b".to_owned()]] {
            let new = NewLayer::new(7, 3, paths.clone(), &boot());
            new.write(dir.path()).expect("write");
            let layer = read(dir.path(), &boot()).expect("read");
            // `HasItems` is `Copy`, so it cannot contain the paths.
            let kept = [layer.file.implied; 2];
            assert_eq!(kept, [HasItems(!paths.is_empty()); 2]);
            assert_eq!(layer.file.bytes, 7);
            assert_eq!(implied(dir.path()).expect("read"), paths);
        }
        // The first version had no `implied`.
        let old = format!(r#"{{"bytes": 1, "inodes": 2, "boot": "{}"}}"#, boot());
        fs::write(dir.path().join(RECORD), old).expect("write");
        assert!(!read(dir.path(), &boot()).expect("read").implies());
    }

    /// Containers may use it.
    #[test]
    fn an_unreadable_layer_is_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let [kept, gone] = [b"kept", b"gone"].map(|text| Digest::sha256(text));
        let layer = |id: &Digest| dir.path().join("layers").join(id.file_name());
        fs::create_dir_all(layer(&kept).join(RECORD)).expect("in place of a file");
        fs::create_dir_all(layer(&gone)).expect("directory");
        fs::write(layer(&gone).join(RECORD), "{").expect("damaged");
        let (_store, problems) =
            ContentStore::open(&ImageStoreConfig::new(dir.path())).expect("a store");
        assert_eq!(problems.len(), 2);
        assert!(layer(&kept).exists() && !layer(&gone).exists());
    }
}
