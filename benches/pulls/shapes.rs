//! The images: the same amount of text in many layers, in few, and in many small files, compressed with gzip and with zstd.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

use criscope_testkit::image::{Layer, architecture, digest, layer};
use flate2::write::GzEncoder;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::error::{Error, IoContext, Result};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// How the files are distributed: layers, and bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Shape {
    name: &'static str,
    layers: usize,
    file: usize,
}

const SHAPES: [Shape; 3] = [
    Shape {
        name: "many layers",
        layers: 40,
        file: 256 << 10,
    },
    Shape {
        name: "one large layer",
        layers: 1,
        file: 8 << 20,
    },
    Shape {
        name: "small files",
        layers: 5,
        file: 6 << 10,
    },
];

/// The compression of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// Its name, also that of the program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// As docker and buildkit do: level 6 of gzip, level 3 of zstd.
    fn compress(self, bytes: &[u8]) -> Result<Vec<u8>> {
        let compressed = match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(6));
                encoder.write_all(bytes).and_then(|()| encoder.finish())
            }
            Self::Zstd => zstd::encode_all(bytes, 3),
        };
        compressed.during(|| format!("compressing with {}", self.name()))
    }
}

/// An image on disk, in the OCI image layout.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its name in the report.
    pub(crate) name: String,
    /// Its repository.
    pub(crate) repository: String,
    /// The directory of the layout.
    pub(crate) layout: PathBuf,
    pub(crate) compression: Compression,
    /// The digests of its layers.
    pub(crate) layers: Vec<String>,
    /// Bytes to download.
    pub(crate) compressed: usize,
    /// Bytes of its tar archives.
    pub(crate) plain: usize,
}

/// Makes the images whose name contains `only` below a directory, each with about as many bytes of files.
///
/// # Errors
/// If they cannot be written.
pub(crate) fn make(dir: &Path, size: usize, only: &str) -> Result<Vec<Image>> {
    let kinds: Vec<_> = SHAPES
        .iter()
        .flat_map(|shape| Compression::ALL.map(|compression| (shape, compression)))
        .filter(|(shape, compression)| name(shape, *compression).contains(only))
        .collect();
    thread::scope(|scope| {
        let threads: Vec<_> = kinds
            .iter()
            .map(|(shape, compression)| scope.spawn(|| image(dir, shape, *compression, size)))
            .collect();
        let panicked = |_| Error::Setup("making an image failed".to_owned());
        threads
            .into_iter()
            .map(|made| made.join().map_err(panicked)?)
            .collect()
    })
}

fn name(shape: &Shape, compression: Compression) -> String {
    format!("{}, {}", shape.name, compression.name())
}

fn image(dir: &Path, shape: &Shape, compression: Compression, size: usize) -> Result<Image> {
    let repository = format!("{}-{}", shape.name.replace(' ', "-"), compression.name());
    let layout = dir.join(&repository);
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).during(|| format!("making {}", blobs.display()))?;
    let blob = |media_type: &str, bytes: &[u8]| {
        let digest = digest(bytes).to_string();
        let file = blobs.join(digest.trim_start_matches("sha256:"));
        fs::write(&file, bytes).during(|| format!("writing {}", file.display()))?;
        Ok(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}))
    };
    let media_type = format!(
        "application/vnd.oci.image.layer.v1.tar+{}",
        compression.name()
    );
    let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
    let (mut compressed, mut plain) = (0, 0);
    for number in 0..shape.layers {
        let tar = files(number, size / shape.layers, shape.file);
        let bytes = compression.compress(&tar)?;
        diff_ids.push(digest(&tar).to_string());
        layers.push(blob(&media_type, &bytes)?);
        (compressed, plain) = (compressed + bytes.len(), plain + tar.len());
    }
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Cmd": ["/none"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = blob(CONFIG, config.to_string().as_bytes())?;
    let names = layers.iter().filter_map(|layer| layer["digest"].as_str());
    let names = names.map(str::to_owned).collect();
    let manifest =
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    let mut manifest = blob(MANIFEST, manifest.to_string().as_bytes())?;
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": "1"});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    let write = |name: &str, value: Value| {
        let file = layout.join(name);
        fs::write(&file, value.to_string()).during(|| format!("writing {}", file.display()))
    };
    write("index.json", index)?;
    write("oci-layout", json!({"imageLayoutVersion": "1.0.0"}))?;
    Ok(Image {
        name: name(shape, compression),
        repository,
        layout,
        compression,
        layers: names,
        compressed,
        plain,
    })
}

/// The archive of one layer.
fn files(layer_number: usize, bytes: usize, file: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(layer_number as u64);
    let mut tar: Layer = layer();
    let top = format!("layer-{layer_number}");
    tar = tar.dir(&format!("{top}/"), 0o755);
    for number in 0..bytes.div_ceil(file) {
        if number % 100 == 0 {
            tar = tar.dir(&format!("{top}/{}/", number / 100), 0o755);
        }
        let path = format!("{top}/{}/{number}", number / 100);
        tar = tar.file(&path, &text(&mut random, file));
    }
    tar.end()
}

/// Text that compresses to about a third, like programs and their data.
fn text(random: &mut StdRng, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        // Common words are few: the square of an even distribution.
        let word: f64 = random.random();
        let word = (word * word * 30_000.0) as u64;
        text.extend(word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        if word.is_multiple_of(7) {
            text.extend_from_slice(b" = struct");
        }
    }
    text.truncate(length);
    text
}

/// Sizes of all images, for the report.
pub(crate) fn facts(images: &[Image]) -> String {
    let mut by_size: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for image in images {
        let [down, plain] = [image.compressed, image.plain].map(|bytes| bytes / 1_000_000);
        let sizes = format!("{plain} MB, {down} MB to download");
        by_size.entry(sizes).or_default().push(&image.name);
    }
    let all = by_size
        .iter()
        .map(|(size, names)| format!("{} ({size})", names.join(" and ")));
    all.collect::<Vec<_>>().join("; ")
}
