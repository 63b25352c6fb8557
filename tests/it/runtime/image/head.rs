//! A second pull of a known tag asks for its digest, and for nothing else: registries with a limit of pulls do not count HEAD.

use axum::http::Method;
use criscope_image::{Auth, Platform, PolicyFiles};

use super::artifacts;
use super::*;

fn some(text: &str) -> Image {
    with_file(text.as_bytes())
}

/// The requests since the last look, as `METHOD PATH`.
fn asked(registry: &Registry) -> Vec<String> {
    let asked = registry.asked("");
    registry.forget();
    let asked = asked.into_iter();
    asked
        .map(|asked| format!("{} {}", asked.method, asked.path))
        .collect()
}

/// Pulls once more, and asserts that this costs one HEAD.
async fn assert_one_head(store: &Store, registry: &Registry, name: &str, version: &str) {
    registry.forget();
    let before = store.image(name).id;
    let id = store.pull(name).await;
    assert_eq!(id, before);
    assert_eq!(asked(registry), [format!("HEAD /v2/a/manifests/{version}")]);
}

/// Pushes an index with this image as `a:TAG`.
fn push_index(registry: &Registry, tag: &str, image: &Image, architecture: &str) -> Digest {
    registry.push("a", "child", image);
    let mut entry = descriptor(OCI, &image.manifest);
    entry["platform"] = json!({"os": "linux", "architecture": architecture});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    registry.put_manifest("a", tag, INDEX, index.as_bytes());
    Digest::sha256(index.as_bytes())
}

#[tokio::test]
async fn a_known_tag_costs_one_head() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let name = registry.push("a", "1", &some("x"));
    store.pull(&name).await;
    let first = asked(&registry);
    assert_eq!(
        first[0], "GET /v2/a/manifests/1",
        "nothing is known yet: {first:?}"
    );
    let accepted = |registry: &Registry| registry.asked("manifests")[0].headers["accept"].clone();
    assert_one_head(&store, &registry, &name, "1").await;
    store.pull(&name).await;
    let of_head = accepted(&registry);
    assert!(
        of_head.to_str().expect("text").contains(INDEX),
        "{of_head:?}"
    );
    // Also by digest, and for an index.
    let digest = Digest::sha256(&some("x").manifest);
    let by_digest = registry.name(&format!("a@{digest}"));
    assert_one_head(&store, &registry, &by_digest, digest.as_str()).await;
    let index = push_index(&registry, "many", &some("x"), architecture());
    let many = registry.name("a:many");
    store.pull(&many).await;
    assert_one_head(&store, &registry, &many, "many").await;
    assert_one_head(&store, &registry, &name, "1").await;
    let by_digest = registry.name(&format!("a@{index}"));
    assert_one_head(&store, &registry, &by_digest, index.as_str()).await;
    // And after a restart.
    store.images.settled().await.expect("on disk");
    let store = store.reopened().await;
    assert_one_head(&store, &registry, &many, "many").await;
    let image = store.image(&many);
    assert_eq!((image.tags.len(), image.digests.len()), (2, 2));
}

#[tokio::test]
async fn a_known_artifact_costs_one_head() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    artifacts::push(&registry, &[("readme", b"hello")]);
    let name = registry.name("a:1");
    store.pull(&name).await;
    assert_one_head(&store, &registry, &name, "1").await;
    // One whose configuration had to be read to tell it from an image.
    let name = artifacts::push_undeclared(&registry, "undeclared");
    store.pull(&name).await;
    store.images.collect().await.expect("collect");
    assert_one_head(&store, &registry, &name, "undeclared").await;
}

#[tokio::test]
async fn a_tag_that_moved_is_fetched() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let name = registry.push("a", "1", &some("old"));
    store.pull(&name).await;
    registry.push("a", "1", &some("new"));
    registry.forget();
    let id = store.pull(&name).await;
    assert_eq!(id, some("new").id());
    let log = asked(&registry);
    assert_eq!(
        log[..2],
        ["HEAD /v2/a/manifests/1", "GET /v2/a/manifests/1"]
    );
    // Back to the old one, which is still here under its digest.
    registry.push("a", "1", &some("old"));
    let id = store.pull(&name).await;
    assert_eq!(id, some("old").id());
    assert_eq!(asked(&registry), ["HEAD /v2/a/manifests/1"]);
    let image = store.image(&name);
    assert_eq!(image.id, some("old").id());
}

/// Servers that do not answer HEAD as they should.
#[tokio::test]
async fn get_decides_whatever_becomes_of_head() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let (old, new) = (some("old"), some("new"));
    let name = registry.push("a", "1", &old);
    store.pull(&name).await;
    registry.push("a", "1", &new);
    let other = Digest::sha256(b"something else").to_string();
    let two = format!("{}, {other}", Digest::sha256(&old.manifest));
    let statuses = [400, 401, 403, 404, 405, 429, 500, 501, 503];
    let answers = statuses.map(|code| (code, String::new()));
    let digests = ["", "sha256:short", &other, &two, "latest"];
    let digests = digests.map(|digest| (200, digest.to_owned()));
    for (code, digest) in answers.into_iter().chain(digests) {
        for image in [&new, &old] {
            registry.push("a", "1", image);
            registry.hook({
                let digest = digest.clone();
                move |asked| {
                    let is_head = asked.method == Method::HEAD;
                    is_head.then(|| match digest.as_str() {
                        "" => status(code, ""),
                        digest => with_header(status(code, ""), "docker-content-digest", digest),
                    })
                }
            });
            registry.forget();
            let id = store.images.pull(&name, None, None).await;
            let id = id.unwrap_or_else(|error| panic!("{code} {digest}: {error}"));
            assert_eq!(id, image.id(), "{code} {digest}");
            let log = asked(&registry);
            assert_eq!(log[0], "HEAD /v2/a/manifests/1", "{code} {digest}");
            let get = "GET /v2/a/manifests/1".to_owned();
            assert_eq!(
                log.iter().filter(|line| **line == get).count(),
                1,
                "{log:?}"
            );
        }
    }
    // What is refused is told in the registry's words, which an answer to HEAD does not have.
    registry.hook(|asked| match asked.method == Method::HEAD {
        true => Some(status(403, "")),
        false => Some(status(
            403,
            "{\"errors\":[{\"message\":\"payment is due\"}]}",
        )),
    });
    let error = store.refuses(&name).await;
    let text = error.to_string();
    assert!(text.contains("payment is due"), "{text}");
}

/// An image that is here is still for those only whom the registry lets have it.
#[tokio::test]
async fn the_registry_is_asked_with_the_callers_credentials() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let name = registry.push("a", "1", &some("x"));
    registry.hook(|asked| {
        let given = asked.headers.get("authorization");
        let is_right = given.is_some_and(|given| given == "Basic bWU6c2VjcmV0");
        (!is_right).then(|| with_header(status(401, ""), "www-authenticate", "Basic realm=\"x\""))
    });
    let own = || Some(Auth::basic("me", "secret"));
    store.images.pull(&name, own(), None).await.expect("pull");
    let by_digest = registry.name(&format!("a@{}", Digest::sha256(&some("x").manifest)));
    for name in [&name, &by_digest] {
        for auth in [None, Some(Auth::basic("me", "guess"))] {
            let error = store.images.pull(name, auth, None).await;
            let error = error.expect_err("not for everybody");
            assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
        }
        registry.forget();
        store.images.pull(name, own(), None).await.expect("again");
        let log = asked(&registry);
        assert!(log.iter().all(|line| line.starts_with("HEAD ")), "{log:?}");
    }
}

#[tokio::test]
async fn a_mirror_is_asked_first() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let mirrors = [Registry::start().await, Registry::start().await];
    let hosts = mirrors
        .each_ref()
        .map(|mirror| format!("[host.\"http://{}\"]\n", mirror.address));
    store.set_hosts(&registry.address.to_string(), &hosts.concat());
    let image = some("x");
    let name = registry.push("a", "1", &image);
    mirrors[1].push("a", "1", &image);
    store.pull(&name).await;
    for registry in mirrors.iter().chain([&registry]) {
        registry.forget();
    }
    store.pull(&name).await;
    // The first one has nothing, whatever it is asked with.
    let missing = ["HEAD", "GET"].map(|method| format!("{method} /v2/a/manifests/1"));
    assert_eq!(asked(&mirrors[0]), missing);
    assert_eq!(asked(&mirrors[1]), ["HEAD /v2/a/manifests/1"]);
    assert!(asked(&registry).is_empty());
}

/// An image that is here must meet the policy of today.
#[tokio::test]
async fn a_policy_is_asked_again() {
    let mut policy = Default::default();
    let store = Store::with(|config| {
        let path = config.root.parent().expect("a folder").join("policy.json");
        policy = path.clone();
        config.policy = Some(PolicyFiles {
            default: Some(path),
            namespaces: None,
            registries_d: "/none".into(),
        });
    })
    .await;
    let registry = Registry::start().await;
    let name = registry.push("a", "1", &some("x"));
    let write = |kind: &str| {
        let text = json!({"default": [{"type": kind}]}).to_string();
        fs::write(&policy, text).expect("write");
    };
    write("insecureAcceptAnything");
    store.pull(&name).await;
    assert_one_head(&store, &registry, &name, "1").await;
    write("reject");
    let error = store.refuses(&name).await;
    assert!(
        matches!(error, Error::SignatureValidationFailed { .. }),
        "{error}"
    );
}

/// The image of an index is that for the platform of today.
#[tokio::test]
async fn another_platform_is_resolved_again() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let own = some("own");
    let other = make::image_for("s390x", &[]);
    for image in [&own, &other] {
        registry.push("a", "child", image);
    }
    let entries = [(&own, architecture()), (&other, "s390x")].map(|(image, architecture)| {
        let mut entry = descriptor(OCI, &image.manifest);
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    registry.put_manifest("a", "1", INDEX, index.as_bytes());
    let name = registry.name("a:1");
    let id = store.pull(&name).await;
    assert_eq!(id, own.id());
    let mut settings = config(store.dir.path());
    settings.platform = Platform {
        os: "linux".to_owned(),
        architecture: "s390x".to_owned(),
        variant: String::new(),
    };
    let images = store.images.with_settings(settings);
    let id = images.pull(&name, None, None).await.expect("pull");
    assert_eq!(id, other.id());
}

/// Whatever happens to what is kept: the image is fetched again.
#[tokio::test]
async fn what_is_damaged_is_fetched_again() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let image = some("x");
    let name = registry.push("a", "1", &image);
    store.pull(&name).await;
    let content = store.dir.path().join("store/content");
    for document in [&image.manifest, &image.config] {
        let digest = Digest::sha256(document).to_string().replace(':', "-");
        fs::write(content.join(digest), "damaged").expect("write");
        registry.forget();
        store.pull(&name).await;
        assert!(asked(&registry).len() > 1);
        assert_one_head(&store, &registry, &name, "1").await;
    }
    // A record of an earlier version does not say what its image was resolved from.
    store.images.settled().await.expect("on disk");
    let Store { images, dir } = store;
    drop(images);
    let records = dir.path().join("store/images");
    for record in fs::read_dir(&records).expect("records") {
        let path = record.expect("a record").path();
        let text = fs::read_to_string(&path).expect("read");
        let mut record: Value = serde_json::from_str(&text).expect("JSON");
        assert!(
            record
                .as_object_mut()
                .expect("fields")
                .remove("origins")
                .is_some()
        );
        fs::write(&path, record.to_string()).expect("write");
    }
    let images = image_store::open(&config(dir.path())).await;
    let store = Store { images, dir };
    store.pull(&name).await;
    assert_eq!(asked(&registry)[0], "GET /v2/a/manifests/1");
    assert_one_head(&store, &registry, &name, "1").await;
}
