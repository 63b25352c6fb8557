//! What registries say reaches people: each server with its answer, its own words, and its warnings.

use criscope_image::{ActiveStep, Auth, NoObserver, Observer, Step, Steps};

use super::*;

/// A store whose `hosts.toml` names these mirrors of a registry.
async fn store_of(registry: &str, mirrors: &[String]) -> Store {
    let store = Store::with(|config| config.timeouts.retries = 1).await;
    let mirrors = mirrors
        .iter()
        .map(|mirror| format!("[host.\"http://{mirror}\"]\n"));
    store.set_hosts(registry, &mirrors.collect::<String>());
    store
}

/// The address of a registry that is down.
async fn down() -> String {
    Registry::start().await.address.to_string()
}

/// These texts are in the error, in this order.
fn assert_order(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    let mut rest = text.as_str();
    for part in parts {
        let found = rest.split_once(part);
        rest = found.unwrap_or_else(|| panic!("{part} in {text}")).1;
    }
}

#[tokio::test]
async fn every_server_that_was_asked_is_named() {
    let (mirror, away) = (Registry::start().await, down().await);
    let own = mirror.address.to_string();
    mirror.hook(|_| {
        let body = r#"{"errors":[{"code":"DENIED","message":"no quota","detail":"ask for more"}]}"#;
        Some(status(403, body))
    });
    let store = store_of(&away, std::slice::from_ref(&own)).await;
    let name = format!("{away}/a:1");
    let error = store.refuses(&name).await;
    assert_order(
        &error,
        &[
            &name,
            &own,
            "403",
            "DENIED: no quota (ask for more)",
            &away,
            "refused",
        ],
    );
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.to_string().len() < 1000, "{error}");
}

#[tokio::test]
async fn three_mirrors_and_the_registry() {
    let (missing, busy) = (Registry::start().await, Registry::start().await);
    busy.hook(|_| {
        let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
        Some(with_header(status(429, body), "retry-after", "3600"))
    });
    let (dead, away) = (down().await, down().await);
    let mirrors = [
        missing.address.to_string(),
        dead.clone(),
        busy.address.to_string(),
    ];
    let store = store_of(&away, &mirrors).await;
    let error = store.refuses(&format!("{away}/a:1")).await;
    let parts = [
        "RegistryUnavailable: ",
        "4 servers",
        &mirrors[0],
        "404",
        "NAME_UNKNOWN: not here",
        &dead,
        "refused",
        &mirrors[2],
        "429",
        "TOOMANYREQUESTS: slow down",
        "wait: 3600 s",
        &away,
        "refused",
    ];
    assert_order(&error, &parts);
    assert_eq!(error.code(), Code::Unknown);
    // A mirror that lacks an image says nothing about the registry.
    let store = store_of(&away, &mirrors[..1]).await;
    let error = store.refuses(&format!("{away}/a:1")).await;
    assert_order(&error, &[&mirrors[0], "404", &away, "refused"]);
}

#[tokio::test]
async fn every_registry_of_a_short_name_is_named() {
    let (first, away) = (Registry::start().await, down().await);
    let store = Store::with(|config| {
        config.timeouts.retries = 0;
        let path = config
            .root
            .parent()
            .expect("a folder")
            .join("registries.conf");
        let search = format!(
            "unqualified-search-registries = [\"{}\", \"{away}\"]",
            first.address
        );
        fs::write(&path, search).expect("write");
        config.registries_conf = Some(path);
    })
    .await;
    let error = store.refuses("tool:1").await;
    let own = first.address.to_string();
    assert_order(&error, &["tool:1", &own, "404", &away, "refused"]);
}

#[tokio::test]
async fn a_blob_that_no_server_sends() {
    let (mirror, registry) = (Registry::start().await, Registry::start().await);
    let image = with_file(b"x");
    let name = registry.push("a", "1", &image);
    mirror.push("a", "1", &image);
    let (own, other) = (mirror.address.to_string(), registry.address.to_string());
    mirror.hook(|asked| {
        asked
            .path
            .contains("/blobs/")
            .then(|| status(500, "disk on fire"))
    });
    registry.hook(|asked| asked.path.contains("/blobs/").then(|| status(404, "")));
    let store = store_of(&other, std::slice::from_ref(&own)).await;
    let error = store.refuses(&name).await;
    assert_order(
        &error,
        &["blob sha256:", &own, "500", "disk on fire", &other, "404"],
    );
    assert_eq!(error.code(), Code::NotFound);
}

/// Statuses, bodies, and the words that must be in the error.
const SAID: &[(u16, &str, &str)] = &[
    (
        401,
        r#"{"errors":[{"code":"UNAUTHORIZED","message":"log in first"}]}"#,
        "UNAUTHORIZED: log in first",
    ),
    (
        403,
        "Your address is\u{1b}[31m blocked\u{1b}[0m\r\nby\u{202e} us",
        "Your address is blocked by us",
    ),
    (
        404,
        r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"gone","detail":{"Tag":"1"}}]}"#,
        "MANIFEST_UNKNOWN: gone ({'Tag':'1'})",
    ),
    (
        429,
        r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}"#,
        "You have reached your pull rate limit.",
    ),
    (
        500,
        "<html><title>Internal mess</title></html>",
        "Internal mess",
    ),
    (
        503,
        "<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>",
        "SlowDown: Reduce your rate",
    ),
    (418, r#"{"message": "short and stout"}"#, "short and stout"),
];

#[tokio::test]
async fn the_words_of_a_registry_are_told() {
    let store = Store::with(|config| config.timeouts.retries = 0).await;
    let registry = Registry::start().await;
    for (code, body, words) in SAID {
        registry.hook(move |_| {
            let answer = status(*code, body);
            let challenge = (*code == 401).then_some("Basic realm=\"x\"");
            Some(match challenge {
                Some(challenge) => with_header(answer, "WWW-Authenticate", challenge),
                None => answer,
            })
        });
        let error = store.refuses(&registry.name("a:1")).await;
        let text = error.to_string();
        assert!(
            text.contains(words) && text.contains(&registry.address.to_string()),
            "{text}"
        );
        assert!(
            !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
    }
    // However long it is.
    registry.hook(|_| Some(status(403, &"x y ".repeat(100_000))));
    let error = store.refuses(&registry.name("a:1")).await;
    assert!(error.to_string().len() < 1000);
}

/// A registry, and a token service, that repeat what they were sent.
#[tokio::test]
async fn no_words_repeat_a_credential() {
    let (store, registry, name) = with_image().await;
    let realm = format!("http://{}/token", registry.address);
    for challenge in [
        "Basic realm=\"x\"".to_owned(),
        format!("Bearer realm=\"{realm}\""),
    ] {
        registry.hook(move |asked| {
            let given = asked.headers.get("authorization");
            let given = given.map_or("", |given| given.to_str().expect("text"));
            let body = format!(
                r#"{{"errors":[{{"code":"UNAUTHORIZED","message":"not {given}, me:hush-hush, https://a.example/?sig=abc"}}]}}"#
            );
            Some(with_header(status(401, &body), "www-authenticate", &challenge))
        });
        let auth = Some(Auth::basic("me", "hush-hush"));
        let error = store.images.pull(&name, auth, None).await;
        let text = error.expect_err("refused").to_string();
        assert!(text.contains("UNAUTHORIZED: not"), "{text}");
        for secret in ["hush", "bWU6aHVzaC1odXNo", "sig=abc"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[tokio::test]
async fn the_words_of_a_token_service_are_told() {
    let (store, registry, name) = with_image().await;
    let realm = format!("http://{}/token", registry.address);
    for (body, words) in [
        (
            r#"{"details":"incorrect username or password"}"#,
            "incorrect username or password",
        ),
        (
            r#"{"error":"invalid_grant","error_description":"expired"}"#,
            "invalid_grant: expired",
        ),
    ] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        registry.hook(move |asked| {
            Some(match asked.path.as_str() {
                "/token" => status(401, body),
                _ => with_header(status(401, ""), "www-authenticate", &challenge),
            })
        });
        let auth = Some(Auth::basic("me", "secret"));
        let error = store.images.pull(&name, auth, None).await;
        assert_order(
            &error.expect_err("no token"),
            &["token service", "401", words],
        );
    }
}

/// Keeps what registries say beside their answers.
#[derive(Clone, Debug, Default)]
struct Notebook(Arc<Mutex<Vec<String>>>);

impl Observer for Notebook {
    fn operation(&self) -> Arc<dyn Steps> {
        Arc::new(self.clone())
    }
}

impl Steps for Notebook {
    fn start(&self, _step: Step, _name: Option<&str>) -> Box<dyn ActiveStep> {
        Box::new(NoObserver)
    }

    fn server_remark(&self, _image: &str, text: &str) {
        self.0.lock().expect("notes").push(text.to_owned());
    }
}

#[tokio::test]
async fn the_warnings_of_a_registry_are_noted_once() {
    let notes = Notebook::default();
    let own = notes.clone();
    let store = Store::with(move |config| config.observer = Arc::new(own)).await;
    let registry = Registry::start().await;
    let image = with_file(b"x");
    let name = registry.push("a", "1", &image);
    let manifest = image.manifest.clone();
    registry.hook(move |asked| {
        let answer = match asked.path.contains("/manifests/") {
            true => status(200, std::str::from_utf8(&manifest).expect("text")),
            false => return None,
        };
        let several = r#"199 - "not for people", 299 - "a \"quoted\" \\ one" "Wed, 21 Oct 2015 07:28:00 GMT", 299 r.example "two""#;
        let answer = with_header(answer, "Warning", several);
        let answer = with_header(answer, "WARNING", "299 - \"two\"");
        Some(with_header(answer, "warning", "299 - broken"))
    });
    store.pull(&name).await;
    let own = registry.address;
    assert_eq!(
        *notes.0.lock().expect("notes"),
        [
            format!("{own} warns: \"a 'quoted' \\ one\""),
            format!("{own} warns: \"two\"")
        ]
    );
    // Those of a refusal are in the error.
    registry.hook(|_| {
        Some(with_header(
            status(403, "no"),
            "warning",
            "299 - \"moved to r2.example\"",
        ))
    });
    let error = store.refuses(&registry.name("b:1")).await;
    assert_order(&error, &["403", "\"no\"", "warns: \"moved to r2.example\""]);
}
