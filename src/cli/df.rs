//! `criscope df`

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::CommandFailure;
use super::cri::{CriConnection, CriSocketArgs, Error};
use super::images::{self, ListedImage};
use crate::cri::v1;
use crate::cri::visible::visible;
use crate::pages::terminal::format::{self, OutputFormat};
use crate::units;

/// Show how much disk space images and containers use, and how much prune would free
///
/// Asks the CRI socket, so it works without a running kubelet. Only the built-in runtime reports the size of each layer, and
/// so the space that images share; with other runtimes, prune frees at most the space shown.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    socket: CriSocketArgs,
    /// Show each image and container
    #[arg(long, short)]
    verbose: bool,
    /// Output format, instead of tables; always with each image and container
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

#[derive(Debug, Serialize)]
struct DiskUsageReport {
    /// Measured by ImageFsInfo.
    image_filesystems: Vec<FilesystemUsage>,
    container_filesystems: Vec<FilesystemUsage>,
    images: Vec<ImageDiskUsage>,
    containers: Vec<WritableLayerUsage>,
    prune: ReclaimableSpace,
}

#[derive(Debug, Serialize)]
struct FilesystemUsage {
    mountpoint: String,
    used_bytes: u64,
    inodes_used: u64,
}

#[derive(Debug, Serialize)]
struct ImageDiskUsage {
    #[serde(flatten)]
    image: ListedImage,
    /// Bytes of layers that other images have too; none if the runtime does not tell layers.
    shared_bytes: Option<u64>,
    unique_bytes: Option<u64>,
}

/// A writable layer, measured by ListContainerStats.
#[derive(Debug, Serialize)]
struct WritableLayerUsage {
    id: String,
    /// NAMESPACE/POD/CONTAINER, or the id of a container without these labels.
    name: String,
    bytes: Option<u64>,
    inodes: Option<u64>,
}

/// Images that `criscope prune` removes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ReclaimableSpace {
    images: usize,
    bytes: u64,
    /// True if layers that used images share are left out.
    is_by_layer: bool,
}

/// A layer in the verbose status of an image, of the built-in runtime.
#[derive(Clone, Debug, Deserialize)]
struct ImageLayerSize {
    id: String,
    bytes: u64,
}

#[derive(Deserialize)]
struct VerboseImageInfo {
    #[serde(rename = "layerUsage")]
    layer_usage: Vec<ImageLayerSize>,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    CriConnection::run(&args.socket, async |cri| {
        let usage = read(cri).await?;
        match args.output {
            Some(format) => format::print(format, &usage)?,
            None => images::print(&shown(&usage, args.verbose))?,
        }
        Ok(())
    })
}

async fn read(cri: &CriConnection) -> Result<DiskUsageReport, Error> {
    let mut images = Vec::new();
    for image in images::read(cri).await? {
        let info = cri.image_info(&image.id).await?;
        let info = info
            .get("info")
            .map(|text| serde_json::from_str::<VerboseImageInfo>(text));
        let layers = info.and_then(Result::ok).map(|info| info.layer_usage);
        images.push((image, layers));
    }
    let filesystems = cri.image_fs_info().await?;
    let containers = cri.container_stats().await?;
    let (prune, images) = shares(images);
    Ok(DiskUsageReport {
        image_filesystems: filesystem(filesystems.image_filesystems),
        container_filesystems: filesystem(filesystems.container_filesystems),
        images,
        containers: containers.into_iter().filter_map(container).collect(),
        prune,
    })
}

fn value(value: Option<&v1::UInt64Value>) -> Option<u64> {
    value.map(|wrapper| wrapper.value)
}

fn filesystem(all: Vec<v1::FilesystemUsage>) -> Vec<FilesystemUsage> {
    all.into_iter()
        .map(|usage| FilesystemUsage {
            used_bytes: value(usage.used_bytes.as_ref()).unwrap_or_default(),
            inodes_used: value(usage.inodes_used.as_ref()).unwrap_or_default(),
            mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
        })
        .collect()
}

fn container(stats: v1::ContainerStats) -> Option<WritableLayerUsage> {
    let attributes = stats.attributes?;
    let layer = stats.writable_layer.unwrap_or_default();
    Some(WritableLayerUsage {
        name: images::pod_and_name(&attributes.labels).unwrap_or_else(|| attributes.id.clone()),
        id: attributes.id,
        bytes: value(layer.used_bytes.as_ref()),
        inodes: value(layer.inodes_used.as_ref()),
    })
}

/// Sizes of shared and unshared layers by image, and the space that prune frees. Each layer counts once.
fn shares(
    images: Vec<(ListedImage, Option<Vec<ImageLayerSize>>)>,
) -> (ReclaimableSpace, Vec<ImageDiskUsage>) {
    // The images that have a layer, and those of them that are in use.
    let mut users: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut sizes = BTreeMap::new();
    for (image, layers) in &images {
        for layer in layers.iter().flatten() {
            let (all, used) = users.entry(layer.id.clone()).or_default();
            *all += 1;
            *used += usize::from(!image.is_unused());
            sizes.insert(layer.id.clone(), layer.bytes);
        }
    }
    let is_by_layer = images.iter().all(|(_, layers)| layers.is_some());
    let unused = images.iter().filter(|(image, _)| image.is_unused());
    let whole = unused.clone().map(|(image, _)| image.size_bytes);
    let free = users.iter().filter(|(_, (_, used))| *used == 0);
    let layered = free.filter_map(|(id, _)| sizes.get(id).copied());
    let freed = ReclaimableSpace {
        images: unused.count(),
        bytes: if is_by_layer {
            layered.fold(0, u64::saturating_add)
        } else {
            whole.fold(0, u64::saturating_add)
        },
        is_by_layer,
    };
    let usages = images.into_iter().map(|(image, layers)| {
        let (shared, unique): (Vec<_>, Vec<_>) = layers.iter().flatten().partition(|layer| {
            let (all, _) = users.get(&layer.id).copied().unwrap_or_default();
            all > 1
        });
        let [shared_bytes, unique_bytes] = [shared, unique].map(|layers_of_kind| {
            layers.as_ref()?;
            Some(sum(layers_of_kind.iter().map(|layer| layer.bytes)))
        });
        ImageDiskUsage {
            shared_bytes,
            unique_bytes,
            image,
        }
    });
    (freed, usages.collect())
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), units::bytes)
}

fn shown(usage: &DiskUsageReport, is_verbose: bool) -> String {
    let head = ["", "COUNT", "IN USE", "SIZE", "INODES", "FREED BY PRUNE"];
    let filesystems = usage.image_filesystems.as_slice();
    let [size, inodes] = if filesystems.is_empty() {
        ["-".to_owned(), "-".to_owned()]
    } else {
        let inodes = sum(filesystems.iter().map(|usage| usage.inodes_used));
        [
            units::bytes(sum(filesystems.iter().map(|usage| usage.used_bytes))),
            inodes.to_string(),
        ]
    };
    let in_use = usage
        .images
        .iter()
        .filter(|usage| !usage.image.is_unused())
        .count();
    let freed = if usage.prune.is_by_layer {
        units::bytes(usage.prune.bytes)
    } else {
        format!("{} at most", units::bytes(usage.prune.bytes))
    };
    let (count, in_use) = (usage.images.len().to_string(), in_use.to_string());
    let images = ["images", &count, &in_use, &size, &inodes, &freed];
    let layers = usage.containers.as_slice();
    let count = layers.len().to_string();
    let size = units::bytes(sum(layers.iter().filter_map(|layer| layer.bytes)));
    let inodes = sum(layers.iter().filter_map(|layer| layer.inodes)).to_string();
    let layers = ["writable layers", &count, &count, &size, &inodes, "-"];
    let rows = [head, images, layers].map(|cells| cells.map(str::to_owned).to_vec());
    let mut text = images::columns(&rows);
    if is_verbose {
        text += &format!("\n{}\n{}", images_table(usage), containers_table(usage));
    }
    text
}

fn images_table(usage: &DiskUsageReport) -> String {
    let head = ["IMAGE", "SIZE", "SHARED", "UNIQUE", "USED BY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for it in &usage.images {
        let used = it.image.users(false);
        let size = units::bytes(it.image.size_bytes);
        let name = visible(it.image.shown()).to_string();
        let (shared, unique) = (bytes(it.shared_bytes), bytes(it.unique_bytes));
        rows.push(vec![name, size, shared, unique, visible(&used).to_string()]);
    }
    images::columns(&rows)
}

fn containers_table(usage: &DiskUsageReport) -> String {
    let mut rows = vec![["CONTAINER", "SIZE", "INODES"].map(str::to_owned).to_vec()];
    for it in &usage.containers {
        let inodes = it.inodes.map_or_else(|| "-".to_owned(), |n| n.to_string());
        rows.push(vec![visible(&it.name).to_string(), bytes(it.bytes), inodes]);
    }
    images::columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(
        id: &str,
        is_used: bool,
        layers: Option<&[(&str, u64)]>,
    ) -> (ListedImage, Option<Vec<ImageLayerSize>>) {
        let image = images::example(id, 100, is_used);
        let layer = |(id, bytes): &(&str, u64)| ImageLayerSize {
            id: (*id).to_owned(),
            bytes: *bytes,
        };
        (
            image,
            layers.map(|layers| layers.iter().map(layer).collect()),
        )
    }

    #[test]
    fn a_layer_is_freed_with_the_last_image_that_needs_it() {
        let (freed, images) = shares(vec![
            image("used", true, Some(&[("base", 10), ("own", 1)])),
            image("one", false, Some(&[("base", 10), ("both", 200)])),
            image("two", false, Some(&[("both", 200), ("two", 3000)])),
        ]);
        assert_eq!(
            (freed.images, freed.bytes, freed.is_by_layer),
            (2, 3200, true)
        );
        let sizes: Vec<_> = images
            .iter()
            .map(|usage| (usage.shared_bytes, usage.unique_bytes))
            .collect();
        assert_eq!(
            sizes,
            [
                (Some(10), Some(1)),
                (Some(210), Some(0)),
                (Some(200), Some(3000))
            ]
        );
    }

    #[test]
    fn without_layers_the_sizes_are_an_upper_bound() {
        let (freed, images) = shares(vec![
            image("used", true, None),
            image("one", false, None),
            image("two", false, Some(&[])),
        ]);
        assert_eq!(
            (freed.images, freed.bytes, freed.is_by_layer),
            (2, 200, false)
        );
        assert_eq!(images[0].unique_bytes, None);
        let usage = DiskUsageReport {
            image_filesystems: Vec::new(),
            container_filesystems: Vec::new(),
            images,
            containers: Vec::new(),
            prune: freed,
        };
        let text = shown(&usage, true);
        assert!(text.contains("200 B at most"), "{text}");
        assert!(text.contains("one     100 B   -"), "{text}");
    }
}
