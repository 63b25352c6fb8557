//! Artifacts: pulled, mounted and removed like images, but never run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use criscope_image::{Digest, Error, ImageStore, Shortage};
use serde_json::{Value, json};

use super::Store;
use super::make::{OCI, descriptor};
use super::registry::Registry;
use crate::harness::image_store;

const TITLE: &str = "org.opencontainers.image.title";
const KIND: &str = "application/vnd.example.model";

/// Pushes an artifact with these files as `a:1`, and returns the digest of its manifest.
pub(super) fn push(registry: &Registry, files: &[(&str, &[u8])]) -> Digest {
    let empty = b"{}".as_slice();
    registry.put(&format!("a/blobs/{}", Digest::sha256(empty)), "", empty);
    let layers: Vec<Value> = files
        .iter()
        .map(|(name, content)| {
            registry.put(&format!("a/blobs/{}", Digest::sha256(content)), "", content);
            let mut layer = descriptor("application/octet-stream", content);
            layer["annotations"] = json!({TITLE: name});
            layer
        })
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI,
        "artifactType": KIND,
        "config": descriptor("application/vnd.oci.empty.v1+json", empty),
        "layers": layers,
    });
    let manifest = manifest.to_string().into_bytes();
    registry.put_manifest("a", "1", OCI, &manifest);
    Digest::sha256(&manifest)
}

#[tokio::test]
async fn the_files_of_an_artifact() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let large = vec![7; 3 << 20];
    let files = [
        ("readme", b"hello".as_slice()),
        ("weights/1.bin", large.as_slice()),
        ("weights/2.bin", b"".as_slice()),
    ];
    let manifest = push(&registry, &files);
    let name = registry.name("a:1");
    let id = store.images.pull(&name, None, None).await.expect("pull");
    assert_eq!(id, manifest);
    let check = |images: &ImageStore| {
        let image = images.status(&name).expect("status").expect("here");
        assert_eq!(image.artifact_type.as_deref(), Some(KIND));
        assert_eq!(image.digests, [registry.name(&format!("a@{manifest}"))]);
        assert!(image.size >= large.len() as u64);
        let layers = images.layers(id.as_str()).expect("layers");
        let [root] = layers.paths() else {
            panic!("one directory");
        };
        for (path, content) in files {
            assert_eq!(fs::read(root.join(path)).expect(path), content);
            let mode = fs::metadata(root.join(path)).expect(path).permissions();
            assert_eq!(mode.mode() & 0o777, 0o644);
        }
        assert_eq!(fs::read_dir(root).expect("root").count(), 2);
    };
    check(&store.images);
    // It is there after a restart, and a second pull fetches nothing.
    registry.forget();
    store.images.pull(&name, None, None).await.expect("again");
    assert!(registry.asked("blobs").is_empty());
    store.images.settled().await.expect("on disk");
    let Store { images, dir } = store;
    drop(images);
    let images = image_store::open(&super::config(dir.path())).await;
    assert!(images.problems().is_empty(), "{:?}", images.problems());
    check(&images);
    assert!(images.labels(&id).await.expect("labels").is_empty());
    images.remove(&name).await.expect("remove");
    images.settled().await.expect("on disk");
    Store { images, dir }.assert_empty().await;
}

#[tokio::test]
async fn artifacts_that_are_refused_leave_nothing() {
    let registry = Registry::start().await;
    let name = registry.name("a:1");
    for files in [
        &[("../escape", b"x".as_slice())][..],
        &[("/etc/passwd", b"x".as_slice())],
        &[("a", b"x".as_slice()), ("a/b", b"x".as_slice())],
    ] {
        let store = Store::new().await;
        push(&registry, files);
        let error = store
            .images
            .pull(&name, None, None)
            .await
            .expect_err("refused");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        store.assert_empty().await;
    }
    // Content that is not what its digest says.
    let store = Store::new().await;
    push(&registry, &[("f", b"good".as_slice())]);
    registry.put(&format!("a/blobs/{}", Digest::sha256(b"good")), "", b"evil");
    let error = store
        .images
        .pull(&name, None, None)
        .await
        .expect_err("wrong");
    assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
    store.assert_empty().await;
    let store = Store::with(|config| config.limits.max_layer_bytes = 10).await;
    push(
        &registry,
        &[("f", b"123456".as_slice()), ("g", b"123456".as_slice())],
    );
    let error = store
        .images
        .pull(&name, None, None)
        .await
        .expect_err("too large");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    store.assert_empty().await;
    // Empty files take no bytes, but inodes.
    let store = Store::with(|config| config.limits.min_free_inodes = u64::MAX).await;
    push(&registry, &[("dir/f", b"".as_slice())]);
    let error = store
        .images
        .pull(&name, None, None)
        .await
        .expect_err("no room");
    let shortage = match error {
        Error::NoSpace { shortage, .. } => shortage,
        other => panic!("{other}"),
    };
    assert!(matches!(shortage, Shortage::Inodes { .. }), "{shortage}");
    store.assert_empty().await;
}
