//! Mounts of overlayfs and of shared memory: layers, options, attributes of the root.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};

use criscope::runtime::code::GrpcCode as _;
use criscope_linux::rootfs::{
    Error, MountRequest, Rootfs, Shm, is_mounted, list_mounts_below, mount_shm, unmount,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use super::{Place, mode};
use crate::prelude::*;

fn whiteout(path: &Path) {
    mknodat(
        CWD,
        path,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("whiteout");
}

#[test]
fn a_hundred_and_twenty_layers_with_long_names_are_mounted_in_order() {
    let mut place = Place::new();
    for number in 0..120 {
        let layer = place.layer(&format!("{number:0>64}/fs"));
        fs::write(layer.join("shared"), format!("{number}")).expect("file");
        fs::write(layer.join(format!("own-{number}")), "").expect("file");
    }
    let (rootfs, root) = place.mount();
    assert!(rootfs.is_mounted().expect("known"));
    assert_eq!(fs::read(root.join("shared")).expect("there"), b"119");
    for number in 0..120 {
        assert!(root.join(format!("own-{number}")).exists(), "{number}");
    }
    fs::write(root.join("shared"), "written").expect("writable");
    assert_eq!(
        fs::read(place.layers[119].join("shared")).expect("layer"),
        b"119"
    );
    assert_eq!(
        fs::read(rootfs.upper().join("shared")).expect("upper"),
        b"written"
    );
    rootfs.remove().expect("removed");
    rootfs.remove().expect("again");
    assert!(place.is_clean());
    // More than the kernel supports.
    place.layers = vec![place.layers[0].clone(); 600];
    let error = rootfs.mount(&place.request()).expect_err("too many");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert_eq!(
        fs::read_dir(place.path().join("c")).expect("dir").count(),
        0
    );
}

#[test]
fn separators_of_mount_options_in_names_are_harmless() {
    let mut place = Place::new();
    let layer = place.layer("a:b,c\\d");
    fs::write(layer.join("here"), "").expect("file");
    fs::create_dir_all(place.path().join("with space,and:more")).expect("dir");
    let rootfs = Rootfs::new(place.path().join("with space,and:more/c"));
    let root = rootfs.mount(&place.request()).expect("mounted");
    assert!(root.join("here").exists());
    assert_eq!(list_mounts_below(place.path()).expect("table"), [root]);
    rootfs.remove().expect("removed");
    assert_eq!(place.mounts(), 0);
}

#[test]
fn whiteouts_hide_files_and_the_root_has_the_attributes_of_the_topmost_layer() {
    let mut place = Place::new();
    let base = place.layer("base");
    fs::write(base.join("gone"), "").expect("file");
    fs::create_dir(base.join("opaque")).expect("dir");
    fs::write(base.join("opaque/below"), "").expect("file");
    let top = place.layer("top");
    whiteout(&top.join("gone"));
    fs::create_dir(top.join("opaque")).expect("dir");
    setxattr(
        top.join("opaque"),
        "trusted.overlay.opaque",
        b"y",
        XattrFlags::empty(),
    )
    .expect("opaque");
    chown(&top, Some(12), Some(34)).expect("owner");
    fs::create_dir(place.path().join("c")).expect("made by the caller");
    fs::set_permissions(&top, fs::Permissions::from_mode(0o1751)).expect("mode");
    let (rootfs, root) = place.mount();
    let names: Vec<_> = fs::read_dir(&root).expect("dir").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(fs::read_dir(root.join("opaque")).expect("dir").count(), 0);
    let stat = fs::metadata(&root).expect("root");
    assert_eq!(
        (stat.uid(), stat.gid(), stat.mode() & 0o7777),
        (12, 34, 0o1751)
    );
    // No other user of the node has access.
    assert_eq!(mode(&place.path().join("c")), 0o700);
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
}

#[test]
fn read_only_root_file_systems_have_no_upper_and_any_number_of_layers() {
    let mut place = Place::new();
    for count in 0..3 {
        if count > 0 {
            let layer = place.layer(&format!("{count}"));
            fs::write(layer.join(format!("{count}")), "").expect("file");
            whiteout(&layer.join("nothing-below"));
        }
        let rootfs = place.container();
        let request = MountRequest {
            read_only: true,
            ..place.request()
        };
        let root = rootfs.mount(&request).expect("mounted");
        assert_eq!(fs::read_dir(&root).expect("dir").count(), count);
        let refused = fs::write(root.join("new"), "").expect_err("read-only");
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert!(!rootfs.upper().exists());
        rootfs.remove().expect("removed");
        assert!(place.is_clean());
    }
    // A rootfs without layers is writable too.
    place.layers.clear();
    let (rootfs, root) = place.mount();
    fs::write(root.join("new"), "").expect("writable");
    assert_eq!(mode(&root), 0o755);
    rootfs.remove().expect("removed");
}

#[test]
fn shared_memory_has_its_size_and_options() {
    let place = Place::new();
    let dir = place.path().join("pod/shm");
    let shm = Shm {
        size: 1 << 20,
        owner: (7, 8),
        ..Shm::default()
    };
    mount_shm(&dir, &shm).expect("mounted");
    assert!(is_mounted(&dir).expect("known"));
    assert!(matches!(mount_shm(&dir, &shm), Err(Error::Exists { .. })));
    let stat = fs::metadata(&dir).expect("there");
    assert_eq!(
        (stat.uid(), stat.gid(), stat.mode() & 0o7777),
        (7, 8, 0o1777)
    );
    let full = fs::write(dir.join("big"), vec![0; 2 << 20]).expect_err("too big");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let table = fs::read_to_string("/proc/self/mountinfo").expect("table");
    let line = table
        .lines()
        .find(|line| line.contains(&*dir.to_string_lossy()))
        .expect("mounted");
    assert!(line.contains("nosuid,nodev,noexec"), "{line}");
    assert!(line.contains("nr_inodes=256"), "{line}");
    unmount(&dir).expect("unmounted");
    unmount(&dir).expect("again");
    assert!(!is_mounted(&dir).expect("known"));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(place.path().join("pod/none"))
        .expect("dir");
    assert!(!is_mounted(&place.path().join("pod/none")).expect("known"));
}

/// All files below a directory, with their contents, modes and owners.
fn view(root: &Path, dir: &Path, all: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(dir).expect("dir").flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Of a directory that only one layer has, overlayfs lists the whiteouts as well; there is nothing behind them.
        let Ok(stat) = fs::symlink_metadata(&path) else {
            continue;
        };
        let content = if stat.is_file() {
            fs::read_to_string(&path).expect("text")
        } else {
            String::new()
        };
        let shown = path.strip_prefix(root).expect("below").display();
        all.push(format!(
            "{shown} {:o} {} {content}",
            stat.mode(),
            stat.uid()
        ));
        if stat.is_dir() {
            view(root, &path, all);
        }
    }
}

/// A layer with some of a few paths, each of them a file, a directory (opaque or not) or a whiteout.
fn random_layer(layer: &Path, number: u32, random: &mut impl FnMut(u32) -> u32) {
    for top in ["a", "b", "c"] {
        let path = layer.join(top);
        match random(5) {
            0 => fs::write(&path, format!("{number}")).expect("file"),
            1 => whiteout(&path),
            2 => {}
            kind => {
                fs::create_dir(&path).expect("dir");
                chown(&path, Some(number), Some(number)).expect("owner");
                if kind == 3 && random(2) == 0 {
                    let (name, flags) = ("trusted.overlay.opaque", XattrFlags::empty());
                    setxattr(&path, name, b"y", flags).expect("opaque");
                }
                for inner in ["x", "y", "z"] {
                    match random(4) {
                        0 => fs::write(path.join(inner), format!("{number}")).expect("file"),
                        1 => whiteout(&path.join(inner)),
                        2 => {
                            fs::create_dir(path.join(inner)).expect("dir");
                            fs::write(path.join(inner).join("deep"), format!("{number}"))
                                .expect("file");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The kernel refuses a directory twice. The same layers with copies in place of repetitions are what it would show.
#[test]
fn a_layer_that_occurs_twice_gives_the_view_that_copies_of_it_give() {
    let mut state = 1_u32;
    let mut random = move |below: u32| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % below
    };
    for round in 0..40 {
        let mut place = Place::new();
        let mut different = Vec::new();
        for number in 0..4 {
            let layer = place.path().join(format!("layers/{number}"));
            fs::create_dir_all(&layer).expect("layer");
            random_layer(&layer, number, &mut random);
            different.push(layer);
        }
        // An empty layer, which builders repeat.
        different[0] = place.path().join("layers/empty");
        fs::create_dir(&different[0]).expect("layer");
        let mut copies = Vec::new();
        for position in 0..7 {
            let source = &different[random(4) as usize];
            place.layers.push(source.clone());
            let copy = place.path().join(format!("copies/{position}"));
            fs::create_dir_all(copy.parent().expect("parent")).expect("dir");
            let copied = Command::new("cp").arg("-a").args([source, &copy]).status();
            assert!(copied.expect("cp").success());
            copies.push(copy);
        }
        let repeated = place.layers.clone();
        let views = [false, true].map(|read_only| {
            [&repeated, &copies].map(|layers| {
                let rootfs = place.container();
                let request = MountRequest {
                    layers: layers.clone(),
                    read_only,
                    ..MountRequest::default()
                };
                let root = rootfs.mount(&request).expect("mounted");
                let mut all = Vec::new();
                view(&root, &root, &mut all);
                rootfs.remove().expect("removed");
                all
            })
        });
        for [repeated, copied] in views {
            assert_eq!(repeated, copied, "round {round}: {:?}", place.layers);
        }
        assert!(place.is_clean());
    }
}
