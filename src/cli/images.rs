//! `criscope images` and `criscope prune`

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use super::CommandFailure;
use super::cri::{CriConnection, CriSocketArgs, Error};
use super::output;
use crate::cri::v1;
use crate::cri::visible::visible;
use crate::pages::terminal::format::{self, OutputFormat};
use crate::units;

/// Printed for a missing name, as by crictl.
const MISSING_NAME: &str = "<none>";

/// Characters of an id, as crictl and podman print it.
const SHORT_ID_LENGTH: usize = 13;

/// List images, and the containers that use them
///
/// Asks the CRI socket, so it works without a running kubelet. With --upstream or another socket it lists that runtime's
/// images. An image is in use if a container has it, running or not, or mounts it as a volume.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only images with a name that contains this
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    socket: CriSocketArgs,
    /// Show digests
    #[arg(long)]
    digests: bool,
    /// Do not truncate digests, ids and lists of containers
    #[arg(long)]
    no_trunc: bool,
    /// Print ids only, each once
    #[arg(long, short, conflicts_with = "output")]
    quiet: bool,
    /// Output format, instead of the table
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// Remove the images that no container uses
///
/// Removes without asking; --dry-run shows the images first. Images of containers, running or not, images mounted as volumes
/// and pinned images (such as the pause image) stay. The runtime removes the images, with its locks, so it must be running.
/// An image that was pulled for a container that does not exist yet counts as unused: the kubelet pulls it again. Exits with 1
/// if an image could not be removed; the others are removed nevertheless.
#[derive(Debug, clap::Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    socket: CriSocketArgs,
    /// Show the images that would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// An image and its users.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ListedImage {
    pub(super) id: String,
    names: Vec<String>,
    digests: Vec<String>,
    pub(super) size_bytes: u64,
    pinned: bool,
    /// NAMESPACE/POD/CONTAINER, or the id of a container without these labels.
    used_by: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PrunedImages {
    dry_run: bool,
    removed: Vec<ListedImage>,
    failed: Vec<RefusedRemoval>,
}

#[derive(Debug, Serialize)]
struct RefusedRemoval {
    image: ListedImage,
    error: String,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    CriConnection::run(&args.socket, async |cri| {
        let mut images = read(cri).await?;
        if let Some(part) = &args.name {
            images.retain(|image| image.is_named(part));
        }
        if let Some(format) = args.output {
            return Ok(format::print(format, &images)?);
        }
        let mut text = String::new();
        if args.quiet {
            images.iter().for_each(|image| {
                text += &format!("{}\n", visible(&image.id));
            })
        } else {
            text = table(&images, args.digests, args.no_trunc)
        }
        Ok(print(&text)?)
    })
}

pub(super) fn prune(args: &PruneArgs) -> Result<(), CommandFailure> {
    CriConnection::run(&args.socket, async |cri| {
        let mut pruned = PrunedImages {
            dry_run: args.dry_run,
            removed: Vec::new(),
            failed: Vec::new(),
        };
        let unused = read(cri).await?.into_iter().filter(ListedImage::is_unused);
        for image in unused {
            let removed = if args.dry_run {
                Ok(())
            } else {
                cri.remove_image(&image.id).await
            };
            match removed {
                Ok(()) => pruned.removed.push(image),
                // Another client removed it first.
                Err(error) if error.is_gone() => {}
                Err(error) => pruned.failed.push(RefusedRemoval {
                    image,
                    error: error.to_string(),
                }),
            }
        }
        for refused in &pruned.failed {
            let text = format!("{}: {}", refused.image.shown(), refused.error);
            output::error(visible(&text));
        }
        match args.output {
            Some(format) => format::print(format, &pruned)?,
            None => print(&report(&pruned))?,
        }
        if pruned.failed.is_empty() {
            Ok(())
        } else {
            Err(CommandFailure::Found)
        }
    })
}

/// The images with their users, sorted by name. Images are read first, so that a container which is created meanwhile keeps its own.
pub(super) async fn read(cri: &CriConnection) -> Result<Vec<ListedImage>, Error> {
    let images = cri.images().await?;
    let mut users = ImageUsers::default();
    for container in cri.containers().await? {
        let mounted = cri.mounted_images(&container.id).await?;
        users.add(&container, mounted);
    }
    let mut images: Vec<_> = images.into_iter().map(|image| users.image(image)).collect();
    images.sort_by(|a, b| (a.shown(), &a.id).cmp(&(b.shown(), &b.id)));
    Ok(images)
}

/// The containers by every name of their images.
#[derive(Default)]
struct ImageUsers(BTreeMap<String, BTreeSet<String>>);

impl ImageUsers {
    fn add(&mut self, container: &v1::Container, mounted: Vec<String>) {
        let user = pod_and_name(&container.labels).unwrap_or_else(|| container.id.clone());
        // Runtimes differ in which of them is the id, a digest or a name.
        let own = [
            container.image.as_ref().map(|image| image.image.clone()),
            Some(container.image_ref.clone()),
            Some(container.image_id.clone()),
        ];
        let all = own.into_iter().flatten().chain(mounted);
        for image in all.filter(|name| !name.is_empty()) {
            self.0.entry(image).or_default().insert(user.clone());
        }
    }

    fn image(&self, image: v1::Image) -> ListedImage {
        let names = [&image.id]
            .into_iter()
            .chain(&image.repo_tags)
            .chain(&image.repo_digests);
        let used_by: BTreeSet<_> = names
            .filter_map(|name| self.0.get(name))
            .flatten()
            .collect();
        ListedImage {
            used_by: used_by.into_iter().cloned().collect(),
            id: image.id,
            names: image.repo_tags,
            digests: image.repo_digests,
            size_bytes: image.size,
            pinned: image.pinned,
        }
    }
}

impl ListedImage {
    pub(super) fn is_unused(&self) -> bool {
        self.used_by.is_empty() && !self.pinned
    }

    fn is_named(&self, part: &str) -> bool {
        let id = self.id.strip_prefix("sha256:").unwrap_or(&self.id);
        let part_of_id = part.strip_prefix("sha256:").unwrap_or(part);
        let mut names = self.names.iter().chain(&self.digests);
        names.any(|name| name.contains(part)) || id.starts_with(part_of_id)
    }

    /// The name that a person knows best.
    pub(super) fn shown(&self) -> &str {
        let names = self.names.first().or(self.digests.first());
        names.unwrap_or(&self.id)
    }

    /// Who uses it, or why it stays.
    pub(super) fn users(&self, is_full: bool) -> String {
        match (self.used_by.as_slice(), self.pinned) {
            ([], true) => "pinned".to_owned(),
            ([], false) => "-".to_owned(),
            (all, _) if is_full => all.join(","),
            ([one], _) => one.clone(),
            ([one, more @ ..], _) => format!("{one} and {} more", more.len()),
        }
    }

    /// A row for each tag.
    fn rows(&self, is_full: bool) -> Vec<[String; 6]> {
        let id = self.id.strip_prefix("sha256:").unwrap_or(&self.id);
        let reference = self.digests.first().map(String::as_str);
        let digest = reference.unwrap_or(MISSING_NAME);
        let digest = digest.rsplit('@').next().unwrap_or(digest);
        let (digest, id) = if is_full {
            (digest.to_owned(), self.id.clone())
        } else {
            let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
            let [digest, id] = [hex, id].map(|text| text.chars().take(SHORT_ID_LENGTH).collect());
            (digest, id)
        };
        let size = units::bytes(self.size_bytes);
        let used = self.users(is_full);
        let mut tags: Vec<_> = self.names.iter().map(|name| split(name)).collect();
        if tags.is_empty() {
            let name = reference.and_then(|reference| reference.split('@').next());
            tags.push((name.unwrap_or(MISSING_NAME), MISSING_NAME));
        }
        tags.into_iter()
            .map(|(name, tag)| [name, tag, &digest, &id, &size, &used].map(str::to_owned))
            .collect()
    }
}

/// NAMESPACE/POD/CONTAINER, from the labels of the kubelet.
pub(super) fn pod_and_name(labels: &HashMap<String, String>) -> Option<String> {
    let keys = ["pod.namespace", "pod.name", "container.name"];
    match keys.map(|key| labels.get(&format!("io.kubernetes.{key}"))) {
        [Some(namespace), Some(pod), Some(container)] => {
            Some(format!("{namespace}/{pod}/{container}"))
        }
        _ => None,
    }
}

/// The repository and the tag; the port of a registry is no tag.
fn split(name: &str) -> (&str, &str) {
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, MISSING_NAME),
    }
}

fn table(images: &[ListedImage], has_digests: bool, is_full: bool) -> String {
    let head = ["IMAGE", "TAG", "DIGEST", "IMAGE ID", "SIZE", "USED BY"].map(str::to_owned);
    let rows = images.iter().flat_map(|image| image.rows(is_full));
    let rows = rows.map(|row| row.map(|cell| visible(&cell).to_string()));
    let rows = std::iter::once(head).chain(rows).map(Vec::from);
    let mut rows: Vec<_> = rows.collect();
    if !has_digests {
        rows.iter_mut().for_each(|row| drop(row.remove(2)));
    }
    columns(&rows)
}

/// Aligns the cells of each column.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let lengths = rows.iter().map(|row| row[column].chars().count());
            let width = lengths.max().unwrap_or_default();
            line += &format!("{cell:<width$}   ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn report(pruned: &PrunedImages) -> String {
    let verb = if pruned.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let mut text = String::new();
    for image in &pruned.removed {
        let (name, size) = (visible(image.shown()), units::bytes(image.size_bytes));
        text += &format!("{verb} {name} ({size})\n");
    }
    let sizes = pruned.removed.iter().map(|image| image.size_bytes);
    let total = sizes.fold(0, u64::saturating_add);
    match pruned.removed.len() {
        0 => text += "no unused images\n",
        n => {
            let size = units::bytes(total);
            let noun = if n == 1 { "image" } else { "images" };
            text += &format!("{n} {noun}, {size} at most: layers may be shared\n");
        }
    }
    text
}

pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// An image of this name, for tests.
#[cfg(test)]
pub(super) fn example(name: &str, size_bytes: u64, is_used: bool) -> ListedImage {
    ListedImage {
        id: format!("sha256:{name}"),
        names: vec![name.to_owned()],
        digests: Vec::new(),
        size_bytes,
        pinned: false,
        used_by: is_used.then(|| "c".to_owned()).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests;
