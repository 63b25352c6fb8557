//! Artifacts: pulled, mounted and removed like images, but never run.

use std::os::unix::fs::PermissionsExt as _;

use criscope_image::Shortage;

use super::*;

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

/// Pushes an artifact with the file `data`, which only its configuration tells from an image; returns its name.
pub(super) fn push_undeclared(registry: &Registry, tag: &str) -> String {
    let (content, file) = (b"{\"some\": \"settings\"}".as_slice(), b"data".as_slice());
    for blob in [content, file] {
        registry.put(&format!("a/blobs/{}", Digest::sha256(blob)), "", blob);
    }
    let mut layer = descriptor("application/octet-stream", file);
    layer["annotations"] = json!({"org.opencontainers.image.title": "data"});
    let config = descriptor("application/json", content);
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]}).to_string();
    registry.put_manifest("a", tag, OCI, manifest.as_bytes());
    registry.name(&format!("a:{tag}"))
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
    let id = store.pull(&name).await;
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
    store.pull(&name).await;
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
        let error = store.refuses(&name).await;
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        store.assert_empty().await;
    }
    // Content that is not what its digest says.
    let store = Store::new().await;
    push(&registry, &[("f", b"good".as_slice())]);
    registry.put(&format!("a/blobs/{}", Digest::sha256(b"good")), "", b"evil");
    let error = store.refuses(&name).await;
    assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
    store.assert_empty().await;
    let store = Store::with(|config| config.limits.max_layer_bytes = 10).await;
    push(
        &registry,
        &[("f", b"123456".as_slice()), ("g", b"123456".as_slice())],
    );
    let error = store.refuses(&name).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    store.assert_empty().await;
    // Empty files take no bytes, but inodes.
    let store = Store::with(|config| config.limits.min_free_inodes = u64::MAX).await;
    push(&registry, &[("dir/f", b"".as_slice())]);
    let error = store.refuses(&name).await;
    let shortage = match error {
        Error::NoSpace { shortage, .. } => shortage,
        other => panic!("{other}"),
    };
    assert!(matches!(shortage, Shortage::Inodes { .. }), "{shortage}");
    store.assert_empty().await;
}
