//! The server that failed a pull: the registry, its token service, a mirror, or a store of blobs that the registry redirects to.

use std::borrow::Cow;

use criscope_cri::status::Code;

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

/// Stands between the image and the answers of several servers, in texts of the built-in runtime.
const SERVERS: &str = " servers were asked: ";
/// Stands between two answers.
const NEXT_SERVER: &str = "; then ";

/// The answers of the servers that the built-in runtime asked one after the other; none if it asked one, and for texts of others.
pub(super) fn answers(text: &str) -> Vec<&str> {
    let Some((_, all)) = text.split_once(SERVERS) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let (mut begin, mut at) = (0, 0);
    while let Some(next) = all[at..].find(NEXT_SERVER).map(|next| at + next) {
        at = next + NEXT_SERVER.len();
        // What a server says is in quotes.
        if all[begin..next].matches('"').count().is_multiple_of(2) {
            found.push(&all[begin..next]);
            begin = at;
        }
    }
    found.push(&all[begin..]);
    found
}

/// The answer that decided the code: the last one of its kind.
pub(super) fn telling<'a>(answers: &[&'a str], code: Code) -> Option<&'a str> {
    let kinds: &[&str] = match code {
        Code::PermissionDenied => &[": access denied"],
        Code::Unauthenticated => &[": authentication failed"],
        Code::NotFound => &[": not found"],
        _ => &["http 429", "http 5"],
    };
    let mut found = kinds
        .iter()
        .filter_map(|kind| answers.iter().rfind(|answer| answer.contains(kind)));
    found.next().or(answers.last()).copied()
}

/// A text of the built-in runtime without what servers say in the bodies of errors: it may read like any other fault.
pub(super) fn without_words(text: &str) -> Cow<'_, str> {
    const STATUS: &str = "http ";
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(": \"") {
        let status = before.rsplit_once(STATUS).map(|(_, status)| status);
        let is_status = status.is_some_and(is_status);
        let Some((_words, end)) = after.split_once('"').filter(|_| is_status) else {
            plain.push_str(before);
            plain.push_str(": \"");
            rest = after;
            continue;
        };
        plain.push_str(before);
        rest = end;
    }
    if plain.is_empty() {
        return Cow::Borrowed(text);
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// Returns whether a text is a status code and its reason, as `404 not found`.
fn is_status(text: &str) -> bool {
    let mut characters = text.chars();
    text.starts_with(|c: char| c.is_ascii_digit())
        && characters.all(|c| c.is_ascii_alphanumeric() || " -'<>".contains(c))
}

/// The words with the server that this text of a failed call is about.
pub(super) fn named(words: &'static str, text: &str, image: Option<&str>) -> Cow<'static, str> {
    if !words.contains(REGISTRY_WORDS) {
        return Cow::Borrowed(words);
    }
    if TOKEN_SERVICE_WORDINGS
        .iter()
        .any(|wording| text.contains(wording))
    {
        return Cow::Owned(words.replace(REGISTRY_WORDS, "the token service"));
    }
    match host(text).zip(image) {
        Some((host, image)) if !is_of(registry(image), host) => {
            Cow::Owned(words.replace(REGISTRY_WORDS, host))
        }
        _ => Cow::Borrowed(words),
    }
}

/// As [`named`], for one of several answers, which begins with its server.
pub(super) fn named_in(
    words: &'static str,
    answer: &str,
    image: Option<&str>,
) -> Cow<'static, str> {
    let is_redirect = answer.contains(", to which ");
    let (server, _) = answer.split_once(": ").unwrap_or((answer, ""));
    if is_redirect
        || TOKEN_SERVICE_WORDINGS
            .iter()
            .any(|part| answer.contains(part))
    {
        return named(words, answer, image);
    }
    match image {
        Some(image) if !is_of(registry(image), server) && !server.contains(' ') => {
            if words.contains(REGISTRY_WORDS) {
                return Cow::Owned(words.replace(REGISTRY_WORDS, server));
            }
            Cow::Owned(format!("{server}: {words}"))
        }
        _ => Cow::Borrowed(words),
    }
}

/// The host that a text is about: the host of its last URL, or the host that the built-in runtime asked or was redirected to.
pub(crate) fn host(text: &str) -> Option<&str> {
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
pub(crate) fn registry(image: &str) -> &str {
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
