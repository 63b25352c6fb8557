//! Layers that an image only claims: its configuration names content that another pull brought here, and its registry does not have it.

use super::artifacts;
use super::*;

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn secret() -> Vec<u8> {
    layer().file("secret", b"hush").end()
}

/// An image with a configuration of its own that has these diff IDs, and these blobs.
fn claims(diff_ids: &[&Digest], blobs: &[&[u8]]) -> Image {
    let mut image = gzipped(&[]);
    let mut config: Value = serde_json::from_slice(&image.config).expect("json");
    config["config"]["Cmd"] = json!(["cat", "/secret"]);
    config["rootfs"]["diff_ids"] = json!(diff_ids);
    image.config = config.to_string().into_bytes();
    let layers: Vec<_> = blobs.iter().map(|blob| descriptor(GZIP, blob)).collect();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": OCI, "layers": layers,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &image.config),
    });
    image.manifest = manifest.to_string().into_bytes();
    image.layers = blobs.iter().map(|blob| blob.to_vec()).collect();
    image
}

async fn pull(images: &ImageStore, name: &str) -> Digest {
    let pulled = images.pull(name, None, None).await;
    pulled.unwrap_or_else(|error| panic!("{name}: {error}"))
}

async fn refused(store: &Store, name: &str) -> Error {
    let before = store.images.len();
    let error = store.images.pull(name, None, None).await;
    assert_eq!(store.images.len(), before);
    error.expect_err(name)
}

/// The requests for a blob.
fn asked(registry: &Registry, blob: &[u8]) -> usize {
    registry.asked(Digest::sha256(blob).as_str()).len()
}

#[tokio::test]
async fn a_pull_that_knows_only_the_diff_id_gets_no_layer() {
    let (store, owner) = (Store::new().await, Registry::start().await);
    let (other, plain) = (Registry::start().await, secret());
    let diff_id = Digest::sha256(&plain);
    let real = gzipped(std::slice::from_ref(&plain));
    pull(&store.images, &owner.push("private", "1", &real)).await;

    // A blob with other content, with content that is not an archive, and a layer that claims to be its own, uncompressed blob.
    let bogus = gzip(&layer().file("other", b"x").end());
    for (tag, blob) in [("bogus", &bogus), ("nonsense", &b"nonsense".to_vec())] {
        let name = other.push("evil", tag, &claims(&[&diff_id], &[blob]));
        refused(&store, &name).await;
    }
    // Blobs that the registry does not have: it answers 404 for the right digest only if it is asked.
    for (tag, blob) in [("missing", &bogus), ("uncompressed", &plain)] {
        let built = claims(&[&diff_id], &[blob]);
        let name = other.push("absent", tag, &built);
        let path = format!("/blobs/{}", Digest::sha256(blob));
        other.hook(move |asked| asked.path.ends_with(&path).then(|| status(404, "")));
        let error = refused(&store, &name).await;
        assert!(matches!(error, Error::NotFound { .. }), "{tag}: {error}");
        other.behave();
    }
    // Nor does an archive give it to one who imports no content.
    let mut archived = claims(&[&diff_id], &[&bogus]);
    archived.layers = vec![layer().file("other", b"x").end()];
    let archive = store.dir.path().join("archive.tar");
    fs::write(&archive, docker_archive("evil:1", &archived)).expect("write");
    store.images.import(&archive).await.expect_err("no content");

    // Who has the content gets it, compressed otherwise or not at all.
    let mine = claims(&[&diff_id], &[&plain]);
    let name = other.push("mine", "1", &mine);
    pull(&store.images, &name).await;
    other.forget();
    pull(&store.images, &name).await;
    assert_eq!(asked(&other, &plain), 0, "the same repository");
    // The digest of a blob that is not compressed is the diff ID: it counts in the repository it came from.
    let name = other.push("evil", "uncompressed", &mine);
    let path = format!("evil/blobs/{diff_id}");
    other.hook(move |asked| asked.path.ends_with(&path).then(|| status(404, "")));
    refused(&store, &name).await;
}

#[tokio::test]
async fn shared_layers_are_fetched_once_from_any_registry() {
    let (store, plain) = (Store::new().await, secret());
    let (first, second) = (Registry::start().await, Registry::start().await);
    let base = gzip(&plain);
    let built = |name: &str| {
        let own = layer().file(name, b"x").end();
        image(&[(base.clone(), plain.clone()), (gzip(&own), own)])
    };
    pull(&store.images, &first.push("a", "1", &built("a"))).await;
    assert_eq!(asked(&first, &base), 1);
    pull(&store.images, &first.push("b", "1", &built("b"))).await;
    let elsewhere = second.push("c", "1", &built("c"));
    pull(&store.images, &elsewhere).await;
    assert_eq!((asked(&first, &base), asked(&second, &base)), (1, 0));
    // Another blob with the same content is fetched once.
    let again = {
        let mut bytes = gzip(&plain);
        bytes.extend(gzip(b""));
        bytes
    };
    let name = second.push("d", "1", &image(&[(again.clone(), plain.clone())]));
    for _ in 0..2 {
        pull(&store.images, &name).await;
        assert_eq!(asked(&second, &again), 1);
    }
    // All of it is known after a restart.
    store.images.settled().await.expect("on disk");
    let Store { images, dir } = store;
    drop(images);
    let images = image_store::open(&super::config(dir.path())).await;
    assert!(images.problems().is_empty(), "{:?}", images.problems());
    for name in [&name, &elsewhere, &first.name("a:1")] {
        pull(&images, name).await;
    }
    let all = (
        asked(&first, &base),
        asked(&second, &base),
        asked(&second, &again),
    );
    assert_eq!(all, (1, 0, 1));
}

/// Records of earlier versions do not say what a layer was unpacked from.
#[tokio::test]
async fn a_layer_of_an_older_version_is_fetched_once_more() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = gzipped(&[secret()]);
    let name = registry.push("a", "1", &built);
    let id = pull(&store.images, &name).await;
    store.images.settled().await.expect("on disk");
    let Store { images, dir } = store;
    let layers = images.layers(id.as_str()).expect("layers");
    let record = layers.paths()[0].with_file_name("layer.json");
    drop((layers, images));
    let text = fs::read(&record).expect("its record");
    let mut old: Value = serde_json::from_slice(&text).expect("json");
    assert!(
        old.as_object_mut()
            .expect("an object")
            .remove("blobs")
            .is_some()
    );
    fs::write(&record, old.to_string()).expect("write");
    let images = image_store::open(&super::config(dir.path())).await;
    assert!(images.status(&name).expect("status").is_some());
    registry.forget();
    for _ in 0..2 {
        pull(&images, &name).await;
        assert_eq!(asked(&registry, &built.layers[0]), 1);
    }
}

#[tokio::test]
async fn a_layer_in_flight_is_only_for_those_who_fetch_the_same_blob() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let plain = layer().file("secret", &noise(1, 400_000)).end();
    let real = gzipped(std::slice::from_ref(&plain));
    let name = registry.push("private", "1", &real);
    let bogus = gzip(&layer().file("other", b"x").end());
    let forged = registry.push("evil", "1", &claims(&[&Digest::sha256(&plain)], &[&bogus]));
    let (blob, path) = (
        real.layers[0].clone(),
        Digest::sha256(&real.layers[0]).to_string(),
    );
    registry.hook(move |asked| {
        let is_it = asked.path.ends_with(&path);
        is_it.then(|| trickle(&blob, blob.len() / 2, blob.len() / 20))
    });
    let attack = async {
        until_true("the blob is asked for", async || {
            asked(&registry, &real.layers[0]) > 0
        })
        .await;
        store.images.pull(&forged, None, None).await
    };
    let (pulled, attacked) = tokio::join!(store.images.pull(&name, None, None), attack);
    pulled.expect("the content");
    attacked.expect_err("no content");
}

#[tokio::test]
async fn other_directories_of_the_store_are_no_layers_of_an_image() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    // The files of an artifact have the name of its manifest.
    let manifest = artifacts::push(&registry, &[("secret", b"hush")]);
    pull(&store.images, &registry.name("a:1")).await;
    // A copy of a layer that lacks its directories has a name that can be computed.
    let below = layer().dir("d/", 0o700).end();
    let implied = layer().file("d/secret", b"hush").end();
    let id = pull(
        &store.images,
        &registry.push("b", "1", &gzipped(&[below, implied])),
    )
    .await;
    let layers = store.images.layers(id.as_str()).expect("layers");
    let copy = layers.ids()[1].clone();
    let bogus = gzip(&layer().file("other", b"x").end());
    for (tag, name) in [("artifact", &manifest), ("copy", &copy)] {
        let name = registry.push("evil", tag, &claims(&[name], &[&bogus]));
        refused(&store, &name).await;
    }
}
