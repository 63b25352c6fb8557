//! Directories that a layer has no entries for.

use std::os::unix::fs::PermissionsExt as _;

use super::{export, trees};
use crate::runtime::image::*;

/// An empty one, and one that has got an entry after all.
#[tokio::test]
async fn a_directory_without_entry_is_exported_even_if_nothing_is_left_in_it() {
    let (store, other) = (Store::new().await, Store::new().await);
    let file = store.dir.path().join("a.tar");
    let base = layer().dir("lower/", 0o700).end();
    let upper = layer()
        // What only aufs knows is not unpacked.
        .file("lower/.wh..wh.aufs", b"")
        .file("new/empty/.wh..wh.aufs", b"")
        // A link leads through a directory and out again.
        .link("link", "passed/..")
        .file("link/f", b"")
        .file("later/sub/f", b"")
        .file("later/sub", b"")
        .dir("later/sub/", 0o711)
        .end();
    let layers = [base, upper].map(|layer| (layer.clone(), layer));
    fs::write(&file, docker_archive("a:1", &image(&layers))).expect("write");
    store.images.import(&file).await.expect("import");
    let ours = store.images.layers("a:1").expect("layers");
    let path = ours.paths().iter().find(|path| path.join("new").exists());
    let mode = |name: &str| {
        let found = path.expect("a layer").join(name).metadata();
        found.expect(name).permissions().mode() & 0o777
    };
    assert_eq!((mode("passed"), mode("new/empty")), (0o755, 0o755));
    assert_eq!((mode("later/sub"), mode("lower")), (0o711, 0o700));

    let (archive, _) = export(&store.images, &["a:1"]).await;
    fs::write(&file, &archive).expect("write");
    other.images.import(&file).await.expect("import");
    let theirs = other.images.layers("a:1").expect("layers");
    // Implied directories have the time of the import.
    let without_times = |lease| {
        let mut all = trees(lease);
        for (_, text) in all.iter_mut().flatten() {
            if text.starts_with("40") {
                text.truncate(text.rfind(' ').unwrap_or(0));
            }
        }
        all
    };
    assert_eq!(without_times(&ours), without_times(&theirs));
    assert!(export(&other.images, &["a:1"]).await.0 == archive);
}
