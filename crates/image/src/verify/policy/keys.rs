//! The keys and certificates that a policy names, and the signatures that are judged by them.

use std::fs;
use std::path::PathBuf;

use super::json::Base64;
use crate::digest::Digest;
use crate::verify::evidence::{Evidence, Signature, VerifyResult};
use crate::verify::simple_signing;

/// Reasons shown of signatures that are not accepted.
const MAX_REASONS: usize = 5;

/// A file, or what would be in it.
#[derive(Debug)]
pub(super) enum Source {
    Path(PathBuf),
    Data(Vec<u8>),
}

/// At most one of four ways to name keys.
pub(super) fn sources(
    path: Option<PathBuf>,
    paths: Option<Vec<PathBuf>>,
    data: Option<Base64>,
    datas: Option<Vec<Base64>>,
) -> VerifyResult<Option<Vec<Source>>> {
    let given = [
        path.map(|path| vec![Source::Path(path)]),
        paths.map(|all| all.into_iter().map(Source::Path).collect()),
        data.map(|data| vec![Source::Data(data.0)]),
        datas.map(|all| all.into_iter().map(|data| Source::Data(data.0)).collect()),
    ];
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(_), Some(_)) => Err("keys are given in more than one way".to_owned()),
        (Some(keys), None) if keys.is_empty() => Err("a list of keys is empty".to_owned()),
        (keys, _) => Ok(keys),
    }
}

impl Source {
    pub(super) fn read(&self) -> VerifyResult<Vec<u8>> {
        match self {
            Self::Path(path) => fs::read(path).map_err(|e| format!("key {}: {e}", path.display())),
            Self::Data(bytes) => Ok(bytes.clone()),
        }
    }
}

/// One of two ways to name certificates, or none; `both` is the error of both.
pub(super) fn source(
    path: Option<PathBuf>,
    data: Option<Base64>,
    both: &str,
) -> VerifyResult<Option<Source>> {
    match (path, data) {
        (Some(_), Some(_)) => Err(both.to_owned()),
        (Some(path), None) => Ok(Some(Source::Path(path))),
        (None, data) => Ok(data.map(|data| Source::Data(data.0))),
    }
}

/// One accepted signature is enough. Those with GPG keys and those of cosign do not see each other.
pub(super) fn any_accepted(
    evidence: &[Evidence],
    is_gpg: bool,
    check: impl Fn(&Signature, &Digest) -> VerifyResult<()>,
) -> VerifyResult<()> {
    let mut reasons = Vec::new();
    for found in evidence {
        let all = found.signatures.iter();
        let of_kind = all.filter(|one| (one.media_type == simple_signing::MEDIA_TYPE) == is_gpg);
        for signature in of_kind {
            match check(signature, &found.manifest) {
                Ok(()) => return Ok(()),
                Err(reason) => reasons.push(reason),
            }
        }
    }
    Err(match reasons.len() {
        0 => "a signature was required, but no signature exists".to_owned(),
        1 => reasons.remove(0),
        // The number of signatures depends on the registry.
        _ => {
            reasons.truncate(MAX_REASONS);
            format!("none of the signatures is accepted: {}", reasons.join("; "))
        }
    })
}
