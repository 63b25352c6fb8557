//! Images that other runtimes run although something in them is unusual or wrong.

use std::os::unix::fs::PermissionsExt as _;

use criscope_linux::rootfs::{MountRequest, Rootfs};

use super::*;

/// An image of one file.
fn some(text: &str) -> Image {
    with_file(text.as_bytes())
}

fn read(store: &Store, name: &str, path: &str) -> String {
    let layers = store.images.layers(name).expect("layers");
    let found = layers.paths().iter().rev().map(|layer| layer.join(path));
    let found = found.into_iter().find(|path| path.exists());
    fs::read_to_string(found.expect(path)).expect(path)
}

/// Mounts an image like the root of a container, and reads a file.
fn mounted(store: &Store, name: &str, dir: &Path, path: &str) -> String {
    let layers = store.images.layers(name).expect("layers");
    let mut read = [true, false].map(|read_only| {
        let rootfs = Rootfs::new(dir);
        let request = MountRequest {
            layers: layers.paths().to_vec(),
            read_only,
            ..MountRequest::default()
        };
        let root = rootfs.mount(&request).expect("mounted");
        let read = fs::read_to_string(root.join(path)).expect(path);
        rootfs.remove().expect("removed");
        read
    });
    assert_eq!(read[0], read[1]);
    std::mem::take(&mut read[0])
}

#[tokio::test]
async fn a_layer_may_occur_twice() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let base = layer()
        .file("f", b"base")
        .dir("d/", 0o755)
        .file("d/x", b"x")
        .end();
    let hides = layer().file(".wh.f", b"").file("d/.wh..wh..opq", b"").end();
    let empty = layer().end();
    let layers = [&empty, &base, &empty, &hides, &base, &empty];
    let built = gzipped(&layers.map(Clone::clone));
    let name = registry.push("twice", "1", &built);
    store.pull(&name).await;
    let found = store.images.layers(&name).expect("layers");
    assert_eq!(
        found.paths().len(),
        layers.len(),
        "the record has all of them"
    );
    let dir = store.dir.path().join("c");
    assert_eq!(mounted(&store, &name, &dir, "f"), "base");
    assert_eq!(mounted(&store, &name, &dir, "d/x"), "x");
    // As docker save writes it: the second one is a link.
    let config = built.config;
    let manifest = json!([{"Config": "config.json", "RepoTags": ["saved:1"],
        "Layers": ["0.tar", "1.tar", "2.tar", "3.tar", "4.tar", "5.tar"]}]);
    let archive = layer()
        .file("0.tar", &empty)
        .file("1.tar", &base)
        .link("2.tar", "0.tar")
        .file("3.tar", &hides)
        .link("4.tar", "1.tar")
        .hard_link("5.tar", "0.tar")
        .file("config.json", &config)
        .file("manifest.json", manifest.to_string().as_bytes())
        .end();
    let path = store.dir.path().join("archive");
    fs::write(&path, archive).expect("write");
    store.images.import(&path).await.expect("import");
    assert_eq!(mounted(&store, "saved:1", &dir, "f"), "base");
}

#[tokio::test]
async fn a_configuration_of_no_particular_type_is_judged_by_its_content() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    for kind in ["application/octet-stream", "application/json"] {
        let built = some(kind).with_manifest(|manifest| {
            manifest["config"]["mediaType"] = kind.into();
        });
        let name = registry.push("old", &kind.replace('/', "-"), &built);
        let id = store.images.pull(&name, None, None).await.expect(kind);
        assert_eq!(id, built.id());
        let image = store.image(&name);
        assert_eq!(
            (image.artifact_type, read(&store, &name, "f")),
            (None, kind.to_owned())
        );
    }
    // An artifact stays one.
    let name = artifacts::push_undeclared(&registry, "1");
    store.pull(&name).await;
    let image = store.image(&name);
    assert_eq!(image.artifact_type.as_deref(), Some("application/json"));
    assert_eq!(read(&store, &name, "data"), "data");
}

#[tokio::test]
async fn an_image_with_the_wrong_platform_is_pulled_if_it_was_asked_for() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    for (tag, change) in [
        ("other", json!({"architecture": "s390x", "os": "linux"})),
        (
            "system",
            json!({"architecture": architecture(), "os": "windows"}),
        ),
        ("empty", json!({"architecture": "", "os": ""})),
        ("null", json!({"architecture": null, "os": null})),
    ] {
        let built = some(tag).with_config(|config| {
            for (key, value) in change.as_object().expect("fields") {
                config[key] = value.clone();
            }
        });
        let name = registry.push("labelled", tag, &built);
        store.images.pull(&name, None, None).await.expect(tag);
        assert_eq!(read(&store, &name, "f"), tag);
    }
}

#[tokio::test]
async fn entries_of_an_index_without_a_platform_are_tried_in_their_order() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let other = image_for("s390x", &[]);
    let silent = some("silent").with_config(|config| config["architecture"] = "".into());
    let (ours, more) = (some("ours"), some("more"));
    for (tag, image) in [("1", &other), ("2", &silent), ("3", &ours), ("4", &more)] {
        registry.push("a", tag, image);
    }
    let index = |tag: &str, images: &[&Image]| {
        let entries = images.iter().map(|image| {
            let mut entry = descriptor(OCI, &image.manifest);
            entry["platform"] = json!({"architecture": "", "os": ""});
            entry
        });
        let index = json!({"schemaVersion": 2, "manifests": entries.collect::<Vec<_>>()});
        registry.put_manifest("a", tag, INDEX, index.to_string().as_bytes());
        registry.name(&format!("a:{tag}"))
    };
    for (tag, images, content) in [
        ("first", &[&other, &silent, &ours, &more][..], "ours"),
        ("silent", &[&other, &silent], "silent"),
        ("only", &[&more], "more"),
    ] {
        let name = index(tag, images);
        store.images.pull(&name, None, None).await.expect(tag);
        assert_eq!(read(&store, &name, "f"), content, "{tag}");
    }
    let name = index("none", &[&other, &other]);
    let error = store.refuses(&name).await;
    assert!(matches!(error, Error::NoPlatform { .. }), "{error}");
}

#[tokio::test]
async fn null_is_nothing_wherever_it_is_sent() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = some("null").with_config(|config| {
        config["history"] = Value::Null;
        config["config"] = json!({"Cmd": ["sh"], "Env": null, "Labels": null, "User": null, "Volumes": null,
            "ExposedPorts": null, "Entrypoint": null, "OnBuild": null, "Healthcheck": null});
    });
    let built = built.with_manifest(|manifest| {
        manifest["annotations"] = Value::Null;
        manifest["mediaType"] = Value::Null;
        manifest["config"]["annotations"] = Value::Null;
        manifest["layers"][0]["urls"] = Value::Null;
        manifest["layers"][0]["platform"] = Value::Null;
        manifest["manifests"] = Value::Null;
    });
    let name = registry.push("null", "1", &built);
    let address = registry.address;
    let credentials = json!({"auths": {"other.example": null, address.to_string(): {"auth": "YTpi", "identitytoken": null}},
        "credHelpers": null, "credsStore": null});
    fs::write(
        store.dir.path().join("config.json"),
        credentials.to_string(),
    )
    .expect("write");
    registry.hook(move |asked| {
        if asked.path == "/token" {
            return Some(status(
                200,
                r#"{"token": null, "access_token": "t", "expires_in": null}"#,
            ));
        }
        let is_known = asked
            .headers
            .get("authorization")
            .is_some_and(|value| value == "Bearer t");
        (!is_known).then(|| {
            let mut answer = status(401, r#"{"errors": null}"#);
            let challenge = format!("Bearer realm=\"http://{address}/token\"");
            let headers = answer.headers_mut();
            headers.insert("www-authenticate", challenge.parse().expect("a header"));
            answer
        })
    });
    store.pull(&name).await;
    let image = store.image(&name);
    assert_eq!(
        (&image.config.cmd[..], image.config.env.len()),
        (&["sh".to_owned()][..], 0)
    );
    assert!(
        store
            .images
            .labels(&image.id)
            .await
            .expect("labels")
            .is_empty()
    );
    // An archive of docker save, whose image has no name.
    let mut archive = docker_archive("x:1", &some("archive"));
    let at = archive.windows(7).position(|bytes| bytes == b"[\"x:1\"]");
    let at = at.expect("the name");
    archive[at..at + 7].copy_from_slice(b"null   ");
    let path = store.dir.path().join("archive");
    fs::write(&path, archive).expect("write");
    let imported = store.images.import(&path).await.expect("import");
    assert!(imported[0].names.is_empty());
}

#[tokio::test]
async fn a_layer_that_the_registry_does_not_have_comes_from_its_addresses() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let elsewhere = Registry::start().await;
    let content = some("foreign");
    let blob = &content.layers[0];
    elsewhere.put("files/good", "", blob);
    let mut evil = blob.clone();
    *evil.last_mut().expect("bytes") ^= 1;
    elsewhere.put("files/evil", "", &evil);
    let at = |path: &str| format!("http://user:secret@{}/v2/files/{path}", elsewhere.address);
    let push = |tag: &str, urls: &[String]| {
        let built = content.clone().with_manifest(|manifest| {
            manifest["layers"][0]["urls"] = json!(urls);
        });
        let without = Image {
            layers: Vec::new(),
            ..built
        };
        registry.push("foreign", tag, &without)
    };
    let wrong = [
        "ftp://a.example/x".to_owned(),
        "x".to_owned(),
        at("missing"),
    ];
    // Nothing but the addresses is asked, and without credentials of any kind.
    for (tag, urls) in [("none", &wrong[..]), ("evil", &[at("evil")])] {
        let name = push(tag, urls);
        let error = store.images.pull(&name, None, None).await.expect_err(tag);
        let is_right = match tag {
            "none" => matches!(error, Error::NotFound { .. }),
            _ => matches!(error, Error::WrongDigest { .. } | Error::Unpack { .. }),
        };
        assert!(is_right && !error.to_string().contains("secret"), "{error}");
    }
    let mut urls = wrong.to_vec();
    urls.push(at("good"));
    let name = push("good", &urls);
    store.pull(&name).await;
    assert_eq!(read(&store, &name, "f"), "foreign");
    let asked = elsewhere.asked("files/good");
    assert!(!asked.is_empty());
    for asked in asked {
        assert!(!asked.headers.contains_key("authorization"), "{asked:?}");
    }
    // What the registry has is not asked for elsewhere.
    store.images.remove(&name).await.expect("remove");
    store.images.collect().await.expect("collect");
    elsewhere.forget();
    registry.put(&format!("foreign/blobs/{}", Digest::sha256(blob)), "", blob);
    store.pull(&name).await;
    assert!(elsewhere.asked("files").is_empty());
}

/// Names of members and targets of hard links: `..` of a name that begins at the root stays there. A name that climbs above the root
/// from below it is refused, as in Docker and Podman.
#[tokio::test]
async fn names_with_dots_are_resolved_below_the_root() {
    let store = Store::new().await;
    let base = layer()
        .file("hidden", b"hidden")
        .dir("opaque/", 0o755)
        .file("opaque/hidden", b"hidden")
        .file("sub/hidden", b"hidden")
        .end();
    let long = format!("./../long/{}", "n".repeat(120));
    let built = layer()
        .file("./../ext/a.jar", b"jar")
        .file("opt/x/../y", b"y")
        .file("/abs/z", b"z")
        .file("/../../../above", b"above")
        .file("./opt/../../../twice", b"twice")
        .link("opt/link", "/elsewhere")
        .file("opt/link/../near", b"near")
        .hard_link("./again", "./../ext/a.jar")
        .hard_link("./../third", "/../ext/../ext/a.jar")
        .link("./../outward", "../../../ext/a.jar")
        .pax(&[("path", b"./../pax/x")])
        .file("short", b"pax")
        .pax(&[("linkpath", b"./../pax/x")])
        .hard_link("of-pax", "none")
        .entry(
            "././@LongLink",
            tar::EntryType::GNULongName,
            format!("{long}\0").as_bytes(),
            |_| {},
        )
        .file("cut", b"long")
        .file("./../.wh.hidden", b"")
        .file("./../opaque/.wh..wh..opq", b"")
        .file("/sub/../sub/.wh.hidden", b"")
        .dir("opt/..", 0o751)
        .end();
    let layers = [(base.clone(), base), (built.clone(), built)];
    let archive = docker_archive("dots:1", &make::image(&layers));
    let path = store.dir.path().join("archive");
    fs::write(&path, archive).expect("write");
    store.images.import(&path).await.expect("import");
    for (path, content) in [
        ("ext/a.jar", "jar"),
        ("opt/y", "y"),
        ("abs/z", "z"),
        ("above", "above"),
        ("twice", "twice"),
        ("opt/near", "near"),
        ("again", "jar"),
        ("third", "jar"),
        ("pax/x", "pax"),
        ("of-pax", "pax"),
        (&long[5..], "long"),
    ] {
        assert_eq!(read(&store, "dots:1", path), content, "{path}");
    }
    let found = store.images.layers("dots:1").expect("layers");
    let root = &found.paths()[1];
    let target = fs::read_link(root.join("outward")).expect("a link");
    assert_eq!(target, Path::new("../../../ext/a.jar"), "as it is written");
    let mode = root.metadata().expect("the root").permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
    let rootfs = Rootfs::new(store.dir.path().join("c"));
    let request = MountRequest {
        layers: found.paths().to_vec(),
        ..MountRequest::default()
    };
    let mounted = rootfs.mount(&request).expect("mounted");
    for hidden in ["hidden", "opaque/hidden", "sub/hidden"] {
        let error = fs::symlink_metadata(mounted.join(hidden)).expect_err(hidden);
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{hidden}");
    }
    drop(mounted);
    rootfs.remove().expect("removed");
    let wrong = [
        layer().file("../x", b"x"),
        layer().file("a/../../x", b"x"),
        layer().link("../x", "target"),
        layer().dir("../x", 0o755),
        layer().file("../.wh.x", b""),
        layer().file("a/../../.wh..wh..opq", b""),
        layer().pax(&[("path", b"../x")]).file("x", b"x"),
        layer().file("f", b"x").hard_link("x", "../f"),
    ];
    for (number, built) in wrong.into_iter().enumerate() {
        let built = built.end();
        let image = make::image(&[(built.clone(), built)]);
        fs::write(&path, docker_archive("climbs:1", &image)).expect("write");
        let error = store.images.import(&path).await.expect_err("it climbs out");
        assert!(error.to_string().contains(".."), "{number}: {error}");
    }
}
