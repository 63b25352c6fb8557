//! Public keys: ECDSA on P-256 and P-384, RSA, and Ed25519, each with SHA-256 where a hash is a choice, as cosign signs.

use crate::verify::evidence::VerifyResult;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use webpki::RawPublicKeyEntity;
use webpki::ring::{ECDSA_P256_SHA256, ECDSA_P384_SHA256, ED25519, RSA_PKCS1_2048_8192_SHA256};

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

const ALGORITHMS: [Algorithm; 4] = [
    ECDSA_P256_SHA256,
    RSA_PKCS1_2048_8192_SHA256,
    ED25519,
    ECDSA_P384_SHA256,
];

/// A public key, and how it is used.
pub(crate) struct PublicKey {
    der: Vec<u8>,
    algorithm: Algorithm,
}

impl PublicKey {
    /// Reads a key in PEM (`PUBLIC KEY`).
    pub(crate) fn from_pem(pem: &[u8]) -> VerifyResult<Self> {
        let mut all = SubjectPublicKeyInfoDer::pem_slice_iter(pem);
        let (Some(Ok(key)), None) = (all.next(), all.next()) else {
            return Err("a key is not a public key in PEM".to_owned());
        };
        let algorithm = algorithm(|algorithm| {
            let key = RawPublicKeyEntity::try_from(&key)?;
            key.verify_signature(algorithm, b"", b"")
        });
        Ok(Self {
            algorithm: algorithm.ok_or("a public key of a kind that is not supported")?,
            der: key.as_ref().to_vec(),
        })
    }

    /// The key as a `SubjectPublicKeyInfo` in DER.
    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = SubjectPublicKeyInfoDer::from(self.der.as_slice());
        let key = RawPublicKeyEntity::try_from(&key);
        key.is_ok_and(|key| {
            key.verify_signature(self.algorithm, message, signature)
                .is_ok()
        })
    }
}

/// The algorithm of a key, which is the one that tries it: `verify` checks a signature that is none.
pub(super) fn algorithm(
    verify: impl Fn(Algorithm) -> Result<(), webpki::Error>,
) -> Option<Algorithm> {
    ALGORITHMS
        .into_iter()
        .find(|algorithm| verify(*algorithm) == Err(webpki::Error::InvalidSignatureForPublicKey))
}
