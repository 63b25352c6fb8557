//! Parses `WWW-Authenticate` (RFC 9110, 11.6.1, and Docker's token authentication).

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

use super::words::quoted;

/// An authentication scheme offered by a registry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Challenge {
    /// User and password.
    Basic,
    /// A token from a token service.
    Bearer {
        realm: String,
        service: String,
        scope: String,
    },
}

impl Challenge {
    /// Returns the preferred challenge of a response: a token before a password.
    pub(super) fn preferred(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let all: Vec<_> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(parse)
            .collect();
        let bearer = all.iter().find(|c| matches!(c, Self::Bearer { .. }));
        bearer.or(all.first()).cloned()
    }
}

/// A header may contain several challenges. Commas separate both challenges and their parameters.
pub(super) fn parse(header: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = header.trim();
    while !rest.is_empty() {
        let (scheme, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut parameters = Vec::new();
        rest = after.trim_start();
        while let Some((name, value, after)) = parameter(rest) {
            parameters.push((name.to_ascii_lowercase(), value));
            rest = after;
        }
        rest = rest.trim_start_matches([',', ' ']);
        let scheme = scheme.trim_matches(',');
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer") {
            let realm = first_value(&parameters, "realm");
            if !realm.is_empty() {
                found.push(Challenge::Bearer {
                    realm,
                    service: first_value(&parameters, "service"),
                    scope: first_value(&parameters, "scope"),
                });
            }
        }
        if after.is_empty() {
            break;
        }
    }
    found
}

/// The value of the first parameter with this name; empty if it is missing.
fn first_value(parameters: &[(String, String)], name: &str) -> String {
    let found = parameters.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// Parses `name=value` or `name="value"`, and returns the rest.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([',', ' ']);
    let (name, rest) = text.split_once('=')?;
    let name = name.trim();
    if name.is_empty() || name.contains([' ', ',', '"']) {
        return None;
    }
    let rest = rest.trim_start();
    if rest.starts_with('"') {
        return quoted(rest).map(|(value, rest)| (name, value, rest));
    }
    let end = rest.find([',', ' ']).unwrap_or(rest.len());
    Some((name, rest[..end].to_owned(), &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: &str, scope: &str) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.to_owned(),
            scope: scope.to_owned(),
        }
    }

    #[test]
    fn challenges_of_real_registries() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let expected = bearer(
            "https://auth.docker.io/token",
            "registry.docker.io",
            "repository:a/b:pull,push",
        );
        assert_eq!(parse(hub), [expected]);
        assert_eq!(parse(r#"Basic realm="x""#), [Challenge::Basic]);
        assert_eq!(parse("basic"), [Challenge::Basic]);
        let both = r#"Basic realm="a, \"b\"", charset=utf-8, Bearer realm=https://t , service=s"#;
        assert_eq!(
            parse(both),
            [Challenge::Basic, bearer("https://t", "s", "")]
        );
        assert_eq!(parse(r#"Negotiate, Basic realm="x""#), [Challenge::Basic]);
    }

    #[test]
    fn malformed_challenges_are_ignored() {
        for text in [
            "",
            ",",
            "Bearer",
            "Bearer realm=\"x",
            "=",
            "a=b",
            "Bearer ,,,",
            "x y z",
            "Bearer realm=",
        ] {
            assert!(parse(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn tokens_are_preferred_to_passwords() {
        let mut headers = HeaderMap::new();
        headers.append(
            WWW_AUTHENTICATE,
            "Basic realm=\"x\"".parse().expect("a header"),
        );
        headers.append(
            WWW_AUTHENTICATE,
            "Bearer realm=\"y\"".parse().expect("a header"),
        );
        assert_eq!(Challenge::preferred(&headers), Some(bearer("y", "", "")));
    }
}
