//! What is read of an image within its root: files behind links, tables of users, volumes.

use std::ffi::CString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};

use criscope::runtime::code::GrpcCode as _;
use criscope::runtime::oci::spec::{ImageConfig, UserDatabase};
use criscope_linux::rootfs::{Error, open_in_root, prepare_volumes};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use super::{Place, mode, volume_limits};
use crate::prelude::*;

#[test]
fn files_are_read_inside_the_root_whatever_links_point_to() {
    let mut place = Place::new();
    let layer = place.layer("1");
    let secret = place.path().join("secret");
    fs::write(&secret, "of the node").expect("file");
    fs::create_dir_all(layer.join("etc")).expect("dir");
    fs::create_dir_all(layer.join("real")).expect("dir");
    fs::write(layer.join("real/passwd"), "web:x:33:34::/:\n").expect("file");
    // Absolute, and above the root: both are resolved in the container's root.
    symlink("/real/passwd", layer.join("etc/passwd")).expect("link");
    let up = "../".repeat(40) + &secret.to_string_lossy();
    symlink(up, layer.join("up")).expect("link");
    symlink(&secret, layer.join("absolute")).expect("link");
    symlink("/proc/self/root/etc/passwd", layer.join("magic")).expect("link");
    symlink("loop", layer.join("loop")).expect("link");
    let pipe = CString::new(layer.join("pipe").as_os_str().as_bytes()).expect("path");
    nix::unistd::mkfifo(pipe.as_c_str(), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
    let (rootfs, root) = place.mount();
    for path in ["up", "absolute", "magic", "no/such", "real/passwd/x"] {
        assert!(open_in_root(&root, path).expect(path).is_none(), "{path}");
    }
    let secret = secret.to_string_lossy().into_owned();
    assert!(open_in_root(&root, &secret).expect("none").is_none());
    assert!(open_in_root(&root, "loop").is_err());
    for path in ["pipe", "etc"] {
        let refused = open_in_root(&root, path).expect_err(path);
        assert!(matches!(refused, Error::Kind { .. }), "{refused}");
    }
    let mut text = String::new();
    let file = open_in_root(&root, "/etc/passwd").expect("found");
    file.expect("there")
        .read_to_string(&mut text)
        .expect("text");
    assert_eq!(text, "web:x:33:34::/:\n");
    // A missing group file is fine.
    let tables = UserDatabase::read_below(&root).expect("read");
    let context = criscope::cri::v1::LinuxContainerSecurityContext::default();
    let image = ImageConfig {
        user: "web".to_owned(),
        ..ImageConfig::default()
    };
    let user = criscope::runtime::oci::spec::resolve_user(&context, &image, &tables);
    let user = user.expect("found through the link");
    assert_eq!((user.uid, user.gid), (33, 34));
    rootfs.remove().expect("removed");
}

#[test]
fn tables_of_users_that_are_too_large_or_no_files_are_refused_unread() {
    let mut place = Place::new();
    let layer = place.layer("1");
    fs::create_dir(layer.join("etc")).expect("dir");
    fs::create_dir(layer.join("dev")).expect("dir");
    let (mode, zero) = (nix::sys::stat::Mode::S_IRWXU, nix::sys::stat::makedev(1, 5));
    let kind = nix::sys::stat::SFlag::S_IFCHR;
    nix::sys::stat::mknod(&layer.join("dev/zero"), kind, mode, zero).expect("device");
    let (rootfs, root) = place.mount();
    let table = root.join("etc/group");
    let refused = |what: &str| {
        let error = UserDatabase::read_below(&root).expect_err(what);
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        fs::remove_file(&table).expect("removed");
    };
    let sparse = fs::File::create(&table).expect("file");
    sparse.set_len(1 << 40).expect("sparse");
    refused("a terabyte");
    symlink("../dev/zero", &table).expect("link");
    refused("a device that never ends");
    nix::unistd::mkfifo(&table, mode).expect("pipe");
    refused("a pipe without a writer");
    UserDatabase::read_below(&root).expect("a missing file is fine");
    rootfs.remove().expect("removed");
}

#[test]
fn volumes_are_initialized_from_the_image() {
    let mut place = Place::new();
    let layer = place.layer("1");
    let data = layer.join("data");
    fs::create_dir_all(data.join("deep/er")).expect("dirs");
    fs::write(data.join("tool"), "program").expect("file");
    chown(data.join("tool"), Some(1000), Some(1001)).expect("owner");
    fs::set_permissions(data.join("tool"), fs::Permissions::from_mode(0o4755)).expect("mode");
    fs::hard_link(data.join("tool"), data.join("deep/same")).expect("link");
    setxattr(data.join("deep"), "user.mark", b"1", XattrFlags::empty()).expect("attribute");
    symlink("/etc/shadow", data.join("link")).expect("link");
    let sock = FileType::Socket;
    mknodat(CWD, data.join("sock"), sock, Mode::from_raw_mode(0o640), 0).expect("node");
    chown(&data, Some(33), Some(34)).expect("owner");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o2770)).expect("mode");
    let past = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let dir = fs::File::open(&data).expect("open");
    dir.set_modified(past).expect("time");
    symlink("data", layer.join("alias")).expect("link");
    symlink("../../../../tmp", layer.join("escape")).expect("link");
    fs::write(layer.join("file"), "").expect("file");
    let (rootfs, root) = place.mount();
    let dir = place.path().join("c");
    let wanted = ["/data", "alias/deep", "/escape", "/var/lib/none", "/data"];
    let volumes = prepare_volumes(&root, wanted, &dir, &volume_limits()).expect("prepared");
    assert_eq!(volumes.len(), 4);
    let copy = &volumes["/data"];
    assert!(copy.starts_with(dir.join("volumes")));
    let stat = fs::metadata(copy).expect("there");
    assert_eq!((stat.uid(), stat.gid(), mode(copy)), (33, 34, 0o2770));
    assert_eq!(stat.modified().expect("time"), past);
    let tool = fs::metadata(copy.join("tool")).expect("there");
    assert_eq!(
        (tool.uid(), tool.gid(), tool.mode() & 0o7777, tool.nlink()),
        (1000, 1001, 0o4755, 2)
    );
    let same = fs::metadata(copy.join("deep/same")).expect("there");
    assert_eq!(same.ino(), tool.ino());
    assert_eq!(fs::read(copy.join("tool")).expect("read"), b"program");
    assert_eq!(
        fs::read_link(copy.join("link")).expect("link"),
        Path::new("/etc/shadow")
    );
    let sock = fs::symlink_metadata(copy.join("sock")).expect("there");
    assert!(sock.file_type().is_socket());
    assert_eq!(sock.mode() & 0o7777, 0o640);
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(copy.join("deep"), "user.mark", &mut value[..]);
    assert_eq!(&value[..length.expect("attribute")], b"1");
    assert!(volumes["alias/deep"].join("er").is_dir());
    // Volumes that do not exist in the image, or that a link leads out of it, are empty and owned by root.
    for volume in ["/escape", "/var/lib/none"] {
        let stat = fs::metadata(&volumes[volume]).expect("there");
        assert_eq!((stat.uid(), stat.mode() & 0o7777), (0, 0o755));
        assert_eq!(fs::read_dir(&volumes[volume]).expect("dir").count(), 0);
    }
    // The copy is private to the container.
    fs::write(copy.join("tool"), "changed").expect("write");
    assert_eq!(fs::read(root.join("data/tool")).expect("read"), b"program");
    assert!(matches!(
        prepare_volumes(&root, ["/data"], &dir, &volume_limits()),
        Err(Error::Exists { .. })
    ));
    let other = place.path().join("d");
    assert!(matches!(
        prepare_volumes(&root, ["/file"], &other, &volume_limits()),
        Err(Error::Kind { .. })
    ));
    for bad in ["", "/", "/./", "a\0b"] {
        let refused =
            prepare_volumes(&root, [bad], &other, &volume_limits()).expect_err("no place");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
}
