//! Client certificates of criscope that other modules list, since their number and files may change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::Pair;

/// The certificates for one purpose. Their users read the files themselves.
#[derive(Debug)]
pub struct Clients {
    endpoint: &'static str,
    pairs: Mutex<Vec<Arc<Pair>>>,
}

impl Clients {
    /// Without a certificate.
    #[must_use]
    pub fn new(endpoint: &'static str) -> Self {
        Self {
            endpoint,
            pairs: Mutex::default(),
        }
    }

    /// Looks at these files of certificates and keys, and at no others from now on. Blocks on the disk.
    pub fn refresh(&self, files: &[(PathBuf, PathBuf)]) {
        let known = self.pairs();
        let pair = |(cert, key): &(PathBuf, PathBuf)| {
            let known = known.iter().find(|pair| pair.is_of(cert, key));
            match known {
                Some(pair) => {
                    pair.refresh();
                    Arc::clone(pair)
                }
                None => Arc::new(Pair::for_client(self.endpoint, cert, key)),
            }
        };
        let pairs = files.iter().map(pair).collect();
        *self.pairs.lock().unwrap_or_else(PoisonError::into_inner) = pairs;
    }

    pub(super) fn pairs(&self) -> Vec<Arc<Pair>> {
        let pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.clone()
    }
}
