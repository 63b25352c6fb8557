//! Checks the node's configuration files for images. Each pull reads them anew: without this check, a broken or missing file
//! would be reported only when an image is refused.

use crate::config::ImageStoreConfig;
use crate::{docker_config, registry};

/// A configured file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableFile {
    /// The file, and the cause.
    pub reason: String,
    /// What fails until it can be used.
    pub affected: Affected,
}

/// What a file is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affected {
    /// Pulls of all images.
    Pulls,
    /// These, and the creation of containers.
    PullsAndContainers,
    /// Pulls of encrypted images.
    EncryptedImages,
}

impl Affected {
    /// In words: `no image can be pulled`.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Pulls => "no image can be pulled",
            Self::PullsAndContainers => "no image can be pulled, and no container created from one",
            Self::EncryptedImages => "no encrypted image can be pulled",
        }
    }
}

impl ImageStoreConfig {
    /// Reads the files that pulls will read, and returns the ones that cannot be used. Blocks.
    pub fn unusable_files(&self) -> Vec<UnusableFile> {
        let conf = self.registries_conf.as_deref();
        let docker = self.docker_config.as_deref();
        let pulls = [
            conf.and_then(|path| registry::check_conf(path).err()),
            docker.and_then(|path| docker_config::check(path).err()),
        ];
        let pulls = pulls.into_iter().flatten().map(|error| error.to_string());
        let verifiers = self.verifiers.as_ref();
        let pulls = pulls.chain(verifiers.and_then(|verifiers| verifiers.check().err()));
        let policies = self.policy.as_ref().map(|policy| policy.check());
        let policies = policies.into_iter().flatten();
        let keys = self.decryption.check().into_iter();
        pulls
            .map(|reason| (reason, Affected::Pulls))
            .chain(policies.map(|reason| (reason, Affected::PullsAndContainers)))
            .chain(keys.map(|reason| (reason, Affected::EncryptedImages)))
            .map(|(reason, affected)| UnusableFile { reason, affected })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::{Decryption, PolicyFiles, VerifierPlugins};

    #[test]
    fn every_file_that_a_pull_reads_is_checked() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("written");
        for name in ["verifiers", "policies"] {
            fs::create_dir(path(name)).expect("a directory");
        }
        let config = ImageStoreConfig {
            registries_conf: Some(path("registries.conf")),
            docker_config: Some(path("config.json")),
            verifiers: Some(VerifierPlugins {
                bin_dir: path("verifiers"),
                max_verifiers: 1,
                per_verifier_timeout: Duration::from_secs(1),
            }),
            policy: Some(PolicyFiles {
                default: Some(path("policy.json")),
                namespaces: Some(path("policies")),
                registries_d: PathBuf::from("/no/such/directory"),
            }),
            decryption: Decryption {
                key_providers: Some(path("providers.json")),
                ..Decryption::default()
            },
            ..ImageStoreConfig::new(path("store"))
        };
        let found = || {
            let found = config.unusable_files().into_iter();
            found
                .map(|file| (file.reason, file.affected))
                .collect::<Vec<_>>()
        };
        let has = |part: &str, affected| {
            let found = found();
            let is_it =
                |(reason, of): &(String, Affected)| reason.contains(part) && *of == affected;
            assert!(found.iter().any(is_it), "{part}: {found:?}");
        };
        has("registries.conf", Affected::Pulls);
        has("there are none", Affected::Pulls);
        has("policy.json", Affected::PullsAndContainers);
        has("providers.json", Affected::EncryptedImages);
        // Docker writes it at the first login, and Podman makes the directory of policies.
        assert_eq!(found().len(), 4);

        write(
            "registries.conf",
            "unqualified-search-registries = [\"q.io\"]\n",
        );
        write("config.json", "{}");
        let verifier = path("verifiers/scan");
        fs::write(&verifier, "#!/bin/sh\n").expect("written");
        fs::set_permissions(&verifier, fs::Permissions::from_mode(0o755)).expect("a mode");
        write("policy.json", r#"{"default": [{"type": "reject"}]}"#);
        write("policies/shop.json", r#"{"default": [{"type": "reject"}]}"#);
        write(
            "providers.json",
            r#"{"key-providers": {"kms": {"cmd": {"path": "/bin/sh"}}}}"#,
        );
        assert_eq!(found(), []);

        write("registries.conf", "[[registry]\n");
        write("config.json", "{");
        fs::set_permissions(&verifier, fs::Permissions::from_mode(0o644)).expect("a mode");
        write("policies/shop.json", r#"{"default": []}"#);
        write(
            "providers.json",
            r#"{"key-providers": {"kms": {"cmd": {"path": "/no/such/program"}}}}"#,
        );
        has("registries.conf", Affected::Pulls);
        has("config.json", Affected::Pulls);
        has("scan", Affected::Pulls);
        has("shop.json", Affected::PullsAndContainers);
        has("/no/such/program", Affected::EncryptedImages);
        write("verifiers/second", "");
        has("more than the 1", Affected::Pulls);
    }
}
