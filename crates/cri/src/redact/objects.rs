//! Names of Kubernetes objects and of shared libraries that an error says are missing. A name is no secret, and it is what has to be
//! mended.

use std::ops::Range;

use super::patterns::looks_random;

/// Kinds in errors of the form `KIND "NAME" not found` (`NewNotFound` of k8s.io/apimachinery's `errors`, the resource in the singular
/// or plural).
const KINDS: [&str; 12] = [
    "configmap",
    "configmaps",
    "persistentvolumeclaim",
    "persistentvolumeclaims",
    "pod",
    "resourceclaim",
    "resourceclaims",
    "runtimeclass",
    "secret",
    "secrets",
    "serviceaccount",
    "serviceaccounts",
];

/// Longest name of an object (RFC 1123 subdomain).
const MAX_NAME_LEN: usize = 253;

/// Longest name of a shared library.
const MAX_LIBRARY_LEN: usize = 64;

/// The places of names in a text.
pub(super) fn names(text: &str) -> Vec<Range<usize>> {
    let mut found = missing_objects(text);
    found.extend(missing_keys(text));
    found.extend(shared_libraries(text));
    found
}

/// `libssl.so.1.1`, which the dynamic loader cannot find.
fn shared_libraries(text: &str) -> impl Iterator<Item = Range<usize>> {
    let words = text.split(|c: char| !is_in_library(c));
    let libraries = words.filter(|word| {
        word.starts_with("lib") && word.contains(".so") && word.len() <= MAX_LIBRARY_LEN
    });
    libraries.map(|word| {
        let begin = word.as_ptr() as usize - text.as_ptr() as usize;
        begin..begin + word.len()
    })
}

fn is_in_library(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '+')
}

/// `secret "db-login" not found`, also with quotes that are escaped.
fn missing_objects(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("\" not found") {
        let end = text[..at].trim_end_matches('\\').len();
        let begin = text[..end].rfind('"').map_or(end, |quote| quote + 1);
        let before = text[..begin].trim_end_matches(['"', '\\', ' ']);
        let kind = before.rsplit(|c: char| !c.is_ascii_alphabetic()).next();
        let is_kind = kind.is_some_and(|kind| KINDS.contains(&&*kind.to_ascii_lowercase()));
        if is_kind && is_name(&text[begin..end]) {
            found.push(begin..end);
        }
    }
    found
}

/// `couldn't find key PASSWORD in Secret shop/db-login` (`makeEnvironmentVariables` of the kubelet).
fn missing_keys(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, before) in text.match_indices("find key ") {
        let key = at + before.len();
        let rest = &text[key..];
        let Some(key_len) = rest.find(" in ") else {
            continue;
        };
        let object = rest[key_len + 4..].strip_prefix("Secret ");
        let object = object.or_else(|| rest[key_len + 4..].strip_prefix("ConfigMap "));
        let Some(object) = object else { continue };
        let end = object.find(|c: char| !is_in_name(c) && c != '/');
        let object = object[..end.unwrap_or(object.len())].trim_end_matches('.');
        if rest[..key_len].chars().all(is_in_key) && object.split('/').all(is_name) {
            found.push(key..key + key_len);
            let begin = object.as_ptr() as usize - text.as_ptr() as usize;
            found.push(begin..begin + object.len());
        }
    }
    found
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&name.len()) && name.chars().all(is_in_name) && !looks_random(name)
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.')
}

/// Characters of a key in a ConfigMap or Secret.
fn is_in_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')
}

#[cfg(test)]
mod tests {
    use super::super::error_text;

    #[test]
    fn missing_objects_are_named() {
        for text in [
            "secret \"zdb-login\" not found",
            "configmap \"app.zettings\" not found",
            "secrets \"zdb\" not found",
            "couldn't find key ZDB_PASS in Secret shop/zdb-login",
            "couldn't find key zettings.yaml in ConfigMap shop/zapp",
        ] {
            assert_eq!(&*error_text(text, None, None, None), text);
        }
        let escaped = r#"with CreateContainerConfigError: "secret \"zdb-login\" not found""#;
        assert_eq!(&*error_text(escaped, None, None, None), escaped);
    }

    /// What hid the cause before.
    #[test]
    fn words_of_the_programs_on_a_node_are_shown() {
        for text in [
            "pull QPS exceeded",
            "version `GLIBC_2.38' not found (required by /lib/libc.so.6)",
            "failed to prepare subPath for volumeMount \"data\" of container \"app\"",
            "missing nameserver",
            "error while loading shared libraries: libzsl.so.1.1: cannot open shared object file: No such file or directory",
        ] {
            assert_eq!(&*error_text(text, None, None, None), text);
        }
    }

    #[test]
    fn other_quoted_words_are_not() {
        for text in [
            "secret \"zhunter\" is wrong",
            "user \"zhunter\" not found",
            "secret \"Zhunter2!\" not found",
            "secret \"a8f3k2m9x7q1w5z4\" not found",
        ] {
            let shown = error_text(text, None, None, None);
            assert!(shown.contains("<redacted>"), "{shown}");
        }
    }
}
