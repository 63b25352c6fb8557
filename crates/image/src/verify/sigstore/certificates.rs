//! Signers with certificates: of Fulcio, which certify an identity for some minutes, or of another authority.

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::der::{Extension, extensions, value};
use super::key;
use crate::verify::evidence::VerifyResult;

/// Certificates of a chain that are used.
const MAX_CHAIN: usize = 10;
/// `id-kp-codeSigning` (RFC 5280, 4.2.1.12).
const CODE_SIGNING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03];
/// `id-ce-subjectAltName`.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// Fulcio's issuer of the identity (1.3.6.1.4.1.57264.1): the text itself, and as a UTF8String.
const ISSUER: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xbf, 0x30, 0x01, 0x01];
const ISSUER_V2: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x83, 0xbf, 0x30, 0x01, 0x08];
/// Tags of DER: `rfc822Name` in a GeneralName, UTF8String.
const EMAIL: u8 = 0x81;
const UTF8_STRING: u8 = 0x0c;

/// The claims that a certificate must make about its owner.
#[derive(Clone, Debug)]
pub(crate) struct Identities {
    /// The OpenID provider that Fulcio asked.
    pub(crate) issuer: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) hostname: Option<String>,
}

/// An authority whose certificates are trusted if they are for these identities.
pub(crate) struct Authority {
    roots: Vec<TrustAnchor<'static>>,
    intermediates: Vec<CertificateDer<'static>>,
    identities: Identities,
}

fn certificates(pem: &[u8]) -> VerifyResult<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    all.map_err(|_| "certificates that are not PEM".to_owned())
}

/// Reads the only certificate of a text.
pub(super) fn single(pem: &str) -> VerifyResult<Vec<u8>> {
    match certificates(pem.as_bytes())?.as_slice() {
        [one] => Ok(one.as_ref().to_vec()),
        _ => Err("a signature with none or several certificates".to_owned()),
    }
}

impl Authority {
    /// Reads the certificates of an authority in PEM.
    pub(crate) fn new(
        roots: &[u8],
        intermediates: Option<&[u8]>,
        identities: Identities,
    ) -> VerifyResult<Self> {
        let roots = certificates(roots)?;
        let anchors = roots.iter().map(|root| {
            let anchor = anchor_from_trusted_cert(root).map(|anchor| anchor.to_owned());
            anchor.map_err(|e| format!("a certificate of the policy's authority: {e}"))
        });
        let anchors = anchors.collect::<VerifyResult<Vec<_>>>()?;
        if anchors.is_empty() {
            return Err("the policy's authority has no certificate".to_owned());
        }
        Ok(Self {
            roots: anchors,
            intermediates: certificates(intermediates.unwrap_or_default())?,
            identities,
        })
    }

    /// Checks a certificate (DER) with its chain (PEM) at a time, its owner, and that it has signed the payload.
    pub(super) fn verify(
        &self,
        leaf: &[u8],
        chain: &str,
        at: Option<UnixTime>,
        payload: &[u8],
        signature: &[u8],
    ) -> VerifyResult<()> {
        let der = CertificateDer::from(leaf);
        let parsed = EndEntityCert::try_from(&der).map_err(|e| untrusted(&e))?;
        let mut chain = certificates(chain.as_bytes())?;
        chain.truncate(MAX_CHAIN);
        chain.extend(self.intermediates.iter().cloned());
        parsed
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &self.roots,
                &chain,
                at.unwrap_or_else(UnixTime::now),
                KeyUsage::required_if_present(CODE_SIGNING),
                None,
                None,
            )
            .map_err(|e| untrusted(&e))?;
        self.check_owner(leaf, &parsed)?;
        let algorithm = key::algorithm(|algorithm| parsed.verify_signature(algorithm, b"", b""));
        let algorithm = algorithm.ok_or("a certificate with a key of an unsupported kind")?;
        parsed
            .verify_signature(algorithm, payload, signature)
            .map_err(|_| "a signature that is not by the key of its certificate".to_owned())
    }

    fn check_owner(&self, leaf: &[u8], parsed: &EndEntityCert<'_>) -> VerifyResult<()> {
        let extensions = extensions(leaf).ok_or("a certificate that cannot be read")?;
        let wanted = &self.identities;
        if let Some(issuer) = &wanted.issuer {
            let found = issuer_in(&extensions)?;
            if found != *issuer {
                return Err(format!(
                    "a certificate for an identity of another issuer, {found:?}"
                ));
            }
        }
        if let Some(email) = &wanted.email {
            let found = emails_in(&extensions)?;
            if !found.iter().any(|one| one == email) {
                return Err(format!("a certificate for {found:?}, not for {email:?}"));
            }
        }
        if let Some(hostname) = &wanted.hostname {
            let name = ServerName::try_from(hostname.as_str())
                .map_err(|_| format!("{hostname:?} in the policy is no host name"))?;
            let valid = parsed.verify_is_valid_for_subject_name(&name);
            valid.map_err(|_| format!("a certificate that is not for {hostname:?}"))?;
        }
        Ok(())
    }
}

fn untrusted(error: &webpki::Error) -> String {
    format!("a certificate that is not trusted: {error}")
}

/// The value of an extension, which must not occur twice.
fn only<'a>(extensions: &[Extension<'a>], id: &[u8]) -> VerifyResult<Option<&'a [u8]>> {
    let mut found = extensions.iter().filter(|extension| extension.id == id);
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err("a certificate with an extension twice".to_owned()),
        (found, _) => Ok(found.map(|extension| extension.value)),
    }
}

const DAMAGED_ISSUER: &str = "a certificate with a damaged issuer";

fn issuer_text(bytes: &[u8]) -> VerifyResult<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| DAMAGED_ISSUER.to_owned())
}

fn issuer_in(extensions: &[Extension<'_>]) -> VerifyResult<String> {
    let first = only(extensions, ISSUER)?.map(issuer_text).transpose()?;
    let second = only(extensions, ISSUER_V2)?.map(|bytes| match value(bytes) {
        Some((UTF8_STRING, content, [])) => issuer_text(content),
        _ => Err(DAMAGED_ISSUER.to_owned()),
    });
    match (first, second.transpose()?) {
        (Some(first), Some(second)) if first != second => {
            Err("a certificate with two issuers of an identity".to_owned())
        }
        (Some(issuer), _) | (None, Some(issuer)) => Ok(issuer),
        (None, None) => Err("a certificate without the issuer of an identity".to_owned()),
    }
}

fn emails_in(extensions: &[Extension<'_>]) -> VerifyResult<Vec<String>> {
    let Some(names) = only(extensions, SUBJECT_ALT_NAME)? else {
        return Ok(Vec::new());
    };
    parse_emails(names).ok_or_else(|| "a certificate with damaged names".to_owned())
}

fn parse_emails(names: &[u8]) -> Option<Vec<String>> {
    let (_, mut rest, _) = value(names)?;
    let mut emails = Vec::new();
    while !rest.is_empty() {
        let (tag, content, after) = value(rest)?;
        if tag == EMAIL {
            emails.push(String::from_utf8(content.to_vec()).ok()?);
        }
        rest = after;
    }
    Some(emails)
}
