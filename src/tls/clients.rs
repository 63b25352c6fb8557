//! Client certificates of criscope. Other modules list them, since their number and files may change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::TlsCertificate;

/// The certificates for one purpose. Their users read the files themselves.
#[derive(Debug)]
pub struct ClientCertificates {
    endpoint: &'static str,
    pairs: Mutex<Vec<Arc<TlsCertificate>>>,
}

impl ClientCertificates {
    /// A list without a certificate.
    #[must_use]
    pub fn new(endpoint: &'static str) -> Self {
        Self {
            endpoint,
            pairs: Mutex::default(),
        }
    }

    /// Reads these files of certificates and keys, and no others from now on. Blocks on the disk.
    pub fn refresh(&self, files: &[(PathBuf, PathBuf)]) {
        let known = self.pairs();
        let pairs = files.iter().map(|(cert, key)| {
            let known = known.iter().find(|pair| pair.has_files(cert, key));
            match known {
                Some(pair) => {
                    pair.refresh();
                    Arc::clone(pair)
                }
                None => Arc::new(TlsCertificate::for_client(self.endpoint, cert, key)),
            }
        });
        let pairs = pairs.collect();
        *self.pairs.lock().unwrap_or_else(PoisonError::into_inner) = pairs;
    }

    pub(super) fn pairs(&self) -> Vec<Arc<TlsCertificate>> {
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.clone()
    }
}
