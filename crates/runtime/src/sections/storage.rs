//! `[runtime.images]`

use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope_image::{
    Decryption, ImageStoreConfig, Limits, Platform, PolicyFiles, Timeouts, VerifierPlugins,
};

use criscope_cri::image_pattern::ImagePattern;
use criscope_settings::settings;
use criscope_settings::value::{
    BooleanValue, BoundedDuration, BoundedNumber, ByteCount, DIRECTORIES_DESCRIPTION,
    DirectoryPath, FilePath, ImagePatternValue, ListOf, OptionalValue, ServerName, UnparsedValue,
    ValueError, ValueKind, ms, secs,
};

settings! {
    /// Images: how they are pulled, where they are stored, and their limits.
    pub struct Images in "runtime.images" (runtime_root: &Path) {
        /// The directory for images and their layers. The image garbage collection of the kubelet watches its file system,
        /// on which overlayfs must be able to stack layers.
        root: PathBuf = runtime_root.join("images"), DirectoryPath,
            or "`images` below `runtime.root`" like "\"/var/lib/criscope/images\"";
        /// Directories with mirrors, certificates and headers of registries: a folder for each, with `hosts.toml` as
        /// containerd documents it. The first directory with a folder for the registry wins. Read for each pull.
        certs_dirs: Vec<PathBuf> = vec!["/etc/containerd/certs.d".into(), "/etc/docker/certs.d".into()],
            ListOf { of: DirectoryPath, words: DIRECTORIES_DESCRIPTION } => live;
        /// `registries.conf` (containers-registries.conf(5), version 2) with its directory `registries.conf.d`: short names,
        /// mirrors, other locations, blocked registries. It decides where an image is fetched from; each of these places is
        /// then looked up in `certs_dirs`. Read for each pull.
        registries_conf: Option<PathBuf> = None, OptionalValue(FilePath),
            or "none: short names are those of Docker Hub" like "\"/etc/containers/registries.conf\"" => live;
        /// Hosts that a registry with TLS may redirect to without TLS, such as a blob store in the node's own network. Only layers
        /// and other content with a known digest come from there. `host`, `host:port`, or `.domain` for all hosts below a domain.
        insecure_redirect_hosts: Vec<String> = Vec::new(),
            ListOf { of: ServerName, words: "an array of host names, each with or without a port" } => live;
        /// Docker's `config.json` with credentials for pulls whose request has none. Read for each pull.
        docker_config: Option<PathBuf> = None, OptionalValue(FilePath), or "none" like "\"/root/.docker/config.json\"" => live;
        /// The signature policy that images must meet, as containers-policy.json(5) describes it: for pulls, and for images
        /// that are already here when a container is created. Read each time. A policy that cannot be read allows nothing.
        signature_policy: Option<PathBuf> = None, OptionalValue(FilePath),
            or "none: signatures are not verified" like "\"/etc/containers/policy.json\"" => live;
        /// The directory with policies for the pods of single namespaces, in `NAMESPACE.json`; the others have
        /// `signature_policy`.
        signature_policy_dir: Option<PathBuf> = None, OptionalValue(DirectoryPath), or "none" like "\"/etc/crio/policies\"" => live;
        /// The directory with the files (containers-registries.d(5)) that say where signatures with GPG keys are, for policies that
        /// require `signedBy`. It need not exist; signatures are in `/var/lib/containers/sigstore` then. Read for each pull.
        registries_d: PathBuf = "/etc/containers/registries.d".into(), DirectoryPath => live;
        /// The directory with image verifier plugins of containerd. Each program in it must accept an image before it is
        /// pulled; if the directory is missing or empty, no image is.
        verifier_bin_dir: Option<PathBuf> = None, OptionalValue(DirectoryPath),
            or "none" like "\"/opt/containerd/image-verifier/bin\"" => live;
        /// The most programs in `verifier_bin_dir`; if there are more, no image is pulled.
        max_verifiers: usize = 10, BoundedNumber::between(1, 100) => live;
        /// How long one of these programs may take for one image.
        per_verifier_timeout: Duration = secs(10), BoundedDuration::between(ms(10), secs(600)) => live;
        /// The key providers for encrypted images, in the file that `OCICRYPT_KEYPROVIDER_CONFIG` names for containerd and
        /// CRI-O. Programs in it run as root. Read for each pull of such an image.
        keyprovider_config: Option<PathBuf> = None, OptionalValue(FilePath),
            or "none" like "\"/etc/ocicrypt_keyprovider.conf\"" => live;
        /// How long a key provider may take for the key of one layer.
        keyprovider_timeout: Duration = secs(30), BoundedDuration::between(ms(10), secs(600)) => live;
        /// Layers that are fetched and unpacked concurrently, over all pulls. Up to twice as many more are reserved for
        /// pulls that would otherwise wait for slow ones. If fewer are fetched, a large layer uses several connections.
        max_concurrent_downloads: usize = 3, BoundedNumber::between(1, 64);
        /// How long a registry, a mirror or a token service may take to answer, and how long a download may send less than
        /// `image_pull_least_rate` on average. Then the next mirror is asked, or the download is resumed; the last server gets a
        /// second chance.
        image_pull_progress_timeout: Duration = secs(60), BoundedDuration::between(secs(1), secs(3600)) => live;
        /// Bytes per second that a download must have on average over each `image_pull_progress_timeout`.
        image_pull_least_rate: usize = 1 << 10, ByteCount::between(1, 1 << 30) => live;
        /// How long connecting to a registry may take, TLS included; `dial_timeout` in its `hosts.toml` takes precedence.
        connect_timeout: Duration = secs(30), BoundedDuration::between(ms(100), secs(600)) => live;
        /// How often a request to the last server is retried without progress in between; once after it was silent for as long as
        /// it may. While there are other mirrors, a server is retried once, and not if it was silent.
        retries: usize = 4, BoundedNumber::between(0, 100) => live;
        /// Largest compressed layer.
        max_layer_size: usize = 64 << 30, ByteCount::between(1 << 20, 1 << 50) => live;
        /// Largest unpacked layer.
        max_unpacked_size: usize = 256 << 30, ByteCount::between(1 << 20, 1 << 50) => live;
        /// The most files and directories of a layer.
        max_layer_entries: usize = 4_000_000, BoundedNumber::between(1000, 1 << 32) => live;
        /// The largest ratio of unpacked to compressed size of layers that unpack to more than 1 GiB.
        max_layer_ratio: usize = 200, BoundedNumber::between(10, 1 << 20) => live;
        /// Free space that pulls and copies for `VOLUME` lines of images leave on the disk.
        min_free_space: usize = 256 << 20, ByteCount::between(0, 1 << 50) => live;
        /// How long unused layers and incomplete downloads are kept, so that the next attempt of a pull resumes.
        keep_unused: Duration = secs(3600), BoundedDuration::between(Duration::ZERO, secs(30 * 86400));
        /// Whether a pull ends only when the image is safely on disk. Otherwise it can be used at once and is synced in the background;
        /// a power failure before that loses the image, which is then pulled again, and never a part of one.
        wait_for_disk: bool = false, BooleanValue;
        /// Image archives in this directory (`*.tar` of the OCI or docker, also compressed: `.tar.gz`, `.tgz`, `.tar.zst`,
        /// `.tzst`) are imported at start, and when they appear or change: for nodes without a network. It need not exist.
        /// `criscope load-image` imports a single archive without it.
        import_dir: PathBuf = runtime_root.join("import"), DirectoryPath,
            or "`import` below `runtime.root`" like "\"/var/lib/criscope/import\"";
        /// Images that the garbage collection of the kubelet must keep, pulled or imported; a removal by name still removes
        /// them. Names are complete: `docker.io/library/busybox:1.36`.
        pinned_images: Vec<ImagePattern> = Vec::new(),
            ListOf { of: ImagePatternValue, words: "an array of image names, which may begin and end with `*`" } => live;
        /// The platform to choose from a multi-platform image, for nodes that emulate another.
        platform: Option<Platform> = None, OptionalValue(PlatformName), or "that of this machine" like "\"linux/amd64\"";
    }
}

impl Images {
    /// The settings of the image store.
    #[must_use]
    pub fn store(&self) -> ImageStoreConfig {
        let policy = PolicyFiles {
            default: self.signature_policy.clone(),
            namespaces: self.signature_policy_dir.clone(),
            registries_d: self.registries_d.clone(),
        };
        let verifiers = self
            .verifier_bin_dir
            .clone()
            .map(|bin_dir| VerifierPlugins {
                bin_dir,
                max_verifiers: self.max_verifiers,
                per_verifier_timeout: self.per_verifier_timeout,
            });
        ImageStoreConfig {
            certs_dirs: self.certs_dirs.clone(),
            registries_conf: self.registries_conf.clone(),
            insecure_redirect_hosts: self.insecure_redirect_hosts.clone(),
            docker_config: self.docker_config.clone(),
            platform: self.platform.clone().unwrap_or_else(Platform::host),
            max_concurrent_downloads: self.max_concurrent_downloads,
            limits: Limits {
                max_layer_bytes: self.max_layer_size as u64,
                max_unpacked_bytes: self.max_unpacked_size as u64,
                max_entries: self.max_layer_entries as u64,
                max_ratio: self.max_layer_ratio as u64,
                min_free_bytes: self.min_free_space as u64,
                ..Limits::default()
            },
            timeouts: Timeouts {
                connect: self.connect_timeout,
                stall: self.image_pull_progress_timeout,
                least_rate: self.image_pull_least_rate as u64,
                retries: self.retries.try_into().unwrap_or(u32::MAX),
                ..Timeouts::default()
            },
            verifiers,
            policy: Some(policy)
                .filter(|files| files.default.is_some() || files.namespaces.is_some()),
            decryption: Decryption {
                key_providers: self.keyprovider_config.clone(),
                provider_timeout: self.keyprovider_timeout,
            },
            keep_unused: self.keep_unused,
            wait_for_disk: self.wait_for_disk,
            ..ImageStoreConfig::new(&self.root)
        }
    }
}

/// Operating system, architecture and variant, in Go's notation.
#[derive(Clone, Copy, Debug)]
struct PlatformName;

impl ValueKind for PlatformName {
    type Value = Platform;

    fn words(&self) -> String {
        "a platform such as \"linux/arm64\" or \"linux/arm/v7\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Platform, ValueError> {
        let text = raw.text(self)?;
        let parts: Vec<_> = text.split('/').collect();
        let right = parts.iter().all(|part| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
        });
        match parts.as_slice() {
            [os, architecture, rest @ ..] if right && rest.len() <= 1 => Ok(Platform {
                os: (*os).to_owned(),
                architecture: (*architecture).to_owned(),
                variant: rest.concat(),
            }),
            _ => Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            }),
        }
    }

    fn show(&self, value: &Platform) -> String {
        let Platform {
            os,
            architecture,
            variant,
        } = value;
        if variant.is_empty() {
            format!("\"{os}/{architecture}\"")
        } else {
            format!("\"{os}/{architecture}/{variant}\"")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_have_two_or_three_parts() {
        for text in ["linux/amd64", "linux/arm/v7"] {
            let platform = PlatformName.read(&UnparsedValue::Text(text)).expect(text);
            assert_eq!(PlatformName.show(&platform), format!("\"{text}\""));
        }
        for text in ["linux", "linux/", "Linux/amd64", "linux/arm/v7/x", ""] {
            assert!(
                PlatformName.read(&UnparsedValue::Text(text)).is_err(),
                "{text}"
            );
        }
    }
}
