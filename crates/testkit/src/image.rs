//! Builders of layers and images, including malformed ones.

use std::io::Write;

use criscope_image::Digest;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// An archive under construction, which accepts arbitrary entries.
pub struct Layer(Vec<u8>);

pub fn layer() -> Layer {
    Layer(Vec::new())
}

impl Layer {
    pub fn dir(self, path: &str, mode: u32) -> Self {
        self.entry(path, EntryType::Directory, b"", |h| h.set_mode(mode))
    }

    pub fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(path, EntryType::Regular, data, |_| {})
    }

    pub fn link(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Symlink, b"", |h| set_link(h, target))
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Link, b"", |h| set_link(h, target))
    }

    /// Adds an entry, even with a name that a library would reject.
    pub fn entry(
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

    /// Adds PAX records for the next entry.
    pub fn pax(mut self, pairs: &[(&str, &[u8])]) -> Self {
        let mut tar = Builder::new(Vec::new());
        tar.append_pax_extensions(pairs.iter().map(|(key, value)| (*key, *value)))
            .expect("pax");
        let bytes = tar.into_inner().expect("pax");
        // Without the end-of-archive marker.
        let end = bytes.len() - 1024;
        self.0.extend(&bytes[..end]);
        self
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

fn set_link(header: &mut Header, target: &str) {
    header.set_link_name_literal(target).expect("a link");
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("gzip");
    encoder.finish().expect("gzip")
}

/// Incompressible bytes, the same for the same seed.
pub fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// An image as a registry stores it.
#[derive(Clone)]
pub struct Image {
    pub manifest: Vec<u8>,
    pub media_type: &'static str,
    pub config: Vec<u8>,
    /// As downloaded, compressed or not.
    pub layers: Vec<Vec<u8>>,
}

pub const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const TAR_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
const TAR_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image with these layers, each as downloaded and as unpacked.
pub fn image(layers: &[(Vec<u8>, Vec<u8>)]) -> Image {
    image_for(architecture(), layers)
}

/// An image of one layer with the file `f`.
pub fn with_file(content: &[u8]) -> Image {
    gzipped(&[layer().file("f", content).end()])
}

/// An image with gzip-compressed layers.
pub fn gzipped(layers: &[Vec<u8>]) -> Image {
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| (gzip(layer), layer.clone()))
        .collect();
    image(&layers)
}

/// An image with layers that were compressed with zstd, each as downloaded and as unpacked.
pub fn zstd(layers: &[(Vec<u8>, Vec<u8>)]) -> Image {
    build(architecture(), &json!({}), TAR_ZSTD, layers)
}

pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub fn image_for(architecture: &str, layers: &[(Vec<u8>, Vec<u8>)]) -> Image {
    let run = json!({"Entrypoint": ["/bin/sh"], "Cmd": ["-c", "true"], "Env": ["SECRET=hush"], "User": "7:8",
        "WorkingDir": "/w", "StopSignal": "SIGQUIT", "ExposedPorts": {"80/tcp": {}}});
    build(architecture, &run, TAR_GZIP, layers)
}

/// An image with this container configuration and layers that were compressed with gzip, each as downloaded and as unpacked.
pub fn image_running(run: &Value, layers: &[(Vec<u8>, Vec<u8>)]) -> Image {
    build(architecture(), run, TAR_GZIP, layers)
}

/// An image with this container configuration and one uncompressed layer.
pub fn uncompressed(run: &Value, layer: Vec<u8>) -> Image {
    build(architecture(), run, TAR, &[(layer.clone(), layer)])
}

/// An image with this container configuration and uncompressed layers.
pub fn configured(run: &Value, layers: &[Vec<u8>]) -> Image {
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| (layer.clone(), layer.clone()))
        .collect();
    build(architecture(), run, TAR, &layers)
}

fn build(
    architecture: &str,
    run: &Value,
    media_type: &str,
    layers: &[(Vec<u8>, Vec<u8>)],
) -> Image {
    let diff_ids: Vec<_> = layers
        .iter()
        .map(|(_, plain)| Digest::sha256(plain))
        .collect();
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = config.to_string().into_bytes();
    let blobs: Vec<_> = layers
        .iter()
        .map(|(bytes, _)| descriptor(media_type, bytes))
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

pub fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::sha256(bytes), "size": bytes.len()})
}

impl Image {
    pub fn id(&self) -> Digest {
        Digest::sha256(&self.config)
    }

    /// Changes its manifest.
    pub fn with_manifest(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut manifest = serde_json::from_slice(&self.manifest).expect("JSON");
        change(&mut manifest);
        self.manifest = manifest.to_string().into_bytes();
        self
    }

    /// Changes its configuration, and its manifest with it.
    pub fn with_config(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut config = serde_json::from_slice(&self.config).expect("JSON");
        change(&mut config);
        self.config = config.to_string().into_bytes();
        let changed = descriptor("application/vnd.oci.image.config.v1+json", &self.config);
        self.with_manifest(|manifest| manifest["config"] = changed)
    }
}

/// An archive in the format of `docker save`, with the layers as downloaded.
pub fn docker_archive(name: &str, image: &Image) -> Vec<u8> {
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

pub fn digest(bytes: &[u8]) -> Digest {
    Digest::sha256(bytes)
}
