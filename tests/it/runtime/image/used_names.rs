//! A signature policy judges names that the stored image has, however the image is asked for.

use criscope_image::PolicyFiles;

use super::archives::oci_archive;
use super::*;

const ACCEPT: &str = "insecureAcceptAnything";

/// A store with a policy, and a `registries.conf` with this text.
async fn with(registries: &str) -> Store {
    let store = Store::with(|config| {
        let dir = config.root.parent().expect("a folder").to_owned();
        fs::write(dir.join("registries.conf"), registries).expect("write");
        config.registries_conf = Some(dir.join("registries.conf"));
        config.policy = Some(PolicyFiles {
            default: Some(dir.join("policy.json")),
            ..PolicyFiles::default()
        });
    })
    .await;
    policy(&store, ACCEPT, &[]);
    store
}

/// Writes the policy: what is required by default, and in these scopes.
fn policy(store: &Store, default: &str, scopes: &[(&str, &str)]) {
    let scopes: serde_json::Map<String, Value> = scopes
        .iter()
        .map(|(scope, requirement)| ((*scope).to_owned(), json!([{"type": requirement}])))
        .collect();
    let text = json!({"default": [{"type": default}], "transports": {"docker": scopes}});
    fs::write(store.dir.path().join("policy.json"), text.to_string()).expect("write");
}

async fn allowed(store: &Store, id: &Digest, text: &str) -> bool {
    match store.images.allow(id, text, None).await {
        Ok(()) => true,
        Err(Error::SignatureValidationFailed { .. }) => false,
        Err(error) => panic!("{text}: {error}"),
    }
}

#[tokio::test]
async fn an_image_is_judged_by_its_names_and_not_by_what_it_is_called() {
    let registry = Registry::start().await;
    let host = registry.address.to_string();
    let store = with(&format!(
        "unqualified-search-registries = [\"{host}\"]\n[aliases]\n\"nick\" = \"{host}/bad/image\"\n"
    ))
    .await;
    let bad = registry.push("bad/image", "1", &with_file(b"bad"));
    let good = registry.push("good/image", "1", &with_file(b"good"));
    let (bad_id, good_id) = (store.pull(&bad).await, store.pull(&good).await);
    let image = store.image(&bad);
    let by_digest = image.digests[0].clone();
    let digest = by_digest.split_once('@').expect("a digest").1.to_owned();
    let good_scope = format!("{host}/good");
    policy(
        &store,
        "reject",
        &[("docker.io", ACCEPT), (&good_scope, ACCEPT)],
    );
    for text in [
        bad_id.as_str(),
        bad_id.hex(),
        &bad_id.as_str()[..15],
        &bad_id.hex()[..12],
        "nick:1",
        "bad/image:1",
        &bad,
        &by_digest,
        &format!("{bad}@{digest}"),
        // What the image is not called, and what is no name at all.
        "busybox",
        "docker.io/library/busybox:1",
        "nick:2",
        &good,
        good_id.as_str(),
        "",
        "not//a name",
        "@",
    ] {
        assert!(!allowed(&store, &bad_id, text).await, "{text:?}");
    }
    for text in [
        good_id.as_str(),
        good_id.hex(),
        &good_id.as_str()[..15],
        "good/image:1",
        &good,
        "",
    ] {
        assert!(allowed(&store, &good_id, text).await, "{text:?}");
    }
    // A name that is refused, or that belongs to an image that is refused, allows nothing either.
    for text in ["nick:1", &bad, "bad/image:2"] {
        assert!(!allowed(&store, &good_id, text).await, "{text:?}");
    }
}

#[tokio::test]
async fn an_id_is_allowed_only_if_all_names_are() {
    let registry = Registry::start().await;
    let host = registry.address.to_string();
    let store = with("").await;
    let built = with_file(b"x");
    let one = registry.push("one/image", "1", &built);
    let two = registry.push("two/image", "1", &built);
    let id = store.pull(&one).await;
    assert_eq!(store.pull(&two).await, id);
    let ids = [id.as_str(), id.hex(), &id.hex()[..12], ""];
    policy(&store, "reject", &[(&format!("{host}/one"), ACCEPT)]);
    assert!(allowed(&store, &id, &one).await);
    assert!(!allowed(&store, &id, &two).await);
    for text in ids {
        assert!(!allowed(&store, &id, text).await, "{text:?}");
    }
    let error = store.images.allow(&id, id.as_str(), None).await;
    let text = error.expect_err("one of two").to_string();
    assert!(
        text.contains(&two) && text.contains("all of them"),
        "{text}"
    );
    policy(&store, "reject", &[(&host, ACCEPT)]);
    for text in ids.into_iter().chain([one.as_str(), &two]) {
        assert!(allowed(&store, &id, text).await, "{text:?}");
    }
    // The tag moves to another image, and the digest stays.
    registry.push("two/image", "1", &with_file(b"y"));
    assert_ne!(store.pull(&two).await, id);
    policy(&store, "reject", &[(&format!("{host}/one"), ACCEPT)]);
    for text in ids.into_iter().chain([two.as_str()]) {
        assert!(!allowed(&store, &id, text).await, "{text:?}");
    }
}

#[tokio::test]
async fn an_image_without_a_name_needs_a_policy_that_accepts_all() {
    let store = with("").await;
    let archive = store.dir.path().join("archive.tar");
    let bytes = oci_archive(&[("org.opencontainers.image.ref.name", "1", &with_file(b"x"))]);
    fs::write(&archive, bytes).expect("write");
    let imported = store.images.import(&archive).await.expect("import");
    assert!(imported[0].names.is_empty());
    let id = imported[0].id.clone();
    for (default, scopes, is_allowed) in [
        (ACCEPT, &[][..], true),
        ("reject", &[], false),
        ("reject", &[("docker.io", ACCEPT)], false),
        (ACCEPT, &[("", "reject")], false),
    ] {
        policy(&store, default, scopes);
        for text in [id.as_str(), &id.hex()[..12], "", "docker.io/library/any:1"] {
            let found = allowed(&store, &id, text).await;
            assert_eq!(found, is_allowed, "{default} {scopes:?} {text:?}");
        }
    }
}

/// A name in capital letters is the same host.
#[tokio::test]
async fn the_case_of_a_registry_evades_no_scope() {
    let registry = Registry::start().await;
    let port = registry.address.port();
    let (host, shouted) = (format!("localhost:{port}"), format!("LOCALHOST:{port}"));
    registry.push("a", "1", &with_file(b"x"));
    let store = with("").await;
    policy(&store, ACCEPT, &[(&host, "reject")]);
    for name in [format!("{host}/a:1"), format!("{shouted}/a:1")] {
        let error = store.refuses(&name).await;
        let is_refusal = matches!(error, Error::SignatureValidationFailed { .. });
        assert!(is_refusal, "{error}");
    }
    policy(&store, ACCEPT, &[]);
    let id = store.pull(&format!("{shouted}/a:1")).await;
    policy(&store, ACCEPT, &[(&host, "reject")]);
    for name in [id.as_str(), &format!("{shouted}/a:1")] {
        assert!(!allowed(&store, &id, name).await, "{name}");
    }
}
