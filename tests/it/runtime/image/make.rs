//! Layers and images for tests.

use std::io::Write;

use criscope_image::Digest;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// A layer on the way: an archive that takes everything, also what no layer should have.
pub(in crate::runtime) struct Layer(Vec<u8>);

pub(in crate::runtime) fn layer() -> Layer {
    Layer(Vec::new())
}

impl Layer {
    pub(in crate::runtime) fn dir(self, path: &str, mode: u32) -> Self {
        self.entry(path, EntryType::Directory, b"", |h| h.set_mode(mode))
    }

    pub(in crate::runtime) fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(path, EntryType::Regular, data, |_| {})
    }

    pub(in crate::runtime) fn link(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Symlink, b"", |h| set_link(h, target))
    }

    pub(in crate::runtime) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Link, b"", |h| set_link(h, target))
    }

    /// An entry as it is wanted, with a name that no library would write.
    pub(in crate::runtime) fn entry(
        mut self,
        path: &str,
        kind: EntryType,
        data: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(data.len() as u64);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        change(&mut header);
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self.0.extend(data);
        self.0.resize(self.0.len().div_ceil(512) * 512, 0);
        self
    }

    /// What stands in front of the next entry.
    pub(in crate::runtime) fn pax(mut self, pairs: &[(&str, &[u8])]) -> Self {
        let mut tar = Builder::new(Vec::new());
        tar.append_pax_extensions(pairs.iter().map(|(key, value)| (*key, *value)))
            .expect("pax");
        let bytes = tar.into_inner().expect("pax");
        // Without the end of the archive.
        let end = bytes.len() - 1024;
        self.0.extend(&bytes[..end]);
        self
    }

    pub(in crate::runtime) fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

fn set_link(header: &mut Header, target: &str) {
    header.set_link_name_literal(target).expect("a link");
}

pub(in crate::runtime) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("gzip");
    encoder.finish().expect("gzip")
}

/// Bytes that do not compress, the same for each seed.
pub(in crate::runtime) fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// An image as a registry has it.
#[derive(Clone)]
pub(in crate::runtime) struct Image {
    pub(in crate::runtime) manifest: Vec<u8>,
    pub(in crate::runtime) media_type: &'static str,
    pub(in crate::runtime) config: Vec<u8>,
    /// As they are fetched.
    pub(in crate::runtime) layers: Vec<Vec<u8>>,
}

pub(in crate::runtime) const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
pub(in crate::runtime) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image of layers, each as it is fetched and as it is unpacked.
pub(in crate::runtime) fn image(layers: &[(Vec<u8>, Vec<u8>)]) -> Image {
    image_for(architecture(), layers)
}

/// All layers compressed with gzip.
pub(in crate::runtime) fn gzipped(layers: &[Vec<u8>]) -> Image {
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| (gzip(layer), layer.clone()))
        .collect();
    image(&layers)
}

pub(in crate::runtime) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(in crate::runtime) fn image_for(architecture: &str, layers: &[(Vec<u8>, Vec<u8>)]) -> Image {
    let diff_ids: Vec<_> = layers.iter().map(|(_, plain)| Digest::of(plain)).collect();
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sh"], "Cmd": ["-c", "true"], "Env": ["SECRET=hush"], "User": "7:8",
            "WorkingDir": "/w", "StopSignal": "SIGQUIT", "ExposedPorts": {"80/tcp": {}}},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = config.to_string().into_bytes();
    let blobs: Vec<_> = layers
        .iter()
        .map(|(bytes, _)| descriptor("application/vnd.oci.image.layer.v1.tar+gzip", bytes))
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": blobs,
    });
    Image {
        manifest: manifest.to_string().into_bytes(),
        media_type: OCI,
        config,
        layers: layers.iter().map(|(bytes, _)| bytes.clone()).collect(),
    }
}

pub(in crate::runtime) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len()})
}

impl Image {
    pub(in crate::runtime) fn id(&self) -> Digest {
        Digest::of(&self.config)
    }
}

/// What `docker save` would write. Layers as they are in the archive.
pub(in crate::runtime) fn docker_archive(name: &str, image: &Image) -> Vec<u8> {
    let names: Vec<_> = (0..image.layers.len())
        .map(|n| format!("{n}/layer.tar"))
        .collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": names}]);
    let mut archive = layer();
    for (name, bytes) in names.iter().zip(&image.layers) {
        archive = archive.file(name, bytes);
    }
    let archive = archive.file("config.json", &image.config);
    archive
        .file("manifest.json", manifest.to_string().as_bytes())
        .end()
}

pub(in crate::runtime) fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}
