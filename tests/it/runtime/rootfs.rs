//! Mounting, reading, writing and removing root file systems, with real overlayfs. Needs root.

use std::ffi::CString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::{Path, PathBuf};

use super::Scratch;
use criscope::runtime::code::GrpcCode as _;
use criscope::runtime::oci::spec::UserDatabase;
use criscope_linux::rootfs::{
    Error, MountRequest, Rootfs, Shm, is_mounted, list_mounts_below, mount_shm, open_in_root,
    prepare_volumes, unmount,
};
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use rustix::fs::{CWD, FileType, IFlags, Mode, XattrFlags, ioctl_setflags, mknodat, setxattr};

/// A directory for layers and one container.
struct Place {
    scratch: Scratch,
    layers: Vec<PathBuf>,
}

impl Place {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test mounts file systems: it needs root"
        );
        Self {
            scratch: Scratch::new(),
            layers: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Adds a layer on top.
    fn layer(&mut self, name: &str) -> PathBuf {
        let layer = self.path().join("layers").join(name);
        fs::create_dir_all(&layer).expect("layer");
        self.layers.push(layer.clone());
        layer
    }

    fn container(&self) -> Rootfs {
        Rootfs::new(self.path().join("c"))
    }

    fn request(&self) -> MountRequest {
        MountRequest {
            layers: self.layers.clone(),
            ..MountRequest::default()
        }
    }

    fn mount(&self) -> (Rootfs, PathBuf) {
        let rootfs = self.container();
        let path = rootfs.mount(&self.request()).expect("mounted");
        (rootfs, path)
    }

    fn is_clean(&self) -> bool {
        !self.path().join("c").exists() && self.mounts() == 0
    }

    fn mounts(&self) -> usize {
        list_mounts_below(self.path()).expect("table").len()
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

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
    assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
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

fn bind(from: &Path, to: &Path) {
    let none = None::<&str>;
    mount(Some(from), to, none, MsFlags::MS_BIND, none).expect("bind");
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
    let tables = UserDatabase::of_rootfs(&root).expect("read");
    let context = criscope::cri::v1::LinuxContainerSecurityContext::default();
    let user = criscope::runtime::oci::spec::resolve_user(&context, "web", &tables);
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
        let error = UserDatabase::of_rootfs(&root).expect_err(what);
        assert_eq!(error.code(), tonic::Code::FailedPrecondition, "{error}");
        fs::remove_file(&table).expect("removed");
    };
    let sparse = fs::File::create(&table).expect("file");
    sparse.set_len(1 << 40).expect("sparse");
    refused("a terabyte");
    symlink("../dev/zero", &table).expect("link");
    refused("a device that never ends");
    nix::unistd::mkfifo(&table, mode).expect("pipe");
    refused("a pipe without a writer");
    UserDatabase::of_rootfs(&root).expect("a missing file is fine");
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
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let dir = fs::File::open(&data).expect("open");
    dir.set_modified(past).expect("time");
    symlink("data", layer.join("alias")).expect("link");
    symlink("../../../../tmp", layer.join("escape")).expect("link");
    fs::write(layer.join("file"), "").expect("file");
    let (rootfs, root) = place.mount();
    let dir = place.path().join("c");
    let wanted = ["/data", "alias/deep", "/escape", "/var/lib/none", "/data"];
    let volumes = prepare_volumes(&root, wanted, &dir).expect("prepared");
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
        prepare_volumes(&root, ["/data"], &dir),
        Err(Error::Exists { .. })
    ));
    let other = place.path().join("d");
    assert!(matches!(
        prepare_volumes(&root, ["/file"], &other),
        Err(Error::Kind { .. })
    ));
    for bad in ["", "/", "/./", "a\0b"] {
        let refused = prepare_volumes(&root, [bad], &other).expect_err("no place");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    }
    rootfs.remove().expect("removed");
    assert!(place.is_clean());
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
    unmount(&dir).expect("unmounted");
    unmount(&dir).expect("again");
    assert!(!is_mounted(&dir).expect("known"));
    fs::DirBuilder::new()
        .mode(0o700)
        .create(place.path().join("pod/none"))
        .expect("dir");
    assert!(!is_mounted(&place.path().join("pod/none")).expect("known"));
}
