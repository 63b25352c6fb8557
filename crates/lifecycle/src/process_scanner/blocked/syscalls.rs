//! `/proc/PID/task/TID/syscall` (proc(5)): the system calls that can block in a file system.

use nix::libc;

/// The argument of a system call that names its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileArgument {
    /// The argument with this number points to a path.
    Path(usize),
    /// One argument is a directory's descriptor, another points to a path.
    At(usize, usize),
    /// The argument with this number is a descriptor.
    Descriptor(usize),
    /// None.
    None,
}

/// A system call that can block in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockingSyscall {
    /// The word for the call on pages.
    pub(super) name: &'static str,
    /// The argument that names its file.
    pub(super) file: FileArgument,
    /// Set if an interruptible sleep of the call may be long with nothing wrong: open waits for the other end of a FIFO.
    pub(super) often_waits: bool,
}

/// A thread's system call and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyscallEntry {
    number: i64,
    pub(super) arguments: [u64; 6],
}

impl SyscallEntry {
    /// `NUMBER ARGUMENT..6 STACK PROGRAM`; `None` for a thread that is running or blocked outside a system call.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            let field = fields.next()?.strip_prefix("0x")?;
            *argument = u64::from_str_radix(field, 16).ok()?;
        }
        Some(Self { number, arguments })
    }

    /// The argument at this position.
    pub(super) fn argument(&self, at: usize) -> Option<u64> {
        self.arguments.get(at).copied()
    }

    /// The system call, if it can block in a file system.
    pub(super) fn blocking_syscall(&self) -> Option<BlockingSyscall> {
        use FileArgument::{At, Descriptor, Path};
        let (name, file, often_waits) = match self.number {
            libc::SYS_umount2 => ("umount", Path(0), false),
            libc::SYS_mount => ("mount", Path(1), false),
            libc::SYS_move_mount => ("mount", At(2, 3), false),
            libc::SYS_fsconfig | libc::SYS_fsmount => ("mount", FileArgument::None, false),
            libc::SYS_openat | libc::SYS_openat2 => ("open", At(0, 1), true),
            libc::SYS_newfstatat | libc::SYS_statx => ("stat", At(0, 1), false),
            libc::SYS_statfs => ("statfs", Path(0), false),
            libc::SYS_fstatfs => ("statfs", Descriptor(0), false),
            libc::SYS_readlinkat => ("readlink", At(0, 1), false),
            libc::SYS_unlinkat => ("unlink", At(0, 1), false),
            libc::SYS_mkdirat => ("mkdir", At(0, 1), false),
            libc::SYS_renameat | libc::SYS_renameat2 => ("rename", At(0, 1), false),
            libc::SYS_getdents64 => ("readdir", Descriptor(0), false),
            libc::SYS_fsync | libc::SYS_fdatasync => ("fsync", Descriptor(0), false),
            libc::SYS_syncfs => ("syncfs", Descriptor(0), false),
            libc::SYS_sync => ("sync", FileArgument::None, false),
            libc::SYS_flock => ("flock", Descriptor(0), false),
            libc::SYS_fcntl if self.waits_for_lock() => ("fcntl lock", Descriptor(0), false),
            libc::SYS_read | libc::SYS_pread64 => ("read", Descriptor(0), true),
            libc::SYS_write | libc::SYS_pwrite64 => ("write", Descriptor(0), true),
            libc::SYS_ftruncate => ("truncate", Descriptor(0), false),
            libc::SYS_close => ("close", FileArgument::None, false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => ("open", Path(0), true),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => ("stat", Path(0), false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rmdir | libc::SYS_unlink => ("unlink", Path(0), false),
            _ => return None,
        };
        Some(BlockingSyscall {
            name,
            file,
            often_waits,
        })
    }

    fn waits_for_lock(&self) -> bool {
        let command = i32::try_from(self.arguments[1]);
        matches!(command, Ok(libc::F_SETLKW | libc::F_OFD_SETLKW))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: i64, arguments: &str) -> String {
        format!("{number} {arguments} 0x7ffd0 0x7fb7e")
    }

    #[test]
    fn a_call_is_read_with_its_arguments() {
        let line = line(libc::SYS_umount2, "0xc000 0x8 0x0 0x0 0x0 0x0");
        let entry = SyscallEntry::parse(&line).expect("a call");
        assert_eq!(entry.arguments, [0xc000, 8, 0, 0, 0, 0]);
        let known = entry.blocking_syscall().expect("known");
        assert_eq!((known.name, known.file), ("umount", FileArgument::Path(0)));
        for not in [
            "running",
            "-1 0x7ffd0 0x7fb7e",
            "",
            "5",
            "5 x 0 0 0 0 0 0 0",
        ] {
            assert_eq!(SyscallEntry::parse(not), None, "{not}");
        }
    }

    #[test]
    fn threads_without_work_are_in_no_file_system() {
        let zeros = "0x0 0x0 0x0 0x0 0x0 0x0";
        for idle in [
            libc::SYS_futex,
            libc::SYS_epoll_pwait,
            libc::SYS_nanosleep,
            libc::SYS_fcntl,
        ] {
            let entry = SyscallEntry::parse(&line(idle, zeros)).expect("a call");
            assert_eq!(entry.blocking_syscall(), None, "{idle}");
        }
        let lock = SyscallEntry::parse(&line(libc::SYS_fcntl, "0x3 0x7 0x0 0x0 0x0 0x0"));
        let known = lock.and_then(|it| it.blocking_syscall()).expect("known");
        assert_eq!(known.name, "fcntl lock");
    }
}
