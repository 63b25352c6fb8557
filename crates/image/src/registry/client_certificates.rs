//! The certificates that a node presents to registries, so that their expiry can be monitored.

use std::path::PathBuf;

use super::hosts_file::read;
use crate::files::listed;

/// Upper bound; the directory may contain any number.
const MAX: usize = 256;

/// A certificate that is shown to a registry.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ClientCertificate {
    /// The file of the certificate.
    pub cert: PathBuf,
    /// The file of its key; may be the same.
    pub key: PathBuf,
}

/// Finds the client certificates of all registries in directories in the layout of `certs.d`: `client` in `hosts.toml`, or files in
/// Docker's layout.
pub(crate) fn client_certificates(dirs: &[PathBuf]) -> Vec<ClientCertificate> {
    let mut found: Vec<_> = dirs
        .iter()
        .flat_map(|dir| listed(dir).unwrap_or_default())
        .filter(|path| path.is_dir())
        .filter_map(|registry| read(&registry).ok())
        .flatten()
        .flat_map(|host| host.tls.client)
        .map(|(cert, key)| ClientCertificate {
            key: key.unwrap_or_else(|| cert.clone()),
            cert,
        })
        .collect();
    found.sort();
    found.dedup();
    found.truncate(MAX);
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn certificates_of_all_registries_are_found_in_both_layouts() {
        let dir = tempfile::tempdir().expect("dir");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("dir");
            fs::write(path, text).expect("write");
        };
        put(
            "one/a.example/hosts.toml",
            "[host.\"https://m\"]\nclient = [[\"a.pem\", \"a.key\"], \"/b.pem\"]",
        );
        put("one/broken/hosts.toml", "[");
        put("one/none/hosts.toml", "server = \"https://x\"");
        put("two/c.example:5000/c.cert", "");
        put("two/c.example:5000/ca.crt", "");
        put("two/file", "");
        let dirs = ["one", "two", "missing"].map(|name| dir.path().join(name));
        let found = client_certificates(&dirs);
        let pairs: Vec<_> = found
            .iter()
            .map(|one| {
                let shown = |path: &Path| {
                    let path = path.strip_prefix(dir.path()).unwrap_or(path);
                    path.display().to_string()
                };
                (shown(&one.cert), shown(&one.key))
            })
            .collect();
        let pair = |cert: &str, key: &str| (cert.to_owned(), key.to_owned());
        assert_eq!(
            pairs,
            [
                pair("/b.pem", "/b.pem"),
                pair("one/a.example/a.pem", "one/a.example/a.key"),
                pair("two/c.example:5000/c.cert", "two/c.example:5000/c.key"),
            ]
        );
    }
}
