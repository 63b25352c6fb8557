//! Image references in the grammar of `github.com/distribution/reference`, normalised to their full form.
//!
//! The parser is written by hand: the compiled regular expression of `oci-spec` takes megabytes that a daemon would keep.
//! A test compares the two.

use std::fmt;

use super::digest::Digest;
use super::error::{Error, Result};

const DOCKER: &str = "docker.io";
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// `registry/repository`, and a tag or a digest. Short names belong to Docker Hub, the default tag is `latest`, and a tag
/// next to a digest is dropped, as in containerd.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Reference {
    registry: String,
    repository: String,
    version: Version,
}

#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Version {
    Tag(String),
    Digest(Digest),
}

impl Reference {
    /// Parses a reference in short or full form.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidReference`].
    pub fn parse(text: &str) -> Result<Self> {
        parse(text).map_err(|reason| Error::InvalidReference {
            // The input is untrusted.
            reference: text.chars().take(300).collect(),
            reason,
        })
    }

    /// The registry: host and optional port.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository within the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, unless the reference has a digest.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        match &self.version {
            Version::Tag(tag) => Some(tag),
            Version::Digest(_) => None,
        }
    }

    /// The digest, if the reference has one.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Tag(_) => None,
            Version::Digest(digest) => Some(digest),
        }
    }

    /// A reference to this digest in the same repository.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            version: Version::Digest(digest),
        }
    }

    /// This repository, with the tag or digest of another reference.
    #[must_use]
    pub(super) fn with_version_of(self, other: &Self) -> Self {
        Self {
            version: other.version.clone(),
            ..self
        }
    }

    /// The tag or digest, as used in requests to a registry.
    pub(super) fn version(&self) -> &str {
        match &self.version {
            Version::Tag(tag) => tag,
            Version::Digest(digest) => digest.as_str(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.version {
            Version::Tag(tag) => write!(f, ":{tag}"),
            Version::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

type Reason = &'static str;

fn parse(text: &str) -> std::result::Result<Reference, Reason> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("64 hex digits are an id, not a name");
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (
            rest,
            Some(Digest::parse(digest).map_err(|_| "invalid digest")?),
        ),
        None => (text, None),
    };
    // A colon before a slash starts a port, not a tag.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let (registry, repository) = split(path)?;
    check_repository(&repository)?;
    let version = match (digest, tag) {
        (Some(digest), _) => Version::Digest(digest),
        (None, tag) => Version::Tag(tag.unwrap_or("latest").to_owned()),
    };
    Ok(Reference {
        registry,
        repository,
        version,
    })
}

/// Splits registry and repository. The first component is a registry if it looks like a host.
fn split(path: &str) -> std::result::Result<(String, String), Reason> {
    let first = path.split_once('/');
    let (registry, rest) = match first {
        Some((first, rest)) if is_registry(first) => {
            check_registry(first)?;
            (first, rest)
        }
        _ => (DOCKER, path),
    };
    let registry = match canonical(registry) {
        known if known == "index.docker.io" => DOCKER.to_owned(),
        other => other,
    };
    let repository = match rest.contains('/') {
        false if registry == DOCKER => format!("library/{rest}"),
        _ => rest.to_owned(),
    };
    Ok((registry, repository))
}

/// The registry in lower case: host names have no case, and policies, `blocked` registries and credentials are found by this text. A
/// single word keeps its capital letters, because only they tell it from a repository.
fn canonical(registry: &str) -> String {
    let lower = registry.to_ascii_lowercase();
    let is_host = lower.contains(['.', ':']) || lower == "localhost";
    if is_host { lower } else { registry.to_owned() }
}

fn is_registry(first: &str) -> bool {
    first.contains(['.', ':'])
        || first == "localhost"
        || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> std::result::Result<(), Reason> {
    const WRONG: Reason = "invalid registry";
    if let Some(rest) = registry.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(WRONG)?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
        return if is_port && is_address {
            Ok(())
        } else {
            Err(WRONG)
        };
    }
    let (host, port) = match registry.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (registry, None),
    };
    if host.split('.').all(is_host_label) && port.is_none_or(is_port) {
        Ok(())
    } else {
        Err(WRONG)
    }
}

fn is_host_label(label: &str) -> bool {
    let inner = label
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    !label.is_empty() && inner && !label.starts_with('-') && !label.ends_with('-')
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn check_repository(repository: &str) -> std::result::Result<(), Reason> {
    if repository.len() > MAX_REPOSITORY {
        return Err("the name is longer than 255 characters");
    }
    if repository.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err("the name has upper-case letters");
    }
    if repository.split('/').all(is_component) {
        Ok(())
    } else {
        Err("invalid name")
    }
}

/// Runs of letters and digits, separated by `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    if !component.starts_with(is_lower_alphanumeric) || !component.ends_with(is_lower_alphanumeric)
    {
        return false;
    }
    let between = component.split(is_lower_alphanumeric);
    between.into_iter().all(|separator| {
        matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
    })
}

fn is_lower_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn check_tag(tag: &str) -> std::result::Result<(), Reason> {
    let first = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let rest = tag
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if first && rest && tag.len() <= MAX_TAG {
        Ok(())
    } else {
        Err("invalid tag")
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::distribution::Reference as OciReference;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_normalised() {
        let cases = [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1", "docker.io/library/busybox:1"),
            ("a/b", "docker.io/a/b:latest"),
            ("index.docker.io/a", "docker.io/library/a:latest"),
            ("Index.Docker.IO/a", "docker.io/library/a:latest"),
            ("DOCKER.IO/busybox:1", "docker.io/library/busybox:1"),
            ("Quay.io/a/b:Tag", "quay.io/a/b:Tag"),
            ("LOCALHOST/a", "localhost/a:latest"),
            ("Registry:5000/a", "registry:5000/a:latest"),
            ("Registry/a", "Registry/a:latest"),
            (
                "docker.io/library/busybox",
                "docker.io/library/busybox:latest",
            ),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:b", "localhost:5000/a:b"),
            ("127.0.0.1:5000/a/b/c", "127.0.0.1:5000/a/b/c:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("[::1]:5000/a:1", "[::1]:5000/a:1"),
            ("a__b/c---d.e_f", "docker.io/a__b/c---d.e_f:latest"),
        ];
        for (text, name) in cases {
            assert_eq!(
                Reference::parse(text).expect(text).to_string(),
                name,
                "{text}"
            );
        }
        let both = Reference::parse(&format!("busybox:1@{DIGEST}")).expect("both");
        assert_eq!(
            both.to_string(),
            format!("docker.io/library/busybox@{DIGEST}")
        );
        assert_eq!((both.tag(), both.version()), (None, DIGEST));
    }

    #[test]
    fn invalid_references_are_refused() {
        let long = format!("a/{}", "b".repeat(254));
        for text in [
            "",
            ":",
            "@",
            "a:",
            "a@",
            "/a",
            "a/",
            "a//b",
            "A",
            "a/B",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "a:.b",
            "a:b:c",
            "a b",
            "a\n",
            "a@sha256:12",
            "a@md5:d41d8cd98f00b204e9800998ecf8427e",
            "http://a/b",
            "-.b/a",
            "a.:5/b",
            "a.b:port/c",
            "../a",
            "a/../b",
            "[::1/a",
            "[1.2.3.4]/a",
            "ä",
            "a:ä",
            &DIGEST[7..],
            &long,
        ] {
            assert!(Reference::parse(text).is_err(), "{text:?}");
        }
    }

    /// Except for known differences: IPv6, other digest algorithms, tags outside ASCII, registries in capital letters
    /// (which the Go implementation accepts as well).
    #[test]
    fn the_parser_agrees_with_oci_spec() {
        let parts = [
            "a",
            "lib/x",
            ".",
            "..",
            ":",
            ":5000",
            "/",
            "@",
            "_",
            "__",
            "-",
            "--",
            "localhost",
            "c.d",
            DIGEST,
            "9",
        ];
        let mut seed = 1_u32;
        let mut good = 0;
        for _ in 0..20_000 {
            let mut text = String::new();
            loop {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push_str(parts[(seed >> 8) as usize % parts.len()]);
                if (seed >> 20).is_multiple_of(4) || text.len() > 200 {
                    break;
                }
            }
            let Ok(ours) = Reference::parse(&text) else {
                // `oci-spec` accepts registries that are not valid host names.
                let theirs = OciReference::try_from(text.as_str());
                let no_host = theirs.is_ok_and(|r| check_registry(r.registry()).is_err());
                let refused = OciReference::try_from(text.as_str()).is_err();
                assert!(refused || no_host, "refused: {text}");
                continue;
            };
            let theirs =
                OciReference::try_from(text.as_str()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(ours.registry(), theirs.registry(), "{text}");
            assert_eq!(ours.repository(), theirs.repository(), "{text}");
            assert_eq!(ours.digest().map(Digest::as_str), theirs.digest(), "{text}");
            if theirs.digest().is_none() {
                assert_eq!(ours.tag(), theirs.tag(), "{text}");
            }
            good += 1;
        }
        assert!(good > 500, "only {good} were references at all");
    }
}
