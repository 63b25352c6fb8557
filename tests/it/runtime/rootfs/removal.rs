//! Root file systems are removed whatever state they are in, and nothing outside of them is.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use criscope_linux::rootfs::{Error, Rootfs, is_mounted, list_mounts_below};
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use rustix::fs::{IFlags, ioctl_setflags};

use super::Place;
use crate::prelude::*;

fn bind(from: &Path, to: &Path) {
    let none = None::<&str>;
    mount(Some(from), to, none, MsFlags::MS_BIND, none).expect("bind");
}

#[test]
fn a_rootfs_in_use_and_mounted_over_is_removed() {
    let mut place = Place::new();
    let layer = place.layer("1");
    fs::write(layer.join("busy"), "still read").expect("file");
    fs::create_dir(layer.join("inner")).expect("dir");
    let (rootfs, root) = place.mount();
    let mut busy = fs::File::open(root.join("busy")).expect("open");
    // A mount inside it, and another mount over it.
    let outside = place.path().join("outside");
    fs::create_dir(&outside).expect("dir");
    fs::write(outside.join("kept"), "").expect("file");
    bind(&outside, &root.join("inner"));
    bind(&layer, &root);
    assert_eq!(
        list_mounts_below(&place.path().join("c")).expect("table"),
        [root.clone(), root.join("inner"), root.clone()]
    );
    assert!(matches!(
        rootfs.mount(&place.request()),
        Err(Error::Exists { .. })
    ));
    assert!(
        rootfs.is_mounted().expect("known"),
        "a refusal undoes nothing"
    );
    rootfs.unmount().expect("unmounted");
    rootfs.unmount().expect("again");
    assert!(!rootfs.is_mounted().expect("known"));
    assert!(rootfs.upper().exists());
    // Data written by one container is not shown to another.
    assert!(matches!(
        rootfs.mount(&place.request()),
        Err(Error::Exists { .. })
    ));
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
    assert!(outside.join("kept").exists());
    let mut text = String::new();
    busy.read_to_string(&mut text)
        .expect("the open file is still readable");
    assert_eq!(text, "still read");
}

#[test]
fn a_rootfs_is_removed_without_the_table_of_all_mounts() {
    let mut place = Place::new();
    place.layer("1");
    let (rootfs, _) = place.mount();
    let volumes = ["images/0", "images/1"].map(|name| place.path().join("c").join(name));
    for dir in &volumes {
        Rootfs::new(dir).mount(&place.request()).expect("volume");
    }
    let mapped = place.path().join("c/mapped/0");
    fs::create_dir_all(&mapped).expect("dir");
    bind(place.path(), &mapped);
    assert_eq!(place.mounts(), 4);
    // In a mount namespace without /proc, so that the table cannot be read.
    let hidden = std::thread::spawn({
        let rootfs = rootfs.clone();
        move || {
            let none = None::<&str>;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            nix::sched::unshare(CloneFlags::CLONE_NEWNS).expect("namespace");
            mount(none, "/", none, private, none).expect("private");
            mount(none, "/proc", Some("tmpfs"), MsFlags::empty(), none).expect("hidden");
            rootfs.unmount().expect("unmounted");
            for part in [
                &volumes[0].join("rootfs"),
                &volumes[1].join("rootfs"),
                &mapped,
            ] {
                assert!(!is_mounted(part).expect("known"));
            }
            assert!(!rootfs.is_mounted().expect("known"));
        }
    });
    hidden.join().expect("unmounted");
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
}

#[test]
fn a_foreign_mount_in_the_directory_of_a_container_is_unmounted_not_emptied() {
    let mut place = Place::new();
    place.layer("1");
    let (rootfs, _) = place.mount();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).expect("dir");
    fs::write(outside.join("kept"), "").expect("file");
    let deep = place.path().join("c/upper/somewhere/deep");
    fs::create_dir_all(&deep).expect("dir");
    bind(&outside, &deep);
    let file = place.path().join("c/file");
    fs::write(&file, "").expect("file");
    bind(&outside.join("kept"), &file);
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
    assert!(outside.join("kept").exists());
}

#[test]
fn partial_directories_and_immutable_files_are_removed() {
    let place = Place::new();
    let dir = place.path().join("c");
    // Killed after creating the directories, before the mount.
    for part in ["rootfs", "upper/a/b/c/d/e", "work/work"] {
        fs::create_dir_all(dir.join(part)).expect("dir");
    }
    fs::set_permissions(dir.join("work/work"), fs::Permissions::from_mode(0o0)).expect("mode");
    place.container().remove().expect("removed");
    assert!(place.is_clean());
    // Killed even earlier.
    fs::create_dir(&dir).expect("dir");
    place.container().remove().expect("removed");
    // File attributes that a privileged container can set.
    let (rootfs, root) = place.mount();
    fs::create_dir_all(root.join("a/b")).expect("dirs");
    fs::write(root.join("a/b/file"), "").expect("file");
    fs::create_dir_all(root.join("a/b/inner/most")).expect("dirs");
    for (path, mark) in [
        ("a/b/inner", IFlags::IMMUTABLE),
        ("a/b/file", IFlags::IMMUTABLE),
        ("a/b", IFlags::APPEND),
        ("a", IFlags::IMMUTABLE),
    ] {
        let file = fs::File::open(rootfs.upper().join(path)).expect("open");
        ioctl_setflags(file, mark).expect("mark");
    }
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
}
