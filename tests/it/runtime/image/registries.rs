//! `registries.conf`: where images come from, and who gets which credentials.

use criscope_image::Auth;

use super::*;

/// A store whose `registries.conf` has this text.
async fn with(text: &str) -> Store {
    Store::with(|config| {
        let path = config
            .root
            .parent()
            .expect("a folder")
            .join("registries.conf");
        fs::write(&path, text).expect("write");
        config.registries_conf = Some(path);
    })
    .await
}

#[tokio::test]
async fn mirrors_come_first_and_get_no_credentials() {
    let (origin, mirror) = (Registry::start().await, Registry::start().await);
    let built = with_file(b"x");
    let name = origin.push("team/a", "1", &built);
    mirror.push("copy/a", "1", &built);
    let store = with(&format!(
        "[[registry]]\nprefix = \"{0}/team\"\nlocation = \"{0}/team\"\n[[registry.mirror]]\nlocation = \"{1}/copy\"",
        origin.address, mirror.address
    ))
    .await;
    let challenged = |registry: &Registry| {
        registry.hook(|asked| {
            let given = asked.headers.contains_key("authorization");
            (!given).then(|| {
                let mut response = status(401, "");
                let basic = "Basic realm=\"x\"".parse().expect("a header");
                response.headers_mut().insert("www-authenticate", basic);
                response
            })
        });
    };
    store.pull(&name).await;
    assert!(origin.asked("").is_empty(), "all from the mirror");
    // The name is that of the image, not of the mirror.
    assert!(store.images.status(&name).expect("status").is_some());
    store.images.remove(&name).await.expect("remove");
    challenged(&mirror);
    challenged(&origin);
    let auth = Some(Auth::basic("me", "secret"));
    store.pull_as(&name, auth).await;
    let with_secret = |registry: &Registry| {
        let asked = registry.asked("");
        asked
            .iter()
            .any(|asked| asked.headers.contains_key("authorization"))
    };
    assert!(with_secret(&origin) && !with_secret(&mirror));
}

#[tokio::test]
async fn other_locations_and_blocked_ones() {
    let registry = Registry::start().await;
    registry.push("real/a", "1", &with_file(b"x"));
    let store = with(&format!(
        "[[registry]]\nprefix = \"logical.example/team\"\nlocation = \"{}/real\"\n\
         [[registry]]\nlocation = \"bad.example\"\nblocked = true",
        registry.address
    ))
    .await;
    let name = "logical.example/team/a:1";
    let id = store.pull(name).await;
    let image = store.image(name);
    assert_eq!((image.id, image.tags), (id, vec![name.to_owned()]));
    let error = store.refuses("bad.example/a:1").await;
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(
        error.to_string().contains("registries.conf blocks it"),
        "{error}"
    );
}

#[tokio::test]
async fn short_names_are_looked_for_in_order() {
    let (first, second) = (Registry::start().await, Registry::start().await);
    second.push("tool", "1", &with_file(b"x"));
    second.push("aliased", "1", &with_file(b"y"));
    let store = with(&format!(
        "unqualified-search-registries = [\"{}\", \"{1}\"]\n[aliases]\n\"nick\" = \"{1}/aliased\"",
        first.address, second.address
    ))
    .await;
    let id = store.pull("tool:1").await;
    assert!(!first.asked("tool").is_empty());
    let image = store.image("tool:1");
    assert_eq!(
        (&image.id, &image.tags),
        (&id, &vec![second.name("tool:1")])
    );
    store.pull("nick:1").await;
    assert!(
        store
            .images
            .status(&second.name("aliased:1"))
            .expect("status")
            .is_some()
    );
    // Of Docker Hub it is not, and not here either.
    assert!(
        store
            .images
            .status("docker.io/library/tool:1")
            .expect("status")
            .is_none()
    );
    assert!(store.images.remove("tool:1").await.expect("remove"));
    assert!(store.images.status(id.hex()).expect("status").is_none());
}
