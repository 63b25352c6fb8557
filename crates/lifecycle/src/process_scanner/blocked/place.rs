//! The place in the kernel where a thread is blocked: the system call, its file's mount, and the kernel function. Contents
//! of files and names within a mount are never shown.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::mounts;
use super::syscalls::{BlockingSyscall, FileArgument, SyscallEntry};

/// Upper bound for bytes of a path argument.
const MAX_PATH_LEN: usize = 1024;

/// Upper bound for bytes of a table of mounts.
const MAX_MOUNTINFO_LEN: usize = 1 << 20;

/// How long reads of a process's memory and mounts may take. Both take locks of the process.
const FILE_READ_TIMEOUT: Duration = Duration::from_millis(200);

/// Longest name of a kernel function that is shown, in characters.
const MAX_SYMBOL_LEN: usize = 48;

/// The place in the kernel where a thread is blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLocation {
    /// The word for its system call.
    pub(super) call: Option<&'static str>,
    /// The path of its file, not to be shown: it names a pod or a container.
    pub(super) path: Option<Box<str>>,
    /// The mount point.
    pub(super) mount: Option<Box<str>>,
    /// The type of its file system.
    pub(super) fs: Option<Box<str>>,
    /// The kernel function.
    pub(super) symbol: Option<Box<str>>,
}

impl KernelLocation {
    /// Words for the place: `blocked in umount of /a/b (nfs)`.
    pub(super) fn words(&self) -> Arc<str> {
        let fs = self.fs.as_deref();
        let kind = fs.map(|fs| format!(" ({fs})")).unwrap_or_default();
        match (self.call, &self.mount, &self.symbol) {
            (Some(call @ ("mount" | "umount")), Some(mount), _) => {
                format!("blocked in {call} of {mount}{kind}")
            }
            (Some(call), Some(mount), _) => format!("blocked in {call} on {mount}{kind}"),
            (Some(call), None, Some(symbol)) => {
                let kind = fs.map_or_else(|| format!(" ({symbol})"), |_| kind);
                format!("blocked in {call}{kind}")
            }
            (Some(call), None, None) => format!("blocked in {call}{kind}"),
            (None, _, Some(symbol)) => format!("blocked in the kernel ({symbol})"),
            (None, _, None) => "blocked in the kernel".to_owned(),
        }
        .into()
    }

    /// Returns whether another machine or program serves the file system.
    pub(super) fn is_served(&self) -> bool {
        const SERVED: [&str; 7] = ["nfs", "fuse", "cifs", "smb", "ceph", "9p", "virtiofs"];
        let fs = self.fs.as_deref().unwrap_or_default();
        SERVED.iter().any(|served| fs.starts_with(served))
    }
}

/// Finds the places of blocked threads.
#[derive(Debug, Default)]
pub(super) struct LocationFinder {
    /// Set while a read has not returned.
    busy: Arc<AtomicBool>,
}

impl LocationFinder {
    /// The place of a thread that has been in the system call `entry` for a while. `symbols` are the kernel functions, the
    /// innermost first. Paths are read only with `own_paths`: otherwise they belong to a container.
    pub(super) fn find(
        &self,
        process: &Path,
        entry: Option<SyscallEntry>,
        symbols: &[String],
        own_paths: bool,
    ) -> KernelLocation {
        let known = entry.and_then(|entry| Some((entry, entry.blocking_syscall()?)));
        let read = known.filter(|_| own_paths).and_then(|(entry, syscall)| {
            let process = process.to_owned();
            self.in_time(move || file(&process, &entry, syscall))
        });
        let found = read.flatten().unwrap_or_default();
        KernelLocation {
            call: known.map(|(_, syscall)| syscall.name),
            path: found.path,
            mount: found.mount,
            fs: found.fs.or_else(|| {
                let fs = symbols
                    .iter()
                    .find_map(|symbol| mounts::fs_of_symbol(symbol))?;
                Some(fs.into())
            }),
            symbol: symbols.first().map(|symbol| shown_symbol(symbol)),
        }
    }

    /// Runs `read` on a thread of its own, and waits a while for it. At most one such thread exists.
    fn in_time<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        let busy = Arc::clone(&self.busy);
        let (sender, receiver) = mpsc::sync_channel(1);
        let started = thread::Builder::new()
            .name("scan-file".to_owned())
            .spawn(move || {
                let result = read();
                busy.store(false, Ordering::Release);
                let _ = sender.send(result);
            });
        if started.is_err() {
            self.busy.store(false, Ordering::Release);
            return None;
        }
        receiver.recv_timeout(FILE_READ_TIMEOUT).ok()
    }
}

/// The file of a system call.
#[derive(Debug, Default)]
struct SyscallFile {
    path: Option<Box<str>>,
    mount: Option<Box<str>>,
    fs: Option<Box<str>>,
}

/// The path of a system call's file and its mount. For mount and umount the path is the mount point, also if nothing is mounted
/// there any more.
fn file(process: &Path, entry: &SyscallEntry, syscall: BlockingSyscall) -> Option<SyscallFile> {
    let path = match syscall.file {
        FileArgument::Path(at) => path_in_memory(process, entry.argument(at)?)?,
        FileArgument::Descriptor(at) => path_of_descriptor(process, entry.argument(at)?)?,
        FileArgument::At(directory, at) => {
            let path = path_in_memory(process, entry.argument(at)?).unwrap_or_default();
            if path.starts_with('/') {
                path
            } else {
                // The directory is enough: the file is on the same mount, or on one below.
                path_of_descriptor(process, entry.argument(directory)?)?
            }
        }
        FileArgument::None => return None,
    };
    let mountinfo = read_at_most(&process.join("mountinfo"), MAX_MOUNTINFO_LEN)?;
    let on = mounts::find_mount(&mountinfo, &path);
    let path = mounts::shown(&path);
    let is_point = matches!(syscall.name, "mount" | "umount");
    Some(match (on, path) {
        // Without a mount at this point the type is unknown: the mount above is another one.
        (on, Some(path)) if is_point => SyscallFile {
            fs: on.filter(|on| on.point == path).map(|on| on.fs),
            mount: Some(path.clone()),
            path: Some(path),
        },
        (on, path) => {
            let (mount, fs) = on.map(|on| (on.point, on.fs)).unzip();
            SyscallFile { path, mount, fs }
        }
    })
}

/// The path at this address in the memory of a process.
fn path_in_memory(process: &Path, address: u64) -> Option<String> {
    let memory = File::open(process.join("mem")).ok()?;
    let mut buffer = [0; MAX_PATH_LEN];
    let len = memory.read_at(&mut buffer, address).ok()?;
    let end = buffer[..len].iter().position(|b| *b == 0)?;
    String::from_utf8(buffer[..end].to_vec()).ok()
}

/// The path of a descriptor.
fn path_of_descriptor(process: &Path, descriptor: u64) -> Option<String> {
    let descriptor = u32::try_from(descriptor).ok()?;
    let link: PathBuf = std::fs::read_link(process.join(format!("fd/{descriptor}"))).ok()?;
    let link = link.into_os_string().into_string().ok()?;
    link.starts_with('/').then_some(link)
}

fn read_at_most(path: &Path, limit: usize) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(limit as u64).read_to_string(&mut text).ok()?;
    Some(text)
}

fn shown_symbol(symbol: &str) -> Box<str> {
    let shown = symbol
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    shown.take(MAX_SYMBOL_LEN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(call: Option<&'static str>, mount: &str, fs: &str, symbol: &str) -> String {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        let place = KernelLocation {
            call,
            path: None,
            mount: some(mount),
            fs: some(fs),
            symbol: some(symbol),
        };
        place.words().to_string()
    }

    #[test]
    fn a_place_is_said_as_far_as_it_is_known() {
        for (place, words) in [
            (
                place(Some("umount"), "/v/1", "nfs4", "rpc_wait"),
                "blocked in umount of /v/1 (nfs4)",
            ),
            (
                place(Some("fsync"), "/var", "ext4", ""),
                "blocked in fsync on /var (ext4)",
            ),
            (
                place(Some("stat"), "", "nfs", "rpc_wait"),
                "blocked in stat (nfs)",
            ),
            (
                place(Some("close"), "", "", "do_exit"),
                "blocked in close (do_exit)",
            ),
            (place(Some("sync"), "", "", ""), "blocked in sync"),
            (
                place(None, "", "", "io_schedule"),
                "blocked in the kernel (io_schedule)",
            ),
            (place(None, "", "", ""), "blocked in the kernel"),
        ] {
            assert_eq!(place, words);
        }
    }

    #[test]
    fn a_read_that_hangs_is_left_alone() {
        let finder = LocationFinder::default();
        let (end, ended) = mpsc::sync_channel::<()>(1);
        assert_eq!(finder.in_time(move || ended.recv().is_ok()), None);
        assert_eq!(finder.in_time(|| 1), None, "one at a time");
        end.send(()).expect("it waits");
        while finder.busy.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(finder.in_time(|| 1), Some(1));
    }
}
