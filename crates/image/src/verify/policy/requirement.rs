//! Requirements of a policy. Those that criscope cannot check are read, and refuse every image.

use std::path::PathBuf;

use serde::Deserialize;

use super::identity::Identity;
use super::json::Base64;
use super::keys::{Source, any_accepted, source, sources};
use super::signed_by::SignedBy;
use crate::reference::Reference;
use crate::verify::evidence::{Evidence, VerifyResult};
use crate::verify::sigstore::{self, Authority, Identities, PublicKey, Trust};

/// Which signatures the policies need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Signatures of cosign, in the registry.
    pub(crate) attached: bool,
    /// Signatures with GPG keys, in a lookaside store.
    pub(crate) lookaside: bool,
}

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
    /// Those with certificates of Fulcio, or of another authority.
    Certificates {
        roots: Source,
        intermediates: Option<Source>,
        identities: Identities,
    },
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

impl TryFrom<Raw> for SigstoreSigned {
    type Error = String;

    fn try_from(raw: Raw) -> VerifyResult<Self> {
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
                const WRONG: &str = "fulcio needs one of caPath and caData";
                let roots = source(fulcio.ca_path, fulcio.ca_data, WRONG)?.ok_or(WRONG)?;
                if logs.is_none() {
                    return Err("fulcio needs a public key of Rekor".to_owned());
                }
                Signer::Certificates {
                    roots,
                    intermediates: None,
                    identities: Identities {
                        issuer: Some(fulcio.oidc_issuer),
                        email: Some(fulcio.subject_email),
                        hostname: None,
                    },
                }
            }
            (None, None, Some(pki)) => {
                const WRONG: &str = "pki needs one of caRootsPath and caRootsData";
                const BOTH: &str = "pki has intermediates in two ways";
                let roots = source(pki.ca_roots_path, pki.ca_roots_data, WRONG)?.ok_or(WRONG)?;
                let (path, data) = (pki.ca_intermediates_path, pki.ca_intermediates_data);
                let intermediates = source(path, data, BOTH)?;
                if pki.subject_email.is_none() && pki.subject_hostname.is_none() {
                    return Err("pki needs a subjectEmail or a subjectHostname".to_owned());
                }
                if logs.is_some() {
                    return Err("pki cannot be used with Rekor".to_owned());
                }
                Signer::Certificates {
                    roots,
                    intermediates,
                    identities: Identities {
                        issuer: None,
                        email: pki.subject_email,
                        hostname: pki.subject_hostname,
                    },
                }
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

fn public_keys(sources: &[Source]) -> VerifyResult<Vec<PublicKey>> {
    sources
        .iter()
        .map(|source| PublicKey::from_pem(&source.read()?))
        .collect()
}

impl SigstoreSigned {
    /// Reads all keys and certificates. One that is unusable makes the requirement unusable, so that it is noticed before it
    /// is needed.
    fn trust(&self) -> VerifyResult<Trust> {
        let logs = self.logs.as_deref().map(public_keys).transpose()?;
        Ok(match &self.signer {
            Signer::Keys(sources) => Trust::Keys {
                keys: public_keys(sources)?,
                logs,
            },
            Signer::Certificates {
                roots,
                intermediates,
                identities,
            } => {
                let others = intermediates.as_ref().map(Source::read).transpose()?;
                let (roots, identities) = (roots.read()?, identities.clone());
                Trust::Certificates {
                    authority: Authority::new(&roots, others.as_deref(), identities)?,
                    logs,
                }
            }
        })
    }

    fn judge(&self, reference: &Reference, evidence: &[Evidence]) -> VerifyResult<()> {
        let trust = self.trust()?;
        any_accepted(evidence, false, |signature, manifest| {
            let name = sigstore::check(signature, manifest, &trust)?;
            self.identity.check(reference, &name)
        })
    }
}

impl Requirement {
    pub(super) fn add_needs(&self, needs: &mut Needs) {
        needs.attached |= matches!(self, Self::SigstoreSigned(_));
        needs.lookaside |= matches!(self, Self::SignedBy(_));
    }

    pub(super) fn judge(&self, reference: &Reference, evidence: &[Evidence]) -> VerifyResult<()> {
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
