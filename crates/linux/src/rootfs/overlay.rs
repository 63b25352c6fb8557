//! The overlay mount: its directories and options.
//!
//! - `index=off`: layers are shared by many containers, but overlayfs keeps an index for one fixed set of directories; with
//!   it, a layer that was pulled again could not be mounted together with an old one.
//! - `volatile`: the changes of a container need not survive a reboot (the kubelet then creates a new container), so
//!   syncing them has no benefit. Without it every `fsync` in a container waits for the disk, and every unmount writes back
//!   the *whole* underlying file system before it returns (270 ms instead of 6 ms with 150 MB of unrelated dirty data).
//!   Kernels before 5.10 do not support it. Kernels refuse it on a file system with a write error that no `fsync` has reported
//!   yet, such as the error of a disk that was full for a moment: `syncfs` takes the error, and the mount is tried again.
//! - not `userxattr`: the container could set its attributes, and it is for mounts inside user namespaces.
//!
//! - each layer once: the kernel refuses a lower directory that occurs twice (`ELOOP`), and an image may well contain a layer twice.
//!   The topmost occurrence alone gives the same view. A lower one has the same files, so each of them is found in the upper
//!   one first; and its whiteouts and opaque directories hide everything below them, as the upper one's do too.
//!   What stands between the two hides or replaces only files of the lower one, and the upper one shows them again.
//!
//! All options together must fit into one page. If the paths of the layers are too long, or contain a special character,
//! they are replaced by descriptors, `/proc/self/fd/N`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use rustix::fs::{Mode, OFlags, open, syncfs};
use rustix::io::Errno;

use super::error::{At as _, Error, Result};
use super::{MountRequest, context_option, idmapped};

/// Directories created next to the mount point.
pub(super) const PARTS: [&str; 3] = ["upper", "work", "empty"];

/// Limit of mount(2): a page, including the final zero.
const MAX_OPTIONS: usize = 4095;

/// Maximum number of different layers: as descriptors they always fit into the options, and do not exhaust the daemon's. Docker
/// creates no image with more than 127.
pub const MAX_LAYERS: usize = 180;

/// Maximum number of layers of an image with the ones that repeat others. It bounds the work for one image.
pub const MAX_LISTED_LAYERS: usize = 512;

/// The directories of an overlay.
pub(super) struct Stack {
    /// From the topmost down, in the order of overlayfs.
    pub(super) lower: Vec<PathBuf>,
    /// `upperdir` and `workdir`.
    pub(super) writable: Option<(PathBuf, PathBuf)>,
}

/// Creates the directories in `dir` and mounts the overlay on `point`.
pub(super) fn mount(dir: &Path, point: &Path, request: &MountRequest) -> Result<()> {
    check_count(&request.layers)?;
    let stack = stack(dir, request)?;
    let label = request.label.as_deref();
    match &request.ids {
        Some(ids) => idmapped::mount(stack, point, label, ids),
        None => stack.mount(point, label),
    }
}

fn check_count(layers: &[PathBuf]) -> Result<()> {
    let (listed, different) = (layers.len(), topmost_once(layers).len());
    if different > MAX_LAYERS || listed > MAX_LISTED_LAYERS {
        return Err(Error::Invalid(format!(
            "{listed} layers, {different} of them different: at most {MAX_LAYERS} different ones can be mounted over each other, \
             and {MAX_LISTED_LAYERS} with repetitions"
        )));
    }
    Ok(())
}

/// Returns the layers from the topmost down, each at its topmost place only.
fn topmost_once(layers: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let topmost = layers.iter().rev().filter(|layer| seen.insert(*layer));
    topmost.cloned().collect()
}

fn stack(dir: &Path, request: &MountRequest) -> Result<Stack> {
    let mut lower = topmost_once(&request.layers);
    // Without an upper directory overlayfs requires two lower ones. A single layer is not bind mounted instead, because its
    // whiteouts would be visible.
    let least = if request.read_only { 2 } else { 1 };
    if lower.len() < least {
        make(dir, "empty", 0o755)?;
    }
    while lower.len() < least {
        // No layer may contain another one.
        lower.push(make(dir, &format!("empty/{}", lower.len()), 0o755)?);
    }
    if request.read_only {
        return Ok(Stack {
            lower,
            writable: None,
        });
    }
    let upper = make(dir, "upper", 0o700)?;
    // The root of the container has the attributes of the upper directory, regardless of those of the layers.
    let (owner, mode) = match request.layers.last() {
        Some(top) => {
            let like = fs::metadata(top).at("read", top)?;
            ((like.uid(), like.gid()), like.mode() & 0o7777)
        }
        None => ((0, 0), 0o755),
    };
    let (uid, gid) = match &request.ids {
        Some(ids) => ids.mappings.host(owner.0, owner.1),
        None => owner,
    };
    chown(&upper, Some(uid), Some(gid)).at("set the owner of", &upper)?;
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(&upper, mode).at("set the mode of", &upper)?;
    let work = make(dir, "work", 0o700)?;
    Ok(Stack {
        lower,
        writable: Some((upper, work)),
    })
}

fn make(dir: &Path, name: &str, mode: u32) -> Result<PathBuf> {
    let path = dir.join(name);
    match fs::DirBuilder::new().mode(mode).create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists { path }),
        made => made.at("make", &path).map(|()| path),
    }
}

fn options(stack: &Stack, label: Option<&str>, volatile: bool) -> Result<Vec<u8>> {
    let mut options = b"index=off".to_vec();
    if let Some((upper, work)) = &stack.writable {
        if volatile {
            options.extend(b",volatile");
        }
        options.extend(b",upperdir=");
        options.extend(upper.as_os_str().as_bytes());
        options.extend(b",workdir=");
        options.extend(work.as_os_str().as_bytes());
    }
    if let Some(label) = label {
        options.extend(context_option(label)?.as_bytes());
    }
    options.extend(b",lowerdir=");
    let lower = stack.lower.iter().map(|path| path.as_os_str().as_bytes());
    options.extend(lower.collect::<Vec<_>>().join(&b':'));
    Ok(options)
}

/// Returns whether overlayfs or mount(2) would interpret characters of the path.
fn is_special(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().any(|byte| matches!(byte, b':' | b',' | b'\\'))
}

impl Stack {
    /// Mounts the overlay on `point`.
    pub(super) fn mount(&self, point: &Path, label: Option<&str>) -> Result<()> {
        match self.mount_with(point, label, true) {
            Err(Error::Io { source, .. })
                if source.kind() == io::ErrorKind::InvalidInput && self.writable.is_some() =>
            {
                self.mount_with(point, label, false)
            }
            Err(Error::Io { source, .. })
                if source.raw_os_error() == Some(Errno::IO.raw_os_error()) =>
            {
                self.clear_write_error();
                self.mount_with(point, label, true)
            }
            outcome => outcome,
        }
    }

    /// Takes the unreported write error of the file system of the upper directory. It concerns earlier writes, not those of a new
    /// container; if writes still fail, so does the mount.
    fn clear_write_error(&self) {
        if let Some((upper, _)) = &self.writable
            && let Ok(dir) = fs::File::open(upper)
        {
            let _earlier = syncfs(&dir);
        }
    }

    fn mount_with(&self, point: &Path, label: Option<&str>, volatile: bool) -> Result<()> {
        let mut options = options(self, label, volatile)?;
        let mut open = Vec::new();
        if options.len() > MAX_OPTIONS || self.paths().any(is_special) {
            let named = self.by_descriptors(&mut open)?;
            options = self::options(&named, label, volatile)?;
        }
        if options.len() > MAX_OPTIONS {
            return Err(Error::Invalid(
                "the options of an overlay are too long".to_owned(),
            ));
        }
        let flags = match self.writable {
            Some(_) => MsFlags::empty(),
            None => MsFlags::MS_RDONLY,
        };
        let kind = Some("overlay");
        nix::mount::mount(kind, point, kind, flags, Some(&options[..]))
            .at("mount an overlay on", point)
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let writable = self.writable.iter().flat_map(|(upper, work)| [upper, work]);
        self.lower.iter().chain(writable).map(PathBuf::as_path)
    }

    /// The directories, each by a descriptor, which is kept in `open`.
    fn by_descriptors(&self, open: &mut Vec<OwnedFd>) -> Result<Self> {
        let lower = self.lower.iter().map(|path| by_descriptor(path, open));
        let lower = lower.collect::<Result<_>>()?;
        let writable = match &self.writable {
            Some((upper, work)) => Some((by_descriptor(upper, open)?, by_descriptor(work, open)?)),
            None => None,
        };
        Ok(Self { lower, writable })
    }
}

/// Opens a directory, keeps the descriptor in `open_dirs`, and returns the path that refers to it.
fn by_descriptor(path: &Path, open_dirs: &mut Vec<OwnedFd>) -> Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(path, flags, Mode::empty()).at("open", path)?;
    let name = format!("/proc/self/fd/{}", dir.as_raw_fd());
    open_dirs.push(dir);
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_layer_comes_first_and_the_label_is_quoted() {
        let stack = Stack {
            lower: vec!["/l/2".into(), "/l/1".into()],
            writable: Some(("/c/upper".into(), "/c/work".into())),
        };
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        let text =
            |options: Result<Vec<u8>>| String::from_utf8(options.expect("valid")).expect("text");
        assert_eq!(
            text(options(&stack, Some(label), true)),
            format!(
                "index=off,volatile,upperdir=/c/upper,workdir=/c/work,context=\"{label}\",lowerdir=/l/2:/l/1"
            )
        );
        let read_only = Stack {
            writable: None,
            ..stack
        };
        assert_eq!(
            text(options(&read_only, None, true)),
            "index=off,lowerdir=/l/2:/l/1"
        );
        let more = "t:s0\",lowerdir=/etc,context=\"t";
        let error = options(&read_only, Some(more), true).expect_err("two options");
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }

    #[test]
    fn a_layer_that_occurs_twice_is_mounted_once_at_its_topmost_place() {
        let layers = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        for (listed, mounted) in [
            (&["a", "b", "a"][..], &["a", "b"][..]),
            (&["a", "a"], &["a"]),
            (&["a", "b", "b", "c", "a", "d"], &["d", "a", "c", "b"]),
            (&[], &[]),
        ] {
            assert_eq!(topmost_once(&layers(listed)), layers(mounted), "{listed:?}");
        }
        let many: Vec<_> = (0..=MAX_LAYERS)
            .map(|n| PathBuf::from(n.to_string()))
            .collect();
        assert!(check_count(&many).is_err());
        assert!(check_count(&many[1..]).is_ok());
        assert!(check_count(&vec![many[0].clone(); MAX_LISTED_LAYERS]).is_ok());
        assert!(check_count(&vec![many[0].clone(); MAX_LISTED_LAYERS + 1]).is_err());
    }

    #[test]
    fn a_missing_layer_is_named() {
        let dir = tempfile::tempdir().expect("dir");
        let layer = dir.path().join("gone");
        let request = MountRequest {
            layers: vec![layer.clone()],
            ..MountRequest::default()
        };
        let error = stack(dir.path(), &request).err().expect("no such layer");
        assert!(error.to_string().contains("gone"), "{error}");
    }
}
