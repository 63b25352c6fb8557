//! Private keys of the node.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use rsa::RsaPrivateKey;
use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::pkcs8::DecodePrivateKey as _;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

use crate::error::{At as _, Error, Result};

/// The most files in the directory and those below it.
const MAX_FILES: usize = 1024;
/// The largest file of a key: one of RSA with 16384 bits takes 13 KiB.
const MAX_KEY: u64 = 64 << 10;
/// Nesting of directories.
const MAX_DEPTH: usize = 8;

/// The keys of a directory.
#[derive(Default)]
pub(super) struct PrivateKeys {
    pub(super) rsa: Vec<RsaPrivateKey>,
    /// Files without a key that can be used.
    pub(super) unusable: usize,
}

impl PrivateKeys {
    /// Reads all files of a directory and of those below it. Symbolic links to files are followed, because a mounted Secret consists of
    /// them.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let mut keys = Self::default();
        let mut files = 0;
        keys.read_dir(dir, MAX_DEPTH, &mut files)?;
        Ok(keys)
    }

    fn read_dir(&mut self, dir: &Path, depth: usize, files: &mut usize) -> Result<()> {
        for entry in fs::read_dir(dir).at(dir)? {
            let entry = entry.at(dir)?;
            let path = entry.path();
            let kind = entry.file_type().at(&path)?;
            if kind.is_dir() {
                if depth > 0 {
                    self.read_dir(&path, depth - 1, files)?;
                }
                continue;
            }
            if !fs::metadata(&path).at(&path)?.is_file() {
                continue;
            }
            *files += 1;
            if *files > MAX_FILES {
                let reason = format!("more than {MAX_FILES} files");
                let path = dir.to_owned();
                return Err(Error::Settings { path, reason });
            }
            match parse(&content(&path)?) {
                Some(key) => self.rsa.push(key),
                None => self.unusable += 1,
            }
        }
        Ok(())
    }
}

fn content(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(8 << 10));
    let file = fs::File::open(path).at(path)?;
    file.take(MAX_KEY).read_to_end(&mut bytes).at(path)?;
    Ok(bytes)
}

/// An RSA key without a password, in PEM or DER.
fn parse(bytes: &[u8]) -> Option<RsaPrivateKey> {
    match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => parse_der(key.secret_der()),
        Err(_) => parse_der(bytes),
    }
}

fn parse_der(der: &[u8]) -> Option<RsaPrivateKey> {
    let key = RsaPrivateKey::from_pkcs8_der(der).ok();
    key.or_else(|| RsaPrivateKey::from_pkcs1_der(der).ok())
}
