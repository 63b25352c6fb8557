//! Assembles the smoke's images from one static busybox: a tar layer, a config and a manifest, following the OCI image
//! specification 1.1.
//!
//! Two images share the layer: `criscope/smoke:1`, which runs the steps, and `criscope/pause:1`, which only sleeps and can
//! be the `sandbox_image` of an isolated containerd.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use oci_spec::OciSpecError;
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, ImageConfigurationBuilder, ImageManifestBuilder, MediaType,
    Os, RootFsBuilder, SCHEMA_VERSION, Sha256Digest,
};
use sha2::{Digest as _, Sha256};

use super::busybox::StaticBusybox;

/// Repository of the image for the steps.
pub const SMOKE_REPOSITORY: &str = "criscope/smoke";
/// Repository of the sandbox image.
pub const PAUSE_REPOSITORY: &str = "criscope/pause";
/// The tag of both.
pub const IMAGE_TAG: &str = "1";

/// Busybox applets: the steps need some, and the others help to inspect a kept pod.
const APPLETS: [&str; 12] = [
    "cat", "echo", "env", "false", "id", "ip", "ls", "ps", "sh", "sleep", "true", "wget",
];

/// Label of the image config with the run's id. It makes the image id unique: runtimes remove every reference to an image
/// id at once, so two concurrent runs would otherwise remove each other's image.
const RUN_LABEL: &str = "io.criscope.smoke.run";

/// Sleeps until SIGTERM; as process 1 of a pod `wait` also reaps orphans.
const PAUSE_SCRIPT: &str = "trap 'exit 0' TERM INT; sleep 2147483647 & wait";

/// Why the image could not be assembled.
#[derive(Debug, thiserror::Error)]
pub enum CanaryImageError {
    /// The layer.
    #[error("cannot write the layer: {0}")]
    Layer(#[from] io::Error),
    /// The config or the manifest.
    #[error("cannot write the image: {0}")]
    Spec(#[from] OciSpecError),
}

/// Bytes and their digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestedBlob {
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The content.
    pub bytes: Bytes,
}

impl DigestedBlob {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            digest: format!("sha256:{:x}", Sha256::digest(&bytes)),
            bytes: Bytes::from(bytes),
        }
    }

    fn descriptor(&self, media_type: MediaType) -> Result<Descriptor, OciSpecError> {
        let digest: Sha256Digest = self.digest.trim_start_matches("sha256:").parse()?;
        Ok(Descriptor::new(media_type, self.bytes.len() as u64, digest))
    }
}

/// One image under its repository.
#[derive(Clone, Debug)]
pub struct CanaryImage {
    /// Repository, without registry and tag.
    pub repository: &'static str,
    /// The manifest.
    pub manifest: DigestedBlob,
    /// The config; its digest is the image id in every CRI runtime.
    pub config: DigestedBlob,
    /// The only layer, an uncompressed tar: its digest is its diff id too.
    pub layer: DigestedBlob,
}

/// Both images. `run` identifies this run.
pub fn assemble(busybox: &StaticBusybox, run: &str) -> Result<[CanaryImage; 2], CanaryImageError> {
    let layer = DigestedBlob::new(layer(&busybox.bytes)?);
    let labels = HashMap::from([(RUN_LABEL.to_owned(), run.to_owned())]);
    let smoke = image(
        SMOKE_REPOSITORY,
        &busybox.arch,
        &layer,
        &["/bin/sh"],
        labels,
    )?;
    let pause = ["/bin/sh", "-c", PAUSE_SCRIPT];
    let pause = image(
        PAUSE_REPOSITORY,
        &busybox.arch,
        &layer,
        &pause,
        HashMap::new(),
    )?;
    Ok([smoke, pause])
}

fn image(
    repository: &'static str,
    arch: &Arch,
    layer: &DigestedBlob,
    entrypoint: &[&str],
    labels: HashMap<String, String>,
) -> Result<CanaryImage, CanaryImageError> {
    let entrypoint: Vec<String> = entrypoint.iter().map(|&word| word.to_owned()).collect();
    let run = ConfigBuilder::default()
        .env(vec!["PATH=/bin".to_owned()])
        .entrypoint(entrypoint)
        .labels(labels)
        .build()?;
    let rootfs = RootFsBuilder::default()
        .typ("layers")
        .diff_ids(vec![layer.digest.clone()])
        .build()?;
    let config = ImageConfigurationBuilder::default()
        .architecture(arch.clone())
        .os(Os::Linux)
        .config(run)
        .rootfs(rootfs)
        .build()?;
    let config = DigestedBlob::new(config.to_string()?.into_bytes());
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config.descriptor(MediaType::ImageConfig)?)
        .layers(vec![layer.descriptor(MediaType::ImageLayer)?])
        .build()?;
    Ok(CanaryImage {
        repository,
        manifest: DigestedBlob::new(manifest.to_string()?.into_bytes()),
        config,
        layer: layer.clone(),
    })
}

/// The layer: the program, its links, and mount points for the runtime. Reproducible for the same program.
fn layer(busybox: &[u8]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::with_capacity(busybox.len() + (64 << 10)));
    for (directory, mode) in [
        ("bin/", 0o755),
        ("dev/", 0o755),
        ("etc/", 0o755),
        ("proc/", 0o555),
        ("sys/", 0o555),
        ("tmp/", 0o1777),
    ] {
        let mut header = header(tar::EntryType::Directory, mode, 0);
        tar.append_data(&mut header, directory, io::empty())?;
    }
    let mut program = header(tar::EntryType::Regular, 0o755, busybox.len() as u64);
    tar.append_data(&mut program, "bin/busybox", busybox)?;
    for applet in APPLETS {
        let mut link = header(tar::EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut link, format!("bin/{applet}"), "busybox")?;
    }
    tar.into_inner()
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::path::PathBuf;

    use oci_spec::image::{ImageConfiguration, ImageManifest};

    use super::*;

    pub(crate) fn example() -> [CanaryImage; 2] {
        let busybox = StaticBusybox {
            path: PathBuf::from("/bin/busybox"),
            arch: Arch::Amd64,
            bytes: b"a program".to_vec(),
        };
        assemble(&busybox, "run-1").expect("images")
    }

    fn sha256(bytes: &[u8]) -> String {
        format!("sha256:{:x}", Sha256::digest(bytes))
    }

    #[test]
    fn digests_and_sizes_match_their_content() {
        for image in example() {
            let manifest = ImageManifest::from_reader(&image.manifest.bytes[..]).expect("manifest");
            assert_eq!(image.manifest.digest, sha256(&image.manifest.bytes));
            assert_eq!(
                manifest.config().digest().to_string(),
                sha256(&image.config.bytes)
            );
            assert_eq!(manifest.config().size(), image.config.bytes.len() as u64);
            let [layer] = &manifest.layers()[..] else {
                panic!("one layer");
            };
            assert_eq!(layer.digest().to_string(), sha256(&image.layer.bytes));
            assert_eq!(layer.size(), image.layer.bytes.len() as u64);
            assert_eq!(layer.media_type(), &MediaType::ImageLayer);

            let config = ImageConfiguration::from_reader(&image.config.bytes[..]).expect("config");
            assert_eq!(
                config.rootfs().diff_ids(),
                std::slice::from_ref(&image.layer.digest)
            );
            assert_eq!(config.architecture(), &Arch::Amd64);
        }
    }

    #[test]
    fn each_run_has_its_own_image_id_and_all_share_pause_and_layer() {
        let [smoke, pause] = example();
        let busybox = StaticBusybox {
            path: PathBuf::new(),
            arch: Arch::Amd64,
            bytes: b"a program".to_vec(),
        };
        let [other, same] = assemble(&busybox, "run-2").expect("images");
        assert_ne!(smoke.config.digest, other.config.digest);
        assert_eq!(smoke.layer, other.layer);
        assert_eq!(pause.manifest, same.manifest);
    }

    #[test]
    fn the_layer_has_the_program_and_its_links() {
        let [smoke, _] = example();
        let mut found = BTreeMap::new();
        let mut tar = tar::Archive::new(&smoke.layer.bytes[..]);
        for entry in tar.entries().expect("entries") {
            let mut entry = entry.expect("entry");
            let path = entry.path().expect("path").display().to_string();
            let mode = entry.header().mode().expect("mode");
            let target = entry.link_name().expect("link");
            let target = target.map(|target| target.display().to_string());
            let mut content = String::new();
            entry.read_to_string(&mut content).expect("content");
            found.insert(path, (mode, target, content));
        }
        assert_eq!(found["bin/busybox"], (0o755, None, "a program".to_owned()));
        assert_eq!(
            found["bin/sh"],
            (0o777, Some("busybox".to_owned()), String::new())
        );
        assert_eq!(found["tmp/"].0, 0o1777);
        assert_eq!(found.len(), 6 + 1 + APPLETS.len());
    }
}
