//! Docker's `config.json`: credentials in the file and from credential helpers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::credentials::{AuthFields, Credentials, host_of};
use super::error::{At as _, Error, Result};
use super::{files, json, program};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    auths: BTreeMap<String, AuthFields>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HelperOutput {
    username: String,
    secret: String,
}

/// Returns the credentials for a repository of a registry, by the host and port of that. `None` if the file has none or does not
/// exist. Keys of `auths` may name a namespace (`quay.io/team`, containers-auth.json(5)): the narrowest one applies.
pub(super) async fn look_up(
    path: &Path,
    registry: &str,
    repository: &str,
    timeout: Duration,
) -> Result<Option<Credentials>> {
    let Some(file) = read(path)? else {
        return Ok(None);
    };
    let mut helpers = file.cred_helpers.iter();
    let own = helpers.find(|(host, _)| is_registry(host, registry));
    let helper = own
        .map(|(_, helper)| helper.as_str())
        .or_else(|| Some(file.creds_store.as_str()).filter(|store| !store.is_empty()));
    if let Some(helper) = helper
        && let Some(found) = ask(path, helper, registry, timeout).await?
    {
        return Ok(Some(found));
    }
    let entries = file.auths.into_iter();
    let entries = entries.filter(|(host, _)| is_registry(host, registry));
    let entries = entries.filter_map(|(address, entry)| {
        let length = namespace_of(&address, repository)?;
        Some((length, entry.credentials()?))
    });
    let narrowest = entries.max_by_key(|(length, _)| *length);
    Ok(narrowest.map(|(_, credentials)| credentials))
}

fn is_registry(address: &str, registry: &str) -> bool {
    host_of(address).as_deref() == Some(registry)
}

fn settings_error(path: &Path, reason: String) -> Error {
    let path = path.to_owned();
    Error::Settings { path, reason }
}

/// The length of the namespace in an address, if it contains the repository; 0 for a whole registry, also with the path of its
/// API.
fn namespace_of(address: &str, repository: &str) -> Option<usize> {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let namespace = address.split_once('/').map_or("", |(_, path)| path);
    let namespace = namespace.trim_end_matches('/');
    if matches!(namespace, "" | "v1" | "v2") {
        return Some(0);
    }
    let rest = repository.strip_prefix(namespace)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(namespace.len())
}

/// Reads the file, which need not exist, without looking for credentials. Blocks.
///
/// # Errors
///
/// [`Error::Settings`], [`Error::Io`].
pub(super) fn check(path: &Path) -> Result<()> {
    read(path).map(drop)
}

fn read(path: &Path) -> Result<Option<File>> {
    let text = files::if_present(files::read(path, files::MAX_CONFIG_FILE)).at(path)?;
    let parsed = text.map(|text| parse(&text)).transpose();
    parsed.map_err(|reason| settings_error(path, reason))
}

/// The message of the JSON parser is dropped, because it may quote a secret.
fn parse(text: &[u8]) -> std::result::Result<File, String> {
    json::from_slice(text).map_err(|e| format!("not valid, in line {}", e.line))
}

/// Parses the file, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    if let Ok(file) = parse(bytes) {
        for (host, entry) in file.auths {
            let _ = (host_of(&host), entry.credentials());
        }
    }
}

/// Runs `docker-credential-NAME get`. Its stderr, and the stdout of a failed run, are never shown.
async fn ask(
    path: &Path,
    helper: &str,
    registry: &str,
    timeout: Duration,
) -> Result<Option<Credentials>> {
    if !helper
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        let reason = "a credential helper with an unusual name".to_owned();
        return Err(settings_error(path, reason));
    }
    let program = format!("docker-credential-{helper}");
    let failed = |what: &str| settings_error(path, format!("{program}: {what}"));
    // Helpers know Docker Hub by its oldest name.
    let server = match registry {
        "docker.io" => "https://index.docker.io/v1/",
        other => other,
    };
    let mut command = Command::new(&program);
    let run = program::run(command.arg("get"), server.as_bytes(), timeout);
    let ended = run.await.map_err(|reason| failed(&reason))?;
    if !ended.status.success() {
        // The protocol's message for unknown registries.
        let text = String::from_utf8_lossy(&ended.stdout);
        if text.contains("credentials not found") {
            return Ok(None);
        }
        return Err(failed("it failed"));
    }
    let answer: HelperOutput =
        json::from_slice(&ended.stdout).map_err(|_| failed("its answer is not JSON"))?;
    Ok(match (answer.username.as_str(), answer.secret) {
        (_, secret) if secret.is_empty() => None,
        ("<token>", secret) => Some(Credentials::IdentityToken(secret)),
        (username, password) => Some(Credentials::Basic {
            username: username.to_owned(),
            password,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a hanging helper takes this long, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(120);

    #[tokio::test]
    async fn registries_are_found_under_every_spelling() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("config.json");
        let wait = PATIENCE;
        assert!(matches!(look_up(&path, "a", "r", wait).await, Ok(None)));
        let text = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"},
            "https://quay.io": {"username": "q", "password": "r"}, "b:5000": {"identitytoken": "i"}, "c": {}}}"#;
        std::fs::write(&path, text).expect("write");
        let basic = |u: &str, p: &str| Credentials::Basic {
            username: u.to_owned(),
            password: p.to_owned(),
        };
        let found = look_up(&path, "docker.io", "r", wait).await.expect("read");
        assert_eq!(found, Some(basic("u", "p")));
        let found = look_up(&path, "quay.io", "r", wait).await.expect("read");
        assert_eq!(found, Some(basic("q", "r")));
        let found = look_up(&path, "b:5000", "r", wait).await.expect("read");
        assert_eq!(found, Some(Credentials::IdentityToken("i".to_owned())));
        assert_eq!(look_up(&path, "c", "r", wait).await.expect("read"), None);
    }

    #[tokio::test]
    async fn the_narrowest_namespace_has_the_credentials() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("config.json");
        // Of a user and a password: "a:p", "b:p", "c:p".
        let text = r#"{"auths": {"quay.io/team": {"auth": "YTpw"}, "quay.io/team/app": {"auth": "Yjpw"},
            "https://q.io/v2/": {"auth": "Yzpw"}, "q.io/other": {"auth": "YTpw"}}}"#;
        std::fs::write(&path, text).expect("write");
        for (registry, repository, user) in [
            ("quay.io", "team/x", Some("a")),
            ("quay.io", "team/app", Some("b")),
            ("quay.io", "team/app/x", Some("b")),
            ("quay.io", "team/apple", Some("a")),
            ("quay.io", "teams", None),
            ("q.io", "x", Some("c")),
            ("q.io", "other/x", Some("a")),
        ] {
            let found = look_up(&path, registry, repository, PATIENCE).await;
            let found = match found.expect("read") {
                Some(Credentials::Basic { username, .. }) => Some(username),
                _ => None,
            };
            assert_eq!(found.as_deref(), user, "{registry}/{repository}");
        }
    }

    #[test]
    fn null_and_other_cases_are_read_as_docker_reads_them() {
        for text in [
            r#"{"auths": null, "credHelpers": null, "credsStore": null}"#,
            r#"{"auths": {"a": null}, "HttpHeaders": {"x": 1}, "psFormat": 3}"#,
            r#"{"Auths": {"a": {"auth": null, "email": null}}}"#,
            "null",
        ] {
            let file = parse(text.as_bytes()).expect(text);
            assert!(
                file.auths
                    .into_values()
                    .all(|entry| entry.credentials().is_none())
            );
        }
        let file = parse(br#"{"AUTHS": {"A": {"Auth": "YTpi"}}}"#).expect("read");
        let (host, _) = file.auths.first_key_value().expect("one");
        assert_eq!(host, "A");
        let error = parse(b"{\n\"auths\": {\n\"a\": {\"auth\": 1}}}").err();
        assert_eq!(error.as_deref(), Some("not valid, in line 3"));
        let answer: HelperOutput =
            json::from_slice(br#"{"ServerURL": null, "Username": null, "secret": "s"}"#)
                .expect("read");
        assert_eq!(
            (answer.username.as_str(), answer.secret.as_str()),
            ("", "s")
        );
    }

    #[tokio::test]
    async fn errors_do_not_quote_the_file() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("config.json");
        std::fs::write(&path, r#"{"auths": {"a": {"auth": "secret"#).expect("write");
        let error = look_up(&path, "a", "r", PATIENCE).await;
        let text = error.expect_err("damaged").to_string();
        assert!(
            text.contains("config.json") && !text.contains("secret"),
            "{text}"
        );
        std::fs::write(&path, r#"{"credsStore": "../../x"}"#).expect("write");
        assert!(look_up(&path, "a", "r", PATIENCE).await.is_err());
    }
}
