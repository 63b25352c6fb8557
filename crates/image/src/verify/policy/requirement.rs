//! Requirements of a policy. Those that criscope cannot check are read, and refuse every image.

use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use super::Needs;
use super::identity::Identity;
use super::json::Base64;
use super::signed_by::SignedBy;
use crate::digest::Digest;
use crate::reference::Reference;
use crate::verify::Evidence;
use crate::verify::evidence::Signature;
use crate::verify::sigstore::{self, Authority, Identities, PublicKey, Trust};
use crate::verify::simple_signing;

type Judged<T> = std::result::Result<T, String>;

/// A requirement, which an image meets or not.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum Requirement {
    InsecureAcceptAnything {},
    Reject {},
    SignedBy(Box<SignedBy>),
    /// Not implemented by containers/image either.
    #[allow(dead_code)]
    SignedBaseLayer {
        base_layer_identity: Identity,
    },
    SigstoreSigned(Box<SigstoreSigned>),
}

/// Signatures as cosign makes them.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub(super) struct SigstoreSigned {
    signer: Signer,
    /// Keys of transparency logs, and one of them must have recorded the signature. `None` requires no record.
    logs: Option<Vec<Source>>,
    identity: Identity,
}

/// Who must have signed.
#[derive(Debug)]
enum Signer {
    Keys(Vec<Source>),
    /// Certificates of Fulcio.
    Fulcio(Fulcio),
    /// Other certificates.
    Pki(Pki),
}

/// A file, or what would be in it.
#[derive(Debug)]
pub(super) enum Source {
    Path(PathBuf),
    Data(Vec<u8>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fulcio {
    ca_path: Option<PathBuf>,
    ca_data: Option<Base64>,
    #[serde(rename = "oidcIssuer")]
    oidc_issuer: String,
    subject_email: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pki {
    #[serde(rename = "caRootsPath")]
    ca_roots_path: Option<PathBuf>,
    #[serde(rename = "caRootsData")]
    ca_roots_data: Option<Base64>,
    ca_intermediates_path: Option<PathBuf>,
    ca_intermediates_data: Option<Base64>,
    subject_email: Option<String>,
    subject_hostname: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    key_path: Option<PathBuf>,
    key_paths: Option<Vec<PathBuf>>,
    key_data: Option<Base64>,
    key_datas: Option<Vec<Base64>>,
    fulcio: Option<Fulcio>,
    pki: Option<Pki>,
    rekor_public_key_path: Option<PathBuf>,
    rekor_public_key_paths: Option<Vec<PathBuf>>,
    rekor_public_key_data: Option<Base64>,
    rekor_public_key_datas: Option<Vec<Base64>>,
    signed_identity: Option<Identity>,
}

/// At most one of four ways to name keys.
pub(super) fn sources(
    path: Option<PathBuf>,
    paths: Option<Vec<PathBuf>>,
    data: Option<Base64>,
    datas: Option<Vec<Base64>>,
) -> Judged<Option<Vec<Source>>> {
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

impl TryFrom<Raw> for SigstoreSigned {
    type Error = String;

    fn try_from(raw: Raw) -> Judged<Self> {
        let keys = sources(raw.key_path, raw.key_paths, raw.key_data, raw.key_datas)?;
        let logs = sources(
            raw.rekor_public_key_path,
            raw.rekor_public_key_paths,
            raw.rekor_public_key_data,
            raw.rekor_public_key_datas,
        )?;
        let signer = match (keys, raw.fulcio, raw.pki) {
            (Some(keys), None, None) => Signer::Keys(keys),
            (None, Some(fulcio), None) => {
                if fulcio.ca_path.is_some() == fulcio.ca_data.is_some() {
                    return Err("fulcio needs one of caPath and caData".to_owned());
                }
                if logs.is_none() {
                    return Err("fulcio needs a public key of Rekor".to_owned());
                }
                Signer::Fulcio(fulcio)
            }
            (None, None, Some(pki)) => {
                if pki.ca_roots_path.is_some() == pki.ca_roots_data.is_some() {
                    return Err("pki needs one of caRootsPath and caRootsData".to_owned());
                }
                if pki.ca_intermediates_path.is_some() && pki.ca_intermediates_data.is_some() {
                    return Err("pki has intermediates in two ways".to_owned());
                }
                if pki.subject_email.is_none() && pki.subject_hostname.is_none() {
                    return Err("pki needs a subjectEmail or a subjectHostname".to_owned());
                }
                if logs.is_some() {
                    return Err("pki cannot be used with Rekor".to_owned());
                }
                Signer::Pki(pki)
            }
            _ => return Err("needs exactly one of keys, fulcio and pki".to_owned()),
        };
        Ok(Self {
            signer,
            logs,
            identity: raw.signed_identity.unwrap_or_default(),
        })
    }
}

impl Source {
    pub(super) fn read(&self) -> Judged<Vec<u8>> {
        match self {
            Self::Path(path) => fs::read(path).map_err(|e| format!("key {}: {e}", path.display())),
            Self::Data(bytes) => Ok(bytes.clone()),
        }
    }
}

/// Reads one of the two, if one is given.
fn one_of(path: Option<&PathBuf>, data: Option<&Base64>) -> Judged<Option<Vec<u8>>> {
    match (path, data) {
        (Some(path), _) => Source::Path(path.clone()).read().map(Some),
        (None, data) => Ok(data.map(|data| data.0.clone())),
    }
}

fn public_keys(sources: &[Source]) -> Judged<Vec<PublicKey>> {
    sources
        .iter()
        .map(|source| PublicKey::from_pem(&source.read()?))
        .collect()
}

impl SigstoreSigned {
    /// Reads all keys and certificates. One that is unusable makes the requirement unusable, so that it is noticed before it
    /// is needed.
    fn trust(&self) -> Judged<Trust> {
        let logs = self.logs.as_deref().map(public_keys).transpose()?;
        Ok(match &self.signer {
            Signer::Keys(sources) => Trust::Keys {
                keys: public_keys(sources)?,
                logs,
            },
            Signer::Fulcio(fulcio) => {
                let roots = one_of(fulcio.ca_path.as_ref(), fulcio.ca_data.as_ref())?;
                let identities = Identities {
                    issuer: Some(fulcio.oidc_issuer.clone()),
                    email: Some(fulcio.subject_email.clone()),
                    hostname: None,
                };
                Trust::Certificates {
                    authority: Authority::new(&roots.unwrap_or_default(), None, identities)?,
                    logs,
                }
            }
            Signer::Pki(pki) => {
                let roots = one_of(pki.ca_roots_path.as_ref(), pki.ca_roots_data.as_ref())?;
                let others = one_of(
                    pki.ca_intermediates_path.as_ref(),
                    pki.ca_intermediates_data.as_ref(),
                )?;
                let identities = Identities {
                    issuer: None,
                    email: pki.subject_email.clone(),
                    hostname: pki.subject_hostname.clone(),
                };
                let roots = roots.unwrap_or_default();
                Trust::Certificates {
                    authority: Authority::new(&roots, others.as_deref(), identities)?,
                    logs: None,
                }
            }
        })
    }

    fn judge(&self, reference: &Reference, evidence: &[Evidence]) -> Judged<()> {
        let trust = self.trust()?;
        any_accepted(evidence, false, |signature, manifest| {
            let name = sigstore::check(signature, manifest, &trust)?;
            self.identity.check(reference, &name)
        })
    }
}

/// One accepted signature is enough. Those with GPG keys and those of cosign do not see each other.
pub(super) fn any_accepted(
    evidence: &[Evidence],
    is_gpg: bool,
    check: impl Fn(&Signature, &Digest) -> Judged<()>,
) -> Judged<()> {
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

/// Reasons shown of signatures that are not accepted.
const MAX_REASONS: usize = 5;

impl Requirement {
    pub(super) fn add_needs(&self, needs: &mut Needs) {
        needs.attached |= matches!(self, Self::SigstoreSigned(_));
        needs.lookaside |= matches!(self, Self::SignedBy(_));
    }

    pub(super) fn judge(&self, reference: &Reference, evidence: &[Evidence]) -> Judged<()> {
        match self {
            Self::InsecureAcceptAnything {} => Ok(()),
            Self::Reject {} => Err("rejected by policy".to_owned()),
            Self::SignedBy(requirement) => requirement.judge(reference, evidence),
            Self::SignedBaseLayer { .. } => {
                Err("the policy requires signedBaseLayer, which is not supported".to_owned())
            }
            Self::SigstoreSigned(requirement) => requirement.judge(reference, evidence),
        }
    }
}
