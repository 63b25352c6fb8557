//! Unpacking the entries of a layer, including invalid ones.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use criscope_image::LayerLease;
use tar::EntryType;

use super::*;

/// Imports an image with these layers.
async fn unpack(store: &Store, layers: Vec<Layer>) -> Result<LayerLease, Error> {
    let layers: Vec<_> = layers
        .into_iter()
        .map(Layer::end)
        .map(|l| (l.clone(), l))
        .collect();
    let archive = store.dir.path().join("image.tar");
    fs::write(&archive, docker_archive("test/image:1", &image(&layers))).expect("write");
    store.images.import(&archive).await?;
    store.images.layers("test/image:1")
}

async fn refused(change: impl FnOnce(&mut ImageStoreConfig), layer: Layer) -> Error {
    let store = Store::with(change).await;
    let error = unpack(&store, vec![layer]).await.expect_err("refused");
    store.assert_empty().await;
    error
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    Some(value[..length].to_vec())
}

fn is_whiteout(path: &Path) -> bool {
    let metadata = path.symlink_metadata().expect("a whiteout");
    metadata.file_type().is_char_device() && metadata.rdev() == 0
}

#[tokio::test]
async fn all_kinds_of_entries_in_a_layer() {
    let store = Store::new().await;
    let long = format!("long/{}/{}", "n".repeat(120), "m".repeat(120));
    let capability = [1, 0, 0, 2, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let built = layer()
        .entry("./", EntryType::Directory, b"", |h| h.set_mode(0o751))
        .dir("d/", 0o1777)
        .entry("d/suid", EntryType::Regular, b"x", |h| {
            h.set_mode(0o4755);
            h.set_uid(1234);
            h.set_gid(4321);
        })
        .hard_link("d/again", "d/suid")
        .link("d/link", "/etc/passwd")
        .hard_link("d/link-again", "d/link")
        .entry("d/null", EntryType::Char, b"", |h| {
            h.set_mode(0o666);
            h.set_device_major(1).expect("major");
            h.set_device_minor(3).expect("minor");
        })
        .entry("d/block", EntryType::Block, b"", |h| {
            h.set_device_major(7).expect("major")
        })
        .entry("d/pipe", EntryType::Fifo, b"", |_| {})
        .pax(&[
            ("SCHILY.xattr.user.a", b"b\nc"),
            ("SCHILY.xattr.security.capability", &capability),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("mtime", b"1234567890.5"),
        ])
        .file("d/attributes", b"")
        .pax(&[("path", long.as_bytes())])
        .file("short", b"far away")
        .file("old/", b"")
        .dir("d/deep/", 0o700)
        .file(".wh.gone", b"")
        .dir("hidden/", 0o755)
        .file("hidden/.wh..wh..opq", b"")
        .file("hidden/new", b"")
        .file(".wh.again", b"")
        .dir("again/", 0o755)
        .file("kept", b"kept")
        .file(".wh.kept", b"")
        .file("replaced", b"first")
        .dir("replaced/", 0o755)
        .file("replaced/inner", b"")
        .file("replaced", b"last");
    let layers = unpack(&store, vec![built]).await.expect("unpack");
    let root = &layers.paths()[0];
    let at = |path: &str| root.join(path);
    let stat = |path: &str| at(path).symlink_metadata().expect(path);
    assert_eq!(root.metadata().expect("root").mode() & 0o7777, 0o751);
    let suid = stat("d/suid");
    assert_eq!(
        (suid.mode() & 0o7777, suid.uid(), suid.gid(), suid.nlink()),
        (0o4755, 1234, 4321, 2)
    );
    assert_eq!(suid.ino(), stat("d/again").ino());
    assert_eq!(
        fs::read_link(at("d/link")).expect("link"),
        Path::new("/etc/passwd")
    );
    assert_eq!(stat("d/link").ino(), stat("d/link-again").ino());
    assert_eq!(stat("d/null").rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(stat("d/null").mode() & 0o7777, 0o666);
    assert!(stat("d/block").file_type().is_block_device() && stat("d/pipe").file_type().is_fifo());
    assert_eq!(stat("d").mode() & 0o7777, 0o1777);
    assert_eq!(stat("d").mtime(), 1_000_000_000);
    assert_eq!(
        attribute(&at("d/attributes"), "user.a").as_deref(),
        Some(&b"b\nc"[..])
    );
    assert!(attribute(&at("d/attributes"), "security.capability").is_some());
    assert!(attribute(&at("d/attributes"), "trusted.overlay.redirect").is_none());
    assert!(attribute(&at("d/attributes"), "user.overlay.opaque").is_none());
    assert_eq!(
        (
            stat("d/attributes").mtime(),
            stat("d/attributes").mtime_nsec()
        ),
        (1_234_567_890, 500_000_000)
    );
    assert_eq!(fs::read(at(&long)).expect("long"), b"far away");
    assert!(at("old").is_dir());
    assert!(is_whiteout(&at("gone")));
    assert_eq!(
        attribute(&at("hidden"), "trusted.overlay.opaque").as_deref(),
        Some(&b"y"[..])
    );
    assert_eq!(
        attribute(&at("again"), "trusted.overlay.opaque").as_deref(),
        Some(&b"y"[..])
    );
    assert_eq!(fs::read(at("kept")).expect("kept"), b"kept");
    assert_eq!(fs::read(at("replaced")).expect("replaced"), b"last");
}

#[tokio::test]
async fn nothing_is_written_outside() {
    let outside = tempfile::tempdir().expect("a folder");
    let target = outside.path().join("target");
    fs::write(&target, "untouched").expect("write");
    let absolute = outside.path().to_str().expect("text");
    let up = format!("../../../../../../../..{absolute}");
    // Links are resolved within the layer, whatever their target.
    let store = Store::new().await;
    let built = layer()
        .link("absolute", absolute)
        .file("absolute/target", b"inside")
        .link("up", &up)
        .file("up/target", b"inside")
        .link("one", "two")
        .link("two", absolute)
        .file("one/another", b"inside")
        .link("process", "/proc/self/cwd")
        .file("process/there", b"inside")
        .file("/rooted", b"inside")
        .link("last", target.to_str().expect("text"))
        .file("last", b"inside")
        .link("dangling", "not/there")
        .file("dangling/x", b"inside");
    let layers = unpack(&store, vec![built]).await.expect("unpack");
    let root = &layers.paths()[0];
    let inside = |path: &str| fs::read_to_string(root.join(path)).expect(path);
    let below = absolute.trim_start_matches('/');
    assert_eq!(inside(&format!("{below}/target")), "inside");
    assert_eq!(inside(&format!("{below}/another")), "inside");
    for path in ["proc/self/cwd/there", "rooted", "last", "not/there/x"] {
        assert_eq!(inside(path), "inside");
    }
    assert_eq!(fs::read_to_string(&target).expect("target"), "untouched");
    assert_eq!(fs::read_dir(outside.path()).expect("outside").count(), 1);
    // Entries whose path leads outside are refused.
    for built in [
        layer().file("../x", b"out"),
        layer().file("a/../../x", b"out"),
        layer().link("l", absolute).hard_link("x", "l/target"),
        layer().hard_link("x", "../../../../../../../../etc/passwd"),
        layer().hard_link("x", &up),
        layer().file("a/.wh...", b""),
        layer().file(".wh.", b""),
        layer().link("a", "a").file("a/x", b"round"),
    ] {
        let error = refused(|_| {}, built).await;
        assert!(matches!(error, Error::Unpack { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&target).expect("target"), "untouched");
    assert_eq!(target.metadata().expect("target").nlink(), 1);
}

#[tokio::test]
async fn bombs_and_nonsense() {
    let zeros = vec![0; 8 << 20];
    let large = || layer().file("zeros", &zeros);
    let error = refused(|config| config.limits.max_unpacked_bytes = 1 << 20, large()).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let many = (0..50).fold(layer(), |layer, n| layer.file(&n.to_string(), b""));
    let error = refused(|config| config.limits.max_entries = 40, many).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // One entry can create many implicit directories. They count, and so does the memory for their paths.
    let few = layer()
        .file(&format!("a/{}f", "d/".repeat(25)), b"")
        .file(&format!("b/{}f", "d/".repeat(25)), b"")
        .file("c", b"");
    let error = refused(|config| config.limits.max_entries = 40, few).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let few = (0..20).fold(layer(), |layer, n| {
        let path = format!("{n}/{}f", "1234567/".repeat(490));
        layer.pax(&[("path", path.as_bytes())]).file("f", b"")
    });
    let error = refused(|_| {}, few).await;
    assert!(error.to_string().contains("no entry makes"), "{error}");
    let error = refused(
        |_| {},
        layer().pax(&[("GNU.sparse.major", b"1")]).file("f", b""),
    )
    .await;
    assert!(error.to_string().contains("sparse"), "{error}");
    let error = refused(
        |_| {},
        layer().entry("f", EntryType::GNUSparse, b"", |_| {}),
    )
    .await;
    assert!(error.to_string().contains("sparse"), "{error}");
    let error = refused(|_| {}, layer().file("f", b"").file("f/g", b"")).await;
    assert!(matches!(error, Error::Unpack { .. }), "{error}");
    // A compressed bomb, by its ratio.
    let store = Store::with(|config| {
        config.limits.ratio_from_bytes = 1 << 20;
        config.limits.max_ratio = 100;
    })
    .await;
    let plain = large().end();
    let archive = store.dir.path().join("image.tar");
    let bomb = image(&[(gzip(&plain), plain)]);
    fs::write(&archive, docker_archive("a:1", &bomb)).expect("write");
    let error = store.images.import(&archive).await.expect_err("a bomb");
    assert!(error.to_string().contains("100 times"), "{error}");
    store.assert_empty().await;
}

#[tokio::test]
async fn a_layer_with_implicit_directories_fits_on_lower_layers() {
    let store = Store::new().await;
    let base = layer()
        .dir("usr/", 0o755)
        .dir("usr/lib/", 0o711)
        .file("usr/lib/old", b"old")
        .link("lib", "usr/lib")
        .entry("home/", EntryType::Directory, b"", |h| {
            h.set_mode(0o700);
            h.set_uid(7);
        })
        .dir("plain/", 0o755);
    let fits = layer().file("plain/x", b"x");
    let above = layer()
        .file("lib/new", b"new")
        .file("lib/deep/er", b"er")
        .file("home/x", b"x")
        .file("home/.wh.gone", b"");
    let layers = unpack(&store, vec![base, fits, above])
        .await
        .expect("unpack");
    let [base, fits, above]: [PathBuf; 3] = layers.paths().to_vec().try_into().expect("three");
    assert!(fits.join("plain/x").exists());
    assert_eq!(
        layers.ids()[1],
        make::digest(&layer().file("plain/x", b"x").end())
    );
    assert!(above.join("lib").symlink_metadata().is_err());
    assert_eq!(
        fs::read_to_string(above.join("usr/lib/new")).expect("new"),
        "new"
    );
    assert_eq!(
        fs::read_to_string(above.join("usr/lib/deep/er")).expect("er"),
        "er"
    );
    assert_eq!(
        above.join("usr/lib").metadata().expect("lib").mode() & 0o7777,
        0o711
    );
    let home = above.join("home").metadata().expect("home");
    assert_eq!((home.mode() & 0o7777, home.uid()), (0o700, 7));
    assert!(is_whiteout(&above.join("home/gone")));
    // As overlayfs shows it.
    let merged = Mounted::new(store.dir.path(), &[&above, &fits, &base]);
    let read = |path: &str| fs::read_to_string(merged.0.join(path)).expect(path);
    assert_eq!(
        (read("lib/old"), read("lib/new"), read("lib/deep/er")),
        ("old".into(), "new".into(), "er".into())
    );
    drop((merged, layers));
    store.images.remove("test/image:1").await.expect("remove");
    store.assert_empty().await;
}

/// Layers mounted with overlayfs, topmost first.
struct Mounted(PathBuf);

impl Mounted {
    fn new(dir: &Path, layers: &[&PathBuf]) -> Self {
        let target = dir.join("merged");
        fs::create_dir(&target).expect("a folder");
        let lower: Vec<_> = layers.iter().map(|l| l.to_str().expect("text")).collect();
        let options = format!("lowerdir={}", lower.join(":"));
        let flags = nix::mount::MsFlags::MS_RDONLY;
        nix::mount::mount(
            Some("overlay"),
            &target,
            Some("overlay"),
            flags,
            Some(options.as_str()),
        )
        .expect("mount");
        Self(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}
