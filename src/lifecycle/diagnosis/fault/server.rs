//! The server that failed a pull: the registry, its token service, a mirror, or a store of blobs that the registry redirects to.

use std::borrow::Cow;

use crate::lifecycle::diagnosis::failure::error_message;
use crate::lifecycle::episode_call::EpisodeCall;

/// The name of the server in the plain words of a class.
const REGISTRY_WORDS: &str = "the registry";

/// Wordings of errors of the token service.
const TOKEN_SERVICE_WORDINGS: [&str; 4] = [
    "fetch anonymous token",
    "fetch oauth token",
    "requesting bearer token",
    "token service",
];

/// The beginning of the built-in runtime's error when a server does not answer. The name of the server follows.
const UNAVAILABLE_PREFIX: &str = "RegistryUnavailable: ";

/// The registry of image references without one.
const DEFAULT_REGISTRY: &str = "docker.io";

/// The words with the name of the server that failed this call.
pub(super) fn named(words: &'static str, call: &EpisodeCall) -> Cow<'static, str> {
    if !words.contains(REGISTRY_WORDS) {
        return Cow::Borrowed(words);
    }
    let text = error_message(call);
    if TOKEN_SERVICE_WORDINGS
        .iter()
        .any(|wording| text.contains(wording))
    {
        return Cow::Owned(words.replace(REGISTRY_WORDS, "the token service"));
    }
    match host(text).zip(call.image.as_deref()) {
        Some((host, image)) if !is_of(registry(image), host) => {
            Cow::Owned(words.replace(REGISTRY_WORDS, host))
        }
        _ => Cow::Borrowed(words),
    }
}

/// The host that a text is about: the host of its last URL, or the host that the built-in runtime asked or was redirected to.
fn host(text: &str) -> Option<&str> {
    if let Some((before, _)) = text.split_once(", to which ") {
        return before.rsplit(' ').next();
    }
    if let Some((_, rest)) = text.split_once(UNAVAILABLE_PREFIX) {
        let (host, _) = rest.split_once(": ")?;
        return (!host.contains(ends_host)).then_some(host);
    }
    let (_, rest) = text.rsplit_once("://")?;
    let host = &rest[..rest.find(ends_host).unwrap_or(rest.len())];
    (!host.is_empty()).then_some(host)
}

/// Returns whether a character cannot be part of a host and port.
fn ends_host(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || "-._:[]".contains(c))
}

/// The registry of an image reference.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => DEFAULT_REGISTRY,
    }
}

/// Returns whether a host belongs to a registry, as registry-1.docker.io to docker.io.
fn is_of(registry: &str, host: &str) -> bool {
    let host = host.trim_end_matches(":443").trim_end_matches(":80");
    host.strip_suffix(registry)
        .is_some_and(|before| before.is_empty() || before.ends_with('.'))
}
