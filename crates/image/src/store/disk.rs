//! The layout of the store on disk, and writes that are either complete or undone after a crash.
//!
//! ```text
//! ROOT/lock                  locked by the process that uses the store
//! ROOT/images/ID.json        a record per image
//! ROOT/pending/BOOT/ID.json  records of images that are not synced yet, of this boot of the machine
//! ROOT/content/DIGEST        manifests and configurations
//! ROOT/layers/DIGEST/fs      an unpacked layer, by its diff ID; next to it layer.json, and `synced` once it is on disk
//! ROOT/partial/DIGEST        an incomplete blob
//! ROOT/tmp/                  files that are being written or removed; emptied at every start
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use criscope_linux::free_space::MinFree;
use criscope_linux::rootfs::{self, remove_tree};
use rustix::fs::{FlockOperation, flock, syncfs};
use rustix::io::Errno;

use crate::digest::Digest;
use crate::error::{At as _, Error, Result, check_space};
use crate::files::if_present;

/// The directories of a store, locked for this process.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    /// The boot ID of the kernel.
    boot: String,
    _lock: File,
    next: AtomicU64,
}

impl Disk {
    pub(super) fn open(root: &Path, boot: String) -> Result<Self> {
        make_parents(root)?;
        let pending = format!("pending/{boot}");
        for dir in [
            "", "images", &pending, "content", "layers", "partial", "tmp",
        ] {
            let dir = root.join(dir);
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&dir).at(&dir)?;
        }
        let path = root.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .at(&path)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let path = root.to_owned();
                return Err(Error::Locked { path });
            }
            Err(error) => return Err(Error::io(path, error)),
        }
        Ok(Self {
            root: root.to_owned(),
            boot,
            _lock: lock,
            next: AtomicU64::new(0),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(super) fn content_dir(&self) -> PathBuf {
        self.root.join("content")
    }

    pub(super) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(super) fn partials(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub(super) fn record(&self, id: &Digest) -> PathBuf {
        self.images().join(format!("{}.json", id.file_name()))
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// A path relative to the root, to be shown.
    pub(super) fn relative(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        path.display().to_string()
    }

    pub(super) fn pending_dir(&self) -> PathBuf {
        self.root.join("pending").join(&self.boot)
    }

    pub(super) fn pending(&self, id: &Digest) -> PathBuf {
        self.pending_dir().join(format!("{}.json", id.file_name()))
    }

    pub(super) fn content(&self, digest: &Digest) -> PathBuf {
        self.content_dir().join(digest.file_name())
    }

    pub(crate) fn layer(&self, id: &Digest) -> PathBuf {
        self.layers().join(id.file_name())
    }

    /// Path of an incomplete blob, with both digests, because an image can claim that a blob is another layer.
    pub(crate) fn partial(&self, blob: &Digest, layer: &Digest) -> PathBuf {
        let name = format!("{}.{}", blob.file_name(), &layer.hex()[..16]);
        self.partials().join(name)
    }

    /// Returns an unused path in `tmp`.
    pub(crate) fn temporary(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.root.join("tmp").join(number.to_string())
    }

    /// Creates a new directory in `tmp`.
    pub(crate) fn staging(&self) -> Result<PathBuf> {
        let path = self.temporary();
        DirBuilder::new().mode(0o700).create(&path).at(&path)?;
        Ok(path)
    }

    /// Replaces a file atomically, even across power failures.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.replace(path, bytes, File::sync_all)?;
        sync_parent(path)
    }

    /// Replaces a file atomically, except across power failures.
    pub(super) fn write_unsynced(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.replace(path, bytes, |_| Ok(()))
    }

    fn replace(
        &self,
        path: &Path,
        bytes: &[u8],
        sync: impl Fn(&File) -> io::Result<()>,
    ) -> Result<()> {
        let temporary = self.temporary();
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        let file = options.open(&temporary).at(&temporary)?;
        let written = (&file).write_all(bytes).and_then(|()| sync(&file));
        let written = written.at(&temporary);
        let written = written.and_then(|()| fs::rename(&temporary, path).at(path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Checks that enough space stays free after this many further bytes.
    pub(crate) fn check_space(&self, min_free: MinFree, planned: u64) -> Result<()> {
        let root = File::open(&self.root).at(&self.root)?;
        check_space(min_free, root, &self.root, planned)
    }

    /// The root, to be synced while the store may be closed.
    pub(super) fn open_root(&self) -> Result<Root> {
        let path = self.root.clone();
        let file = File::open(&path).at(&path)?;
        Ok(Root { path, file })
    }

    /// Moves a file or directory to `tmp`, to be removed later. `None` if it does not exist.
    pub(crate) fn discard(&self, path: &Path) -> Result<Option<PathBuf>> {
        let aside = self.temporary();
        let renamed = if_present(fs::rename(path, &aside)).at(path)?;
        Ok(renamed.map(|()| aside))
    }

    /// Removes a file or directory in `tmp`. A layer may be nested deeper than the longest path, and have more directories
    /// than fit into memory.
    pub(crate) fn remove(&self, victim: &Path) -> Result<()> {
        let removed = match fs::symlink_metadata(victim) {
            Ok(metadata) if metadata.is_dir() => {
                return remove_tree(victim).map_err(|error| match error {
                    rootfs::Error::Io { source, .. } => Error::io(victim, source),
                    other => Error::internal(other.to_string()),
                });
            }
            Ok(_) => fs::remove_file(victim),
            Err(error) => Err(error),
        };
        if_present(removed).at(victim).map(drop)
    }

    /// Removes what an earlier process left in `tmp`, and pending records of an earlier boot.
    pub(super) fn clean(&self) -> Result<()> {
        let tmp = self.root.join("tmp");
        // The names have the same form as new ones, which must not collide.
        let mut victims = Vec::new();
        for entry in fs::read_dir(&tmp).at(&tmp)? {
            let path = entry.at(&tmp)?.path();
            let number = path
                .file_name()
                .and_then(|name| name.to_str()?.parse::<u64>().ok());
            self.next
                .fetch_max(number.map_or(0, |n| n.saturating_add(1)), Ordering::Relaxed);
            victims.push(path);
        }
        let pending = self.root.join("pending");
        for boot in names(&pending)? {
            if boot != self.boot {
                victims.extend(self.discard(&pending.join(boot))?);
            }
        }
        victims
            .into_iter()
            .try_for_each(|victim| self.remove(&victim))
    }
}

/// The open root of a store.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    file: File,
}

impl Root {
    /// Syncs its file system.
    pub(super) fn sync(&self) -> Result<()> {
        syncfs(&self.file).at(&self.path)
    }
}

/// Creates the missing parents of a store. Unlike the store they can be traversed by every user, regardless of the umask: root
/// file systems of containers with user namespaces may be kept next to it.
fn make_parents(root: &Path) -> Result<()> {
    let parents = root.ancestors().skip(1);
    // The last ancestor of a relative path is empty.
    let missing: Vec<_> = parents
        .take_while(|dir| !dir.as_os_str().is_empty() && matches!(dir.try_exists(), Ok(false)))
        .collect();
    for dir in missing.into_iter().rev() {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made.at(dir)?;
                fs::set_permissions(dir, fs::Permissions::from_mode(0o711)).at(dir)?;
            }
        }
    }
    Ok(())
}

/// Syncs the parent directory of a new or renamed file.
pub(super) fn sync_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), sync_dir)
}

/// Syncs a directory.
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    let dir = File::open(path).at(path)?;
    dir.sync_all().at(path)
}

/// The names in a directory.
pub(super) fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).at(dir)? {
        // The store writes no names that are not UTF-8; others are ignored.
        names.extend(entry.at(dir)?.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a store that was just closed. A process started by another test holds the descriptor of the lock until its
    /// `exec`.
    fn reopen(root: &Path) -> Disk {
        loop {
            match Disk::open(root, "b".to_owned()) {
                Err(Error::Locked { .. }) => {
                    std::thread::sleep(std::time::Duration::from_millis(1))
                }
                opened => return opened.expect("a store"),
            }
        }
    }

    #[test]
    fn only_one_process_can_open_a_store() {
        let dir = tempfile::tempdir().expect("directory");
        let first = Disk::open(dir.path(), "b".to_owned()).expect("the first");
        let second = Disk::open(dir.path(), "b".to_owned());
        assert!(matches!(second, Err(Error::Locked { .. })));
        drop(first);
        reopen(dir.path());
    }

    #[test]
    fn only_the_store_itself_is_private() {
        let dir = tempfile::tempdir().expect("directory");
        let mode = |name: &str| {
            let found = fs::metadata(dir.path().join(name)).expect("a directory");
            found.permissions().mode() & 0o7777
        };
        Disk::open(&dir.path().join("new/root/images"), "b".to_owned()).expect("a store");
        let made = ["new", "new/root", "new/root/images", "new/root/images/tmp"];
        assert_eq!(made.map(mode), [0o711, 0o711, 0o700, 0o700]);
        // The mode of a parent that exists was chosen by the administrator.
        fs::set_permissions(dir.path().join("new"), fs::Permissions::from_mode(0o750))
            .expect("mode");
        Disk::open(&dir.path().join("new/other"), "b".to_owned()).expect("a store");
        assert_eq!(mode("new"), 0o750);
    }

    #[test]
    fn deep_directories_are_removed_without_following_links() {
        let dir = tempfile::tempdir().expect("directory");
        let disk = Disk::open(&dir.path().join("store"), "b".to_owned()).expect("a store");
        let outside = dir.path().join("outside");
        fs::write(&outside, "stays").expect("write");
        let staging = disk.staging().expect("staging");
        std::os::unix::fs::symlink(dir.path(), staging.join("link")).expect("link");
        let mut deep = staging;
        for _ in 0..1500 {
            // In short steps, as an archive with links could.
            deep = deep.join("d");
            if deep.as_os_str().len() > 3000 {
                break;
            }
            fs::create_dir(&deep).expect("directory");
        }
        fs::write(deep.parent().expect("parent").join("f"), "x").expect("write");
        drop(disk);
        let disk = reopen(&dir.path().join("store"));
        disk.clean().expect("clean");
        let left = fs::read_dir(disk.root().join("tmp")).expect("tmp").count();
        assert_eq!(left, 0);
        assert_eq!(fs::read_to_string(outside).expect("outside"), "stays");
    }

    #[test]
    fn files_are_replaced_atomically() {
        let dir = tempfile::tempdir().expect("directory");
        let disk = Disk::open(dir.path(), "b".to_owned()).expect("a store");
        let path = disk.content(&Digest::sha256(b"x"));
        disk.write(&path, b"one").expect("write");
        disk.write(&path, b"two").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert!(disk.write(&dir.path().join("none/x"), b"three").is_err());
        assert_eq!(names(&dir.path().join("tmp")).expect("tmp"), [""; 0]);
    }
}
