//! Images from archives: plain, compressed, several in one, and a directory of them.

use std::time::SystemTime;

use criscope_image::{DirectoryImport, ImportDirectory};

use super::*;

fn some(text: &str) -> Image {
    with_file(text.as_bytes())
}

/// An OCI image layout in a tar.
pub(super) fn oci_archive(images: &[(&str, &str, &Image)]) -> Vec<u8> {
    let mut archive = layer().file("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}");
    let mut entries = Vec::new();
    for (key, name, image) in images {
        for blob in image.layers.iter().chain([&image.config, &image.manifest]) {
            archive = archive
                .pax(&[(
                    "path",
                    format!("blobs/sha256/{}", Digest::sha256(blob).hex()).as_bytes(),
                )])
                .file("x", blob);
        }
        let mut entry = descriptor(OCI, &image.manifest);
        entry["annotations"] = json!({*key: *name});
        entries.push(entry);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
    archive
        .file("./index.json", index.to_string().as_bytes())
        .end()
}

#[tokio::test]
async fn every_kind_of_archive() {
    let store = Store::new().await;
    let (a, b) = (some("a"), some("b"));
    let docker = docker_archive("a:1", &a);
    let oci = oci_archive(&[
        ("io.containerd.image.name", "docker.io/library/b:1", &b),
        ("org.opencontainers.image.ref.name", "quay.io/b:2", &b),
        ("org.opencontainers.image.ref.name", "latest", &b),
    ]);
    let zstd = zstd::encode_all(&docker[..], 1).expect("zstd");
    for (file, bytes, images) in [
        ("a", &docker, 1),
        ("b", &oci, 1),
        ("c", &gzip(&oci), 1),
        ("d", &zstd, 1),
    ] {
        let path = store.dir.path().join(file);
        fs::write(&path, bytes).expect("write");
        let imported = store.images.import(&path).await.expect("import");
        assert_eq!(imported.len(), images, "{file}");
    }
    let status = |name: &str| {
        store
            .images
            .status(name)
            .expect("status")
            .map(|image| image.id)
    };
    assert_eq!(status("a:1"), Some(a.id()));
    assert_eq!(
        (status("b:1"), status("quay.io/b:2")),
        (Some(b.id()), Some(b.id()))
    );
    assert_eq!(
        status(&format!("b@{}", Digest::sha256(&b.manifest))),
        Some(b.id())
    );
    for id in [a.id(), b.id()] {
        assert!(store.images.remove(id.as_str()).await.expect("remove"));
    }
    store.assert_empty().await;
}

#[tokio::test]
async fn damaged_archives() {
    let store = Store::new().await;
    let built = some("a");
    let (docker, oci) = (
        docker_archive("a:1", &built),
        oci_archive(&[("io.containerd.image.name", "a:1", &built)]),
    );
    let mut changed = built.clone();
    changed.config.push(b' ');
    let mut swapped = oci.clone();
    let at = swapped
        .windows(6)
        .position(|w| w == b"Entryp")
        .expect("the configuration");
    swapped[at] = b'x';
    let other = docker_archive("a:1", &image_for("s390x", &[]));
    let path = store.dir.path().join("archive");
    for (what, bytes) in [
        ("cut off", &docker[..docker.len() / 2]),
        ("nothing", b"".as_slice()),
        ("no archive", b"hello"),
        ("of another kind", &layer().file("x", b"y").end()),
        ("cut off when compressed", &gzip(&docker)[..100]),
        ("changed", &swapped),
        ("for another machine", &other),
        (
            "with circular links",
            &layer().link("manifest.json", "manifest.json").end(),
        ),
    ] {
        fs::write(&path, bytes).expect("write");
        let error = store.images.import(&path).await.expect_err(what);
        let is_clear = matches!(
            error,
            Error::Invalid { .. } | Error::WrongDigest { .. } | Error::NoPlatform { .. }
        );
        assert!(is_clear, "{what}: {error}");
        store.assert_empty().await;
    }
    let error = store
        .images
        .import(&store.dir.path().join("none"))
        .await
        .expect_err("none");
    assert!(error.to_string().contains("none"));
}

/// Writes a file whose modification time is `modified`.
fn put(path: &Path, bytes: &[u8], modified: SystemTime) {
    fs::write(path, bytes).expect("write");
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(modified).expect("time");
}

/// Imports a directory as a new process does.
async fn scanned(store: &Store, dir: &Path) -> (usize, usize, usize) {
    let done = ImportDirectory::new(dir).scan(&store.images).await;
    counts(&done.expect("scan"))
}

fn counts(done: &DirectoryImport) -> (usize, usize, usize) {
    (done.imported.len(), done.unchanged, done.failed.len())
}

#[tokio::test]
async fn a_directory_is_imported_once() {
    let store = Store::with(|config| config.keep_unused = Duration::from_secs(3600)).await;
    let dir = store.dir.path().join("import");
    assert_eq!(scanned(&store, &dir).await, (0, 0, 0), "no folder");
    fs::create_dir(&dir).expect("a folder");
    // Old files, which are considered complete immediately.
    let past = SystemTime::now() - Duration::from_secs(60);
    let (a, b) = (some("a"), gzip(&docker_archive("b:1", &some("b"))));
    put(&dir.join("a.tar"), &docker_archive("a:1", &a), past);
    put(&dir.join("b.tar.gz"), &b, past);
    put(&dir.join("bad.tar"), b"bad", past);
    put(&dir.join("README"), b"text", past);
    assert_eq!(scanned(&store, &dir).await, (2, 0, 1));
    assert_eq!(scanned(&store, &dir).await, (0, 2, 1));
    store.images.remove("a:1").await.expect("remove");
    let c = docker_archive("c:1", &some("c"));
    put(&dir.join("bad.tar"), &c, past);
    assert_eq!(scanned(&store, &dir).await, (2, 1, 0));
    assert_eq!(store.images.list(None).expect("list").len(), 3);
}

#[tokio::test]
async fn an_archive_in_the_directory_is_imported_when_it_no_longer_grows() {
    let store = Store::with(|config| config.keep_unused = Duration::from_secs(3600)).await;
    let dir = store.dir.path().join("import");
    let mut folder = ImportDirectory::new(&dir);
    let mut look = async || counts(&folder.scan(&store.images).await.expect("look"));
    assert_eq!(look().await, (0, 0, 0), "the directory need not exist");
    fs::create_dir(&dir).expect("a folder");
    let now = SystemTime::now();
    let (past, future) = (
        now - Duration::from_secs(60),
        now + Duration::from_secs(3600),
    );
    // With an mtime in the future, only two scans can show that a file is complete.
    let (archive, bytes) = (dir.join("a.tar"), docker_archive("a:1", &some("a")));
    put(&archive, &bytes[..bytes.len() / 2], future);
    assert_eq!(look().await, (0, 0, 0), "it is new");
    put(&archive, &bytes, future);
    assert_eq!(look().await, (0, 0, 0), "it has grown");
    assert_eq!(look().await, (1, 0, 0));
    assert_eq!(look().await, (0, 1, 0));
    // A file that is not an archive is reported once per version. An old file is considered complete immediately.
    let bad = dir.join("bad.tar");
    for text in ["bad", "also bad"] {
        put(&bad, text.as_bytes(), past);
        assert_eq!(look().await, (0, 1, 1), "{text}");
        assert_eq!(look().await, (0, 1, 0), "{text}");
    }
    fs::remove_file(&bad).expect("remove");
    // The next process knows what was imported.
    assert_eq!(scanned(&store, &dir).await, (0, 1, 0));
}
