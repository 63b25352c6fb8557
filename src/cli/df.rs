//! `criscope df`

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::CommandFailure;
use super::cri::{CriConnection, CriSocketArgs, Error};
use super::format::{self, OutputFormat};
use super::images::{self, ListedImage};
use crate::cri::v1;
use crate::cri::visible::visible;
use crate::units;

/// Show what images and containers take on the disk, and what prune would free
///
/// Asks the CRI socket, so the kubelet need not run. What images share is known of the built-in runtime only, which tells the
/// size of each layer; of others, prune frees at most what is shown.
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
    /// As ImageFsInfo measures them.
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

/// A writable layer, as ListContainerStats measures it.
#[derive(Debug, Serialize)]
struct WritableLayerUsage {
    id: String,
    /// NAMESPACE/POD/CONTAINER, or the id of a container without these labels.
    name: String,
    bytes: Option<u64>,
    inodes: Option<u64>,
}

/// What `criscope prune` removes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ReclaimableSpace {
    images: usize,
    bytes: u64,
    /// Whether layers that used images need as well are left out.
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
    value.map(|it| it.value)
}

fn filesystem(all: Vec<v1::FilesystemUsage>) -> Vec<FilesystemUsage> {
    let one = |usage: v1::FilesystemUsage| FilesystemUsage {
        used_bytes: value(usage.used_bytes.as_ref()).unwrap_or_default(),
        inodes_used: value(usage.inodes_used.as_ref()).unwrap_or_default(),
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
    };
    all.into_iter().map(one).collect()
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

/// What images share, and what remains of a sum that counts each layer once.
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
        bytes: match is_by_layer {
            true => layered.fold(0, u64::saturating_add),
            false => whole.fold(0, u64::saturating_add),
        },
        is_by_layer,
    };
    let usage = |(image, layers): (ListedImage, Option<Vec<ImageLayerSize>>)| {
        let sum = |is_shared: bool| {
            let mine = layers.as_ref()?.iter().filter(|layer| {
                let (all, _) = users.get(&layer.id).copied().unwrap_or_default();
                (all > 1) == is_shared
            });
            Some(mine.map(|layer| layer.bytes).fold(0, u64::saturating_add))
        };
        ImageDiskUsage {
            shared_bytes: sum(true),
            unique_bytes: sum(false),
            image,
        }
    };
    (freed, images.into_iter().map(usage).collect())
}

fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), units::bytes)
}

fn shown(usage: &DiskUsageReport, is_verbose: bool) -> String {
    let used = |all: &[FilesystemUsage]| {
        let sum = |of: fn(&FilesystemUsage) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
        match all {
            [] => ["-".to_owned(), "-".to_owned()],
            _ => [
                units::bytes(sum(|it| it.used_bytes)),
                sum(|it| it.inodes_used).to_string(),
            ],
        }
    };
    let row = |cells: [&str; 6]| cells.map(str::to_owned).to_vec();
    let head = row(["", "COUNT", "IN USE", "SIZE", "INODES", "FREED BY PRUNE"]);
    let [size, inodes] = used(&usage.image_filesystems);
    let in_use = usage
        .images
        .iter()
        .filter(|it| !it.image.is_unused())
        .count();
    let freed = match usage.prune.is_by_layer {
        true => units::bytes(usage.prune.bytes),
        false => format!("{} at most", units::bytes(usage.prune.bytes)),
    };
    let (count, in_use) = (usage.images.len().to_string(), in_use.to_string());
    let images = row(["images", &count, &in_use, &size, &inodes, &freed]);
    let sum = |of: fn(&WritableLayerUsage) -> Option<u64>| {
        let known = usage.containers.iter().filter_map(of);
        known.fold(0, u64::saturating_add)
    };
    let count = usage.containers.len().to_string();
    let (size, inodes) = (
        units::bytes(sum(|it| it.bytes)),
        sum(|it| it.inodes).to_string(),
    );
    let layers = row(["writable layers", &count, &count, &size, &inodes, "-"]);
    let mut text = images::columns(&[head, images, layers]);
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
            .map(|it| (it.shared_bytes, it.unique_bytes))
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
