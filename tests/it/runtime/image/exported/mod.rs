//! Images exported from the store: what is in the archive, and what other programs make of it.

mod command;
mod containerd;
mod implied;

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use criscope_image::{ExportOptions, ExportWatch, ExportedImage, LayerLease};
use tar::EntryType;

use super::encrypted::{KEY, push, secret, with_provider};
use super::*;
use crate::harness::docker_registry::skopeo;

/// A capability (`cap_net_bind_service=ep`) as an extended attribute.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Everything that a layer can contain, and then layers that hide some of it or contain nothing.
fn layers() -> Vec<Vec<u8>> {
    let long = format!("long/{}/{}", "n".repeat(120), "m".repeat(120));
    let base = layer()
        .dir("bin/", 0o755)
        .entry("bin/su", EntryType::Regular, b"#!su", |h| {
            h.set_mode(0o4755);
            h.set_uid(1234);
            h.set_gid(4321);
        })
        .hard_link("bin/again", "bin/su")
        .link("bin/link", "/etc/passwd")
        .hard_link("bin/link-again", "bin/link")
        .entry("bin/null", EntryType::Char, b"", |h| {
            h.set_mode(0o666);
            h.set_device_major(1).expect("major");
            h.set_device_minor(3).expect("minor");
        })
        .entry("bin/pipe", EntryType::Fifo, b"", |_| {})
        .pax(&[
            ("SCHILY.xattr.user.a", b"b\nc=\0"),
            ("SCHILY.xattr.security.capability", &CAPABILITY),
            ("uid", b"3000000000"),
            ("mtime", b"1234567890.5"),
        ])
        .file("bin/attributes", b"x")
        .pax(&[("SCHILY.xattr.user.dir", b"1"), ("mtime", b"-1.25")])
        .dir("tmp/", 0o1777)
        .dir("long/", 0o755)
        .pax(&[("path", format!("long/{}/", "n".repeat(120)).as_bytes())])
        .dir("short/", 0o755)
        .pax(&[("path", long.as_bytes())])
        .file("short", &[7; 70_000])
        .dir("etc/", 0o755)
        .file("etc/gone", b"")
        .file("etc/kept", b"1")
        .dir("opt/", 0o755)
        .file("opt/hidden", b"")
        .dir("usr/", 0o700)
        .dir("usr/lib/", 0o711)
        .file("usr/lib/a", b"");
    let upper = layer()
        .dir("etc/", 0o750)
        .file("etc/.wh.gone", b"")
        .file("etc/kept", b"2")
        .dir("opt/", 0o755)
        .file("opt/.wh..wh..opq", b"")
        .file("opt/new", b"")
        // Its directories have no entries, and are those of the layer below.
        .file("usr/lib/b", b"b");
    let empty = layer();
    let last = layer()
        .entry("./", EntryType::Directory, b"", |h| h.set_mode(0o751))
        .file(".wh.tmp", b"");
    let all = [base, upper, empty, layer(), last];
    all.into_iter().map(make::Layer::end).collect()
}

/// The attributes of each file that are compared.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    let mut names: BTreeMap<u64, PathBuf> = BTreeMap::new();
    while let Some(path) = todo.pop() {
        let stat = path.symlink_metadata().expect("metadata");
        let kind = stat.file_type();
        let relative = path.strip_prefix(root).expect("below").to_owned();
        let mut text = format!("{:o} {}:{}", stat.mode(), stat.uid(), stat.gid());
        if kind.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder");
            let mut entries: Vec<_> = entries.map(|it| it.expect("an entry").path()).collect();
            // In reverse, so that names of hard links are found in their order.
            entries.sort_by(|a, b| b.cmp(a));
            todo.extend(entries);
        } else {
            let first = names.entry(stat.ino()).or_insert_with(|| relative.clone());
            text += &format!(" {} ", first.display());
        }
        let is_whiteout = kind.is_char_device() && stat.rdev() == 0;
        // A layer need not have an entry for its root; whiteouts have no time.
        if relative != Path::new("") && !is_whiteout {
            text += &format!(" {}.{}", stat.mtime(), stat.mtime_nsec());
        }
        if kind.is_file() {
            text += Digest::sha256(&fs::read(&path).expect("content")).as_str();
        } else if kind.is_symlink() {
            text += &format!("{:?}", fs::read_link(&path).expect("a link"));
        } else if kind.is_char_device() {
            text += &stat.rdev().to_string();
        }
        text += &attributes(&path).join(" ");
        found.insert(relative, text);
    }
    found
}

fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names).expect("attributes");
    let names = names[..length].split(|b| *b == 0);
    let mut all: Vec<_> = names
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name, &mut value).expect("an attribute");
            format!("{}={:?}", name.escape_ascii(), &value[..length])
        })
        .collect();
    all.sort();
    all
}

fn trees(lease: &LayerLease) -> Vec<BTreeMap<PathBuf, String>> {
    lease.paths().iter().map(|path| tree(path)).collect()
}

async fn export(images: &ImageStore, names: &[&str]) -> (Vec<u8>, Vec<ExportedImage>) {
    let exported = try_export(images, names, false).await;
    exported.expect("exported")
}

async fn try_export(
    images: &ImageStore,
    names: &[&str],
    allow_decrypted: bool,
) -> Result<(Vec<u8>, Vec<ExportedImage>), Error> {
    let options = ExportOptions {
        images: names.iter().map(|name| (*name).to_owned()).collect(),
        allow_decrypted,
    };
    let images = images.clone();
    let work = move || {
        let mut bytes = Vec::new();
        let exported = images.export(&options, &mut bytes, &ExportWatch::default())?;
        Ok((bytes, exported))
    };
    tokio::task::spawn_blocking(work).await.expect("joined")
}

/// The documents of an archive by their paths.
fn documents(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().expect("entries").map(|entry| {
        let mut entry = entry.expect("an entry");
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).expect("content");
        (entry.path().expect("a path").display().to_string(), bytes)
    });
    entries.collect()
}

fn json_of(documents: &BTreeMap<String, Vec<u8>>, path: &str) -> Value {
    serde_json::from_slice(&documents[path]).expect(path)
}

fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Pushes the image with [`layers`] to a registry, pulls it, and returns its name.
async fn pulled(store: &Store, registry: &DockerRegistry) -> String {
    let dir = store.dir.path();
    let plain = layers().into_iter().map(|layer| (layer.clone(), layer));
    let built = image(&plain.collect::<Vec<_>>());
    let archive = dir.join("original.tar");
    fs::write(&archive, docker_archive("all:1", &built)).expect("write");
    let name = format!("{}/all:1", registry.address());
    let from = format!("docker-archive:{}", archive.display());
    skopeo(&["--format", "oci", &from, &format!("docker://{name}")]);
    store.pull(&name).await;
    name
}

#[tokio::test]
async fn an_exported_image_is_the_same_once_it_is_imported() {
    let (store, other) = (Store::new().await, Store::new().await);
    let dir = store.dir.path();
    let registry = DockerRegistry::start(dir).await;
    let name = pulled(&store, &registry).await;
    let before = store.image(&name);
    let (archive, exported) = export(&store.images, &[&name]).await;
    assert_eq!(exported.len(), 1);
    assert_eq!(exported[0].names, std::slice::from_ref(&name));
    assert_eq!(exported[0].id, before.id);

    let file = dir.join("exported.tar");
    fs::write(&file, &archive).expect("write");
    let imported = other.images.import(&file).await.expect("import");
    assert_eq!(imported[0].names, std::slice::from_ref(&name));
    assert_eq!(imported[0].id, exported[0].exported_id);
    let lease = |images: &ImageStore| images.layers(&name).expect("layers");
    let (ours, theirs) = (lease(&store.images), lease(&other.images));
    for (number, (ours, theirs)) in trees(&ours).iter().zip(trees(&theirs)).enumerate() {
        assert_eq!(*ours, theirs, "layer {number}");
    }
    assert_eq!(ours.paths().len(), theirs.paths().len());
    let after = other.image(&name);
    assert_eq!(after.config, before.config);

    // The same image makes the same archive, also where it was imported.
    assert!(export(&store.images, &[&name]).await.0 == archive);
    assert!(export(&other.images, &[&name]).await.0 == archive);
    // A prefix of the id names the image with all its tags.
    let id = before.id.hex();
    let (by_id, _) = export(&store.images, &[&id[..12], &name]).await;
    assert!(by_id == archive);

    let documents = documents(&archive);
    let index = json_of(&documents, "index.json");
    let listed = &index["manifests"][0];
    assert_eq!(listed["platform"]["os"], "linux");
    assert_eq!(listed["annotations"]["io.containerd.image.name"], name);
    let manifest = format!("blobs/sha256/{}", exported[0].manifest.hex());
    let manifest = json_of(&documents, &manifest);
    let original = before.digests[0].rsplit('@').next().expect("a digest");
    let annotations = &manifest["annotations"];
    assert_eq!(annotations["io.criscope.image.original.digest"], original);
    let original = before.id.as_str();
    assert_eq!(annotations["io.criscope.image.original.id"], original);
    // The two empty layers are in the manifest twice, and in the archive once.
    assert_eq!(manifest["layers"][2], manifest["layers"][3]);

    // skopeo reads both of its forms, and what it pushes is the image.
    let skopeo_program = program("skopeo", "skopeo");
    let oci = format!("oci-archive:{}:{name}", file.display());
    let inspected: Value =
        serde_json::from_str(&run(&skopeo_program, &["inspect", &oci])).expect("JSON");
    assert_eq!(inspected["Digest"], exported[0].manifest.as_str());
    let docker = format!("docker-archive:{}:{name}", file.display());
    for (from, tag) in [(oci, "oci"), (docker, "docker")] {
        let again = format!("{}/all:{tag}", registry.address());
        skopeo(&["--format", "oci", &from, &format!("docker://{again}")]);
        let id = other.pull(&again).await;
        // From the form of Docker, skopeo writes the configuration anew.
        assert!(id == exported[0].exported_id || tag == "docker");
        let again = other.images.layers(&again).expect("layers");
        assert_eq!(again.ids(), theirs.ids(), "{tag}");
    }
}

/// Several images share their layers; one that is not there makes no archive.
#[tokio::test]
async fn several_images_and_their_names() {
    let store = Store::new().await;
    let dir = store.dir.path();
    let file = dir.join("a.tar");
    let shared = layer().file("shared", &[1; 10_000]).end();
    for (name, own) in [("a:1", "a"), ("b:1", "b")] {
        let own = layer().file(own, b"own").end();
        let built = image(&[(shared.clone(), shared.clone()), (own.clone(), own)]);
        fs::write(&file, docker_archive(name, &built)).expect("write");
        store.images.import(&file).await.expect("import");
    }
    let (archive, exported) = export(&store.images, &["b:1", "docker.io/library/a:1"]).await;
    let (same, _) = export(&store.images, &["a:1", "b:1", "a:1"]).await;
    assert!(archive == same);
    let names: Vec<_> = exported.iter().flat_map(|image| &image.names).collect();
    assert_eq!(names.len(), 2);
    let files = documents(&archive);
    let blobs = files.keys().filter(|path| path.len() > 64).count();
    assert_eq!(blobs, 2 + 2 + 3, "manifests, configurations and layers");
    for missing in ["c:1", "sha256:00"] {
        let error = try_export(&store.images, &["a:1", missing], false).await;
        let error = error.expect_err("not there");
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
    // A cancelled export ends.
    let watch = ExportWatch::default();
    watch.cancel();
    let options = ExportOptions {
        images: vec!["a:1".to_owned()],
        allow_decrypted: false,
    };
    let cancelled = store.images.export(&options, &mut Vec::new(), &watch);
    assert!(matches!(cancelled, Err(Error::Cancelled { .. })));
    // Nothing is held any more.
    for name in ["a:1", "b:1"] {
        store.images.remove(name).await.expect("remove");
    }
    fs::remove_file(&file).expect("remove");
    store.assert_empty().await;
}

/// A writer that removes the image when the archive begins.
struct Removing<'a> {
    images: &'a ImageStore,
    archive: Vec<u8>,
}

impl std::io::Write for Removing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.archive.is_empty() {
            let runtime = tokio::runtime::Handle::current();
            let removed = runtime.block_on(async {
                let removed = self.images.remove("a:1").await;
                self.images.collect().await.expect("collect");
                removed
            });
            assert!(removed.expect("removed"));
        }
        self.archive.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_image_that_is_removed_meanwhile_is_exported_all_the_same() {
    let store = Store::new().await;
    let file = store.dir.path().join("a.tar");
    let built = uncompressed(
        &json!({"Env": ["A=b"]}),
        layer().file("f", &[1; 600_000]).end(),
    );
    fs::write(&file, docker_archive("a:1", &built)).expect("write");
    store.images.import(&file).await.expect("import");
    let (archive, _) = export(&store.images, &["a:1"]).await;
    let images = store.images.clone();
    let work = move || {
        let mut to = Removing {
            images: &images,
            archive: Vec::new(),
        };
        let options = ExportOptions {
            images: vec!["a:1".to_owned()],
            allow_decrypted: false,
        };
        let exported = images.export(&options, &mut to, &ExportWatch::default());
        exported.expect("exported");
        to.archive
    };
    let same = tokio::task::spawn_blocking(work).await.expect("joined");
    assert!(same == archive);
    fs::remove_file(&file).expect("remove");
    store.assert_empty().await;
}

#[tokio::test]
async fn what_came_encrypted_leaves_in_plain_text_only_if_that_is_allowed() {
    let store = with_provider(Duration::from_secs(30)).await;
    let registry = Registry::start().await;
    let plain = layer().file("secret", b"hush").end();
    let config = gzipped(std::slice::from_ref(&plain)).config;
    let name = push(&registry, "1", &config, &secret(&gzip(&plain), &KEY));
    store.pull(&name).await;
    let refused = try_export(&store.images, &[&name], false).await;
    let error = refused.expect_err("refused");
    assert!(matches!(error, Error::Decrypted { .. }), "{error}");
    assert!(error.to_string().contains(&name), "{error}");
    let (bytes, _) = try_export(&store.images, &[&name], true)
        .await
        .expect("allowed");
    assert!(bytes.windows(4).any(|text| text == b"hush"));
}

#[tokio::test]
async fn an_artifact_keeps_its_digest() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let large = vec![7; 300_000];
    let files = [
        ("readme", b"hello".as_slice()),
        ("weights/1.bin", large.as_slice()),
        ("weights/2.bin", large.as_slice()),
    ];
    let manifest = super::artifacts::push(&registry, &files);
    let name = registry.name("a:1");
    store.pull(&name).await;
    let (archive, exported) = export(&store.images, &[&name]).await;
    assert_eq!(exported[0].manifest, manifest);
    let found = documents(&archive);
    assert!(!found.contains_key("manifest.json"));
    for (_, content) in files {
        let path = format!("blobs/sha256/{}", Digest::sha256(content).hex());
        assert_eq!(found[&path], content);
    }
    assert!(found.contains_key(&format!("blobs/sha256/{}", manifest.hex())));
    let index = json_of(&found, "index.json");
    assert_eq!(
        index["manifests"][0]["artifactType"],
        "application/vnd.example.model"
    );
    // What was changed on the disk is not passed off as the artifact.
    let layers = store.images.layers(&name).expect("layers");
    fs::write(layers.paths()[0].join("readme"), b"HELLO").expect("write");
    let error = try_export(&store.images, &[&name], false).await;
    let error = error.expect_err("changed");
    assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
}
