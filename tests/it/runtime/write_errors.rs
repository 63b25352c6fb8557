//! Containers on a file system with an unreported write error, as a disk that was full for a moment leaves it. Needs root.

use std::fs::{self, File};

use criscope_linux::rootfs::{MountRequest, Rootfs};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::harness::packages::file;
use crate::prelude::*;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {complaint}"
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A file system on a loop device in a tmpfs that is smaller. Dropping it removes all.
struct Disk {
    below: TempDir,
    device: String,
}

impl Disk {
    fn new() -> Self {
        let below = tempfile::tempdir().expect("a directory");
        let path = below.path().to_str().expect("text");
        run("mount", &["-t", "tmpfs", "-o", "size=8m", "tmpfs", path]);
        let image = below.path().join("disk");
        File::create(&image)
            .and_then(|it| it.set_len(32 << 20))
            .expect("a file");
        let image = image.to_str().expect("text");
        let mkfs = file("/sbin/mkfs.ext2", "e2fsprogs");
        run(mkfs.to_str().expect("text"), &["-q", "-F", image]);
        let device = run("losetup", &["--find", "--show", image]);
        let disk = Self { below, device };
        fs::create_dir(disk.path()).expect("a mount point");
        run(
            "mount",
            &[&disk.device, disk.path().to_str().expect("text")],
        );
        disk
    }

    fn path(&self) -> PathBuf {
        self.below.path().join("point")
    }

    /// Lets a write fail without telling anybody, and makes room again.
    fn fail_a_write(&self) {
        let large = self.path().join("large");
        fs::write(&large, vec![1; 16 << 20]).expect("only in memory so far");
        let _flushed = Command::new("blockdev")
            .args(["--flushbufs", &self.device])
            .status();
        fs::remove_file(large).expect("removed");
        let below = self.below.path().to_str().expect("text");
        run("mount", &["-o", "remount,size=64m", below]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A failed test leaves an overlay.
        let _left = umount2(&self.path().join("c/rootfs"), MntFlags::MNT_DETACH);
        let _unmounted = umount2(&self.path(), MntFlags::MNT_DETACH);
        let _freed = Command::new("losetup").args(["-d", &self.device]).status();
        let _unmounted = umount2(self.below.path(), MntFlags::MNT_DETACH);
    }
}

fn mount_volatile(dir: &Path) -> nix::Result<()> {
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(dir.join(name)).expect("a directory");
    }
    let dir = dir.display();
    let options = format!("volatile,lowerdir={dir}/lower,upperdir={dir}/upper,workdir={dir}/work");
    let point = format!("{dir}/merged");
    let kind = Some("overlay");
    mount(kind, &*point, kind, MsFlags::empty(), Some(&*options))
}

#[test]
fn an_earlier_write_error_of_the_disk_is_no_reason_to_make_no_containers() {
    let disk = Disk::new();
    disk.fail_a_write();
    let own = disk.path().join("own");
    fs::create_dir(&own).expect("a directory");
    assert_eq!(mount_volatile(&own), Err(Errno::EIO), "no error was left");
    let rootfs = Rootfs::new(disk.path().join("c"));
    let root = rootfs.mount(&MountRequest::default()).expect("mounted");
    fs::write(root.join("file"), "written").expect("writable");
    let table = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let root = root.display().to_string();
    let line = table.lines().find(|line| line.contains(&root));
    assert!(
        line.is_some_and(|line| line.contains("volatile")),
        "{line:?}"
    );
    rootfs.remove().expect("removed");
}
