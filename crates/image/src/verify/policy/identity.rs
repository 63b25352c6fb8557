//! Which name a signature must be for (`signedIdentity`).

use serde::Deserialize;

use crate::digest::Digest;
use crate::reference::Reference;

/// The rule for the name in a signature.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum Identity {
    /// The name of the image.
    MatchExact {},
    /// The name of the image; for a reference by digest, any name in its repository.
    MatchRepoDigestOrExact {},
    /// Any name in the image's repository, or the repository alone, as cosign signs.
    MatchRepository {},
    /// This name.
    ExactReference { docker_reference: String },
    /// Any name in this repository.
    ExactRepository { docker_repository: String },
    /// Like `MatchRepoDigestOrExact` after one prefix of the image's name is replaced by another.
    #[serde(rename = "remapIdentity")]
    Remap {
        prefix: String,
        signed_prefix: String,
    },
}

impl Default for Identity {
    fn default() -> Self {
        Self::MatchRepoDigestOrExact {}
    }
}

/// A name that may lack a tag and a digest. No default tag is added: a signature must be exact.
#[derive(Debug, Eq, PartialEq)]
struct Name {
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        let reference = Reference::parse(text).ok()?;
        let name = text.split('@').next()?;
        let last = name.rsplit('/').next()?;
        Some(Self {
            repository: repository(&reference),
            tag: last.split_once(':').map(|(_, tag)| tag.to_owned()),
            digest: reference.digest().cloned(),
        })
    }

    fn from_reference(reference: &Reference) -> Self {
        Self {
            repository: repository(reference),
            tag: reference.tag().map(str::to_owned),
            digest: reference.digest().cloned(),
        }
    }

    fn is_name_only(&self) -> bool {
        self.tag.is_none() && self.digest.is_none()
    }
}

fn repository(reference: &Reference) -> String {
    format!("{}/{}", reference.registry(), reference.repository())
}

impl Identity {
    /// Checks that a signature for the name `signed` is one for the image.
    pub(super) fn check(&self, image: &Reference, signed: &str) -> Result<(), String> {
        if self.fits(image, signed) {
            Ok(())
        } else {
            Err(format!("a signature for {signed:?} is not one for {image}"))
        }
    }

    /// Returns whether a signature for the name `signed` is one for the image.
    fn fits(&self, image: &Reference, signed: &str) -> bool {
        let Some(signed) = Name::parse(signed) else {
            return false;
        };
        match self {
            Self::MatchExact {} => exact(&Name::from_reference(image), &signed),
            Self::MatchRepoDigestOrExact {} => {
                exact_or_by_digest(&Name::from_reference(image), &signed)
            }
            Self::MatchRepository {} => signed.repository == repository(image),
            Self::ExactReference { docker_reference } => {
                Name::parse(docker_reference).is_some_and(|wanted| exact(&wanted, &signed))
            }
            Self::ExactRepository { docker_repository } => Name::parse(docker_repository)
                .is_some_and(|wanted| wanted.repository == signed.repository),
            Self::Remap {
                prefix,
                signed_prefix,
            } => {
                let intended = remapped(image, prefix, signed_prefix);
                intended.is_some_and(|intended| exact_or_by_digest(&intended, &signed))
            }
        }
    }
}

fn exact(intended: &Name, signed: &Name) -> bool {
    !intended.is_name_only() && !signed.is_name_only() && intended == signed
}

/// A reference by digest may be signed under any tag: that the digest is the signed one is checked apart from this.
fn exact_or_by_digest(intended: &Name, signed: &Name) -> bool {
    if signed.is_name_only() {
        return false;
    }
    match intended.tag {
        Some(_) => intended == signed,
        None => intended.digest.is_some() && intended.repository == signed.repository,
    }
}

/// The name of an image with its prefix replaced, if it has that prefix.
fn remapped(image: &Reference, prefix: &str, signed_prefix: &str) -> Option<Name> {
    let name = Name::from_reference(image);
    let rest = name.repository.strip_prefix(prefix);
    let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Some(name);
    };
    let replaced = format!("{signed_prefix}{rest}");
    let parsed = Name::parse(&replaced)?;
    // Like in containers/image, the result must be in full form.
    (parsed.is_name_only() && parsed.repository == replaced).then_some(Name {
        repository: replaced,
        ..name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn identity(text: &str) -> Identity {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn signed_names_are_compared_by_the_rules_of_the_policy() {
        let by_tag = "q.io/a/b:1";
        let by_digest = &format!("q.io/a/b{DIGEST}");
        let cases = [
            (r#"{"type":"matchExact"}"#, by_tag, "q.io/a/b:1", true),
            (r#"{"type":"matchExact"}"#, by_tag, "q.io/a/b:2", false),
            (r#"{"type":"matchExact"}"#, by_tag, "q.io/a/b", false),
            (r#"{"type":"matchExact"}"#, by_digest, "q.io/a/b:1", false),
            (
                r#"{"type":"matchRepoDigestOrExact"}"#,
                by_tag,
                "q.io/a/b:1",
                true,
            ),
            (
                r#"{"type":"matchRepoDigestOrExact"}"#,
                by_tag,
                "q.io/a/b:2",
                false,
            ),
            (
                r#"{"type":"matchRepoDigestOrExact"}"#,
                by_digest,
                "q.io/a/b:2",
                true,
            ),
            (
                r#"{"type":"matchRepoDigestOrExact"}"#,
                by_digest,
                "q.io/a/b",
                false,
            ),
            (
                r#"{"type":"matchRepoDigestOrExact"}"#,
                by_digest,
                "q.io/a/c:2",
                false,
            ),
            (r#"{"type":"matchRepository"}"#, by_tag, "q.io/a/b", true),
            (r#"{"type":"matchRepository"}"#, by_tag, "q.io/a/b:9", true),
            (r#"{"type":"matchRepository"}"#, by_tag, "q.io/a", false),
            (r#"{"type":"matchRepository"}"#, by_tag, "not a name", false),
            (
                r#"{"type":"exactReference","dockerReference":"z.io/x:1"}"#,
                by_tag,
                "z.io/x:1",
                true,
            ),
            (
                r#"{"type":"exactReference","dockerReference":"z.io/x"}"#,
                by_tag,
                "z.io/x",
                false,
            ),
            (
                r#"{"type":"exactRepository","dockerRepository":"z.io/x"}"#,
                by_tag,
                "z.io/x",
                true,
            ),
            (
                r#"{"type":"exactRepository","dockerRepository":"z.io/x"}"#,
                by_tag,
                "q.io/a/b",
                false,
            ),
            (
                r#"{"type":"remapIdentity","prefix":"q.io/a","signedPrefix":"v.io"}"#,
                by_tag,
                "v.io/b:1",
                true,
            ),
            (
                r#"{"type":"remapIdentity","prefix":"q.io/a","signedPrefix":"v.io"}"#,
                by_tag,
                "q.io/a/b:1",
                false,
            ),
            (
                r#"{"type":"remapIdentity","prefix":"q.io/aa","signedPrefix":"v.io"}"#,
                by_tag,
                "q.io/a/b:1",
                true,
            ),
            (
                r#"{"type":"remapIdentity","prefix":"q.io","signedPrefix":"v"}"#,
                by_tag,
                "docker.io/v/a/b:1",
                false,
            ),
        ];
        for (rule, image, signed, fits) in cases {
            let image = Reference::parse(image).expect(image);
            assert_eq!(
                identity(rule).fits(&image, signed),
                fits,
                "{rule} {image} {signed}"
            );
        }
    }

    #[test]
    fn rules_are_read_strictly() {
        for wrong in [
            r#"{"type":"matchExact","x":1}"#,
            r#"{"type":"matchAnything"}"#,
            r#"{"type":"exactReference"}"#,
            r#"{"type":"exactReference","dockerReference":"a","dockerReference":"b"}"#,
            r#"{"type":"remapIdentity","prefix":"a"}"#,
            r#"{}"#,
        ] {
            assert!(serde_json::from_str::<Identity>(wrong).is_err(), "{wrong}");
        }
    }
}
