//! Misbehaving registries cause clear errors, and leave nothing behind.

use super::*;

fn some() -> Image {
    with_file(&noise(1, 200_000))
}

/// Pulls an image that must be refused; returns the error.
async fn refused(store: &Store, name: &str) -> Error {
    let error = store.refuses(name).await;
    assert!(store.images.list(None).expect("list").is_empty());
    store.assert_empty().await;
    error
}

#[tokio::test]
async fn wrong_content() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = some();
    let name = registry.push("a", "1", &built);
    // Each kind of content in turn, with the correct length.
    for wrong in [&built.layers[0], &built.config] {
        let (path, mut bytes) = (format!("a/blobs/{}", Digest::sha256(wrong)), wrong.clone());
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        registry.put(&path, "", &bytes);
        let error = refused(&store, &name).await;
        assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
        registry.put(&path, "", wrong);
    }
    let manifest = Digest::sha256(&built.manifest);
    registry.put(&format!("a/manifests/{manifest}"), "", b"{}");
    let error = refused(&store, &registry.name(&format!("a@{manifest}"))).await;
    assert_eq!(error.code(), Code::DataLoss, "{error}");
}

#[tokio::test]
async fn a_layer_that_is_not_what_the_configuration_says() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let (one, other) = (layer().file("f", b"1").end(), layer().file("f", b"2").end());
    let name = registry.push("a", "1", &image(&[(gzip(&one), other)]));
    let error = refused(&store, &name).await;
    assert!(
        matches!(
            error,
            Error::WrongDigest {
                what: "unpacked layer",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn too_much_of_everything() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = some();
    let name = registry.push("a", "1", &built);
    registry.hook(|asked| asked.path.contains("/manifests/").then(endless));
    let error = refused(&store, &name).await;
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    let digest = Digest::sha256(&built.layers[0]);
    registry.hook(move |asked| asked.path.ends_with(digest.as_str()).then(endless));
    let error = refused(&store, &name).await;
    assert!(matches!(error, Error::BadResponse { .. }), "{error}");
    let large = [b"{\"x\": \"".to_vec(), vec![b'x'; 5 << 20], b"\"}".to_vec()].concat();
    registry.behave();
    registry.put_manifest("a", "large", "", &large);
    let error = refused(&store, &registry.name("a:large")).await;
    assert!(error.to_string().contains("4194304"), "{error}");
}

#[tokio::test]
async fn sizes_that_do_not_fit() {
    let store = Store::with(|config| config.limits.max_layer_bytes = 1 << 30).await;
    let registry = Registry::start().await;
    let built = some();
    let name = registry.push("a", "1", &built);
    let lie = |size: u64| {
        let mut manifest: Value = serde_json::from_slice(&built.manifest).expect("JSON");
        manifest["layers"][0]["size"] = size.into();
        registry.put_manifest("a", "1", built.media_type, manifest.to_string().as_bytes());
    };
    lie(1 << 50);
    assert!(matches!(
        refused(&store, &name).await,
        Error::TooLarge { .. }
    ));
    lie(100);
    assert!(matches!(
        refused(&store, &name).await,
        Error::BadResponse { .. }
    ));
    lie(900_000);
    assert!(matches!(
        refused(&store, &name).await,
        Error::BadResponse { .. }
    ));
}

#[tokio::test]
async fn no_room() {
    let store = Store::with(|config| config.limits.min_free_bytes = 1 << 60).await;
    let registry = Registry::start().await;
    let name = registry.push("a", "1", &some());
    let error = refused(&store, &name).await;
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_that_always_fails() {
    let store = Store::with(|config| config.timeouts.stall = Duration::from_secs(2)).await;
    let registry = Registry::start().await;
    let built = some();
    let name = registry.push("a", "1", &built);
    registry.hook(|_| Some(status(500, "")));
    let error = refused(&store, &name).await;
    assert!(
        error.to_string().starts_with("RegistryUnavailable: "),
        "{error}"
    );
    assert_eq!(error.code(), Code::Unknown);
    assert_eq!(registry.asked("").len(), 5);
    let (blob, digest) = (built.layers[0].clone(), Digest::sha256(&built.layers[0]));
    let own = (blob.clone(), digest.clone());
    registry.hook(move |asked| {
        asked
            .path
            .ends_with(own.1.as_str())
            .then(|| cut(&own.0, 10))
    });
    let error = refused(&store, &name).await;
    assert!(
        matches!(error, Error::RegistryUnavailable { .. }),
        "{error}"
    );
    registry.hook(move |asked| {
        asked
            .path
            .ends_with(digest.as_str())
            .then(|| stall(&blob, 10))
    });
    let error = refused(&store, &name).await;
    assert!(error.to_string().contains("less than"), "{error}");
    drop(registry);
    assert!(matches!(
        refused(&store, &name).await,
        Error::RegistryUnavailable { .. }
    ));
}

#[tokio::test]
async fn invalid_manifests() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let put = |tag: &str, kind: &str, manifest: &Value| {
        registry.put_manifest("a", tag, kind, manifest.to_string().as_bytes());
    };
    let built = some();
    registry.push("a", "1", &built);
    let manifest: Value = serde_json::from_slice(&built.manifest).expect("JSON");
    put("kind", "application/vnd.oci.image.index.v1+json", &manifest);
    let mut short = manifest.clone();
    short["layers"] = json!([]);
    put("short", "", &short);
    put(
        "old",
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        &json!({"schemaVersion": 1}),
    );
    let inner = json!({"manifests": [descriptor(make::INDEX, b"{}")]});
    put("missing", "", &inner);
    registry.put_manifest("a", "text", "", b"<html>");
    for tag in ["kind", "short", "old", "text", "missing"] {
        let error = refused(&store, &registry.name(&format!("a:{tag}"))).await;
        let is_clear = matches!(error, Error::Invalid { .. }) || tag == "missing";
        assert!(is_clear, "{tag}: {error}");
    }
}

#[tokio::test]
async fn redirects_see_no_credentials() {
    let (store, [registry, other]) = with_registries().await;
    let built = some();
    let name = registry.push("a", "1", &built);
    other.push("a", "1", &built);
    let to = other.address;
    registry.hook(move |asked| {
        if !asked.headers.contains_key("authorization") {
            let mut response = status(401, "");
            response
                .headers_mut()
                .insert("www-authenticate", "Basic".parse().expect("a header"));
            return Some(response);
        }
        asked.path.contains("/blobs/").then(|| {
            let mut response = status(307, "");
            let location = format!("http://{to}{}?signature=secret", asked.path);
            response
                .headers_mut()
                .insert("location", location.parse().expect("a header"));
            response
        })
    });
    let auth = criscope_image::Auth::basic("me", "secret");
    store.pull_as(&name, Some(auth.clone())).await;
    let asked = other.asked("");
    assert!(
        asked.len() == 2
            && asked
                .iter()
                .all(|a| !a.headers.contains_key("authorization"))
    );
    store.images.remove(&name).await.expect("remove");
    // Redirect targets are never shown: a signature in them is a credential.
    other.hook(|_| Some(status(500, "")));
    let error = store
        .images
        .pull(&name, Some(auth.clone()), None)
        .await
        .expect_err("broken")
        .to_string();
    assert!(!error.contains("secret"), "{error}");
    // Nor does it get credentials if it asks: they are for the registry only.
    other.hook(move |_| {
        let mut response = status(401, "");
        let challenge = format!("Bearer realm=\"http://{to}/token\"");
        response
            .headers_mut()
            .insert("www-authenticate", challenge.parse().expect("a header"));
        Some(response)
    });
    let error = store.images.pull(&name, Some(auth.clone()), None).await;
    let error = error.expect_err("refused");
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert!(!error.to_string().contains("signature"), "{error}");
    let shown = |a: &registry::Asked| a.headers.contains_key("authorization");
    assert!(!other.asked("").iter().any(shown));
    let back = registry.address;
    registry.hook(move |asked| {
        let mut response = status(302, "");
        response.headers_mut().insert(
            "location",
            format!("http://{back}{}", asked.path)
                .parse()
                .expect("a header"),
        );
        Some(response)
    });
    let error = store
        .images
        .pull(&name, Some(auth), None)
        .await
        .expect_err("in circles");
    assert!(error.to_string().contains("redirects"), "{error}");
}
