//! The images that are pulled and removed again: several layers compressed with gzip, the same with zstd, and one large layer.

use criscope_testkit::image::{Image, gzip, image, layer, noise, zstd};
use criscope_testkit::registry::Registry;

use crate::error::{IoContext, Result};

/// Layers of an image with several.
const LAYERS: u32 = 7;
/// Files of such a layer, and of the large one.
const FILES: [u32; 2] = [32, 600];
/// Bytes of a file.
const FILE: usize = 64 << 10;

/// An image, and its repository.
pub(super) struct Pulled {
    pub(super) repository: &'static str,
    image: Image,
}

impl Pulled {
    /// Gives it a tag, which is new to the registry and its clients. Returns its full name.
    pub(super) fn tag(&self, registry: &Registry, number: u64) -> String {
        let (tag, image) = (number.to_string(), &self.image);
        registry.put_manifest(self.repository, &tag, image.media_type, &image.manifest);
        registry.name(&format!("{}:{tag}", self.repository))
    }
}

/// Makes and pushes them.
///
/// # Errors
/// If compression fails.
pub(super) fn make(registry: &Registry) -> Result<Vec<Pulled>> {
    let gzipped = |plain: Vec<u8>| (gzip(&plain), plain);
    let [several, many] = FILES;
    let layers: Vec<_> = (1..=LAYERS).map(|seed| files(seed, several)).collect();
    let with_gzip: Vec<_> = layers.iter().cloned().map(gzipped).collect();
    let mut with_zstd = Vec::new();
    for plain in layers {
        let bytes = ::zstd::encode_all(&*plain, 3).during(|| "compressing a layer".to_owned())?;
        with_zstd.push((bytes, plain));
    }
    let large = [gzipped(files(LAYERS + 1, many))];
    let images = [
        ("soak/gzip", image(&with_gzip)),
        ("soak/zstd", zstd(&with_zstd)),
        ("soak/large", image(&large)),
    ];
    let push = |(repository, image)| {
        registry.push(repository, "latest", &image);
        Pulled { repository, image }
    };
    Ok(images.into_iter().map(push).collect())
}

/// A layer that compresses to about a half.
fn files(seed: u32, count: u32) -> Vec<u8> {
    let mut tar = layer();
    for number in 0..count {
        let mut data = noise(1000 * seed + number + 1, FILE / 2);
        data.resize(FILE, 0);
        tar = tar.file(&format!("{seed}-{number}"), &data);
    }
    tar.end()
}
