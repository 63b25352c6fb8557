//! `criscope export`

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use super::progress::ProgressLine;
use super::replaced::ReplacedFile;
use super::{CommandFailure, ConfigSourceArgs, DEFAULT_CONFIG_FILE};
use crate::app::export::{
    Exported, ImageExporter, ImageExporterError, Progress as Export, Request,
};

/// Write images of the built-in runtime into an archive
///
/// The archive is an OCI layout in a tar file, uncompressed, for criscope load-image, ctr images import, skopeo (oci-archive:FILE:NAME),
/// podman load and docker load. Names, configuration and annotations stay. Layers are packed again, because the store keeps
/// them unpacked. Digests and the image id therefore differ; an annotation keeps the original digest
/// (io.criscope.image.original.digest). So pods that name an image by digest do not find an exported one, and its signatures
/// do not match. Exporting an image twice gives identical archives. Artifacts keep their digests if the store has all of
/// their parts.
///
/// A running criscope exports the images; otherwise this command does. It takes the path of the store from the configuration,
/// like criscope load-image. The archive appears under its name when it is complete. Prints the names and the id in the archive
/// of each image, on standard error if the archive goes to standard output.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigSourceArgs,
    /// Images: names, ids or beginnings of ids. An image given by a tag keeps only this name, any other all its tags
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    /// The archive; an existing file is replaced. - or no archive means standard output, unless it is a terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write images that came encrypted from their registry: the archive contains them in plain text
    #[arg(long)]
    allow_decrypted: bool,
}

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Standard output is a terminal, which cannot show an archive.
    #[error("an archive is not for a terminal")]
    Terminal,
    /// The file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the archive.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The images cannot be exported.
    #[error(transparent)]
    Exporter(#[from] ImageExporterError),
}

impl Error {
    /// Returns whether the arguments are wrong.
    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Self::Terminal)
    }

    /// A recommendation for the user.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Terminal => Some("name a file with -o"),
            Self::Exporter(ImageExporterError::Archive(error)) if error.is_decrypted() => {
                Some("--allow-decrypted exports it in plain text")
            }
            Self::Exporter(_) | Self::File { .. } => None,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let file = args
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    if file.is_none() && io::stdout().is_terminal() {
        return Err(Error::Terminal.into());
    }
    let loaded = args
        .config
        .or_usual(Path::new(DEFAULT_CONFIG_FILE))
        .load()?;
    let exporter = ImageExporter::new(&loaded.config).map_err(Error::from)?;
    let request = Request {
        images: args.images.clone(),
        allow_decrypted: args.allow_decrypted,
    };
    match file {
        Some(path) => {
            let mut output = ReplacedFile::create(path).map_err(file_error(path))?;
            let images = write(&exporter, &request, &mut output)?;
            output.finish().map_err(file_error(path))?;
            io::stdout().lock().write_all(lines(&images).as_bytes())?;
        }
        None => {
            let mut output = io::stdout();
            let images = write(&exporter, &request, &mut output)?;
            output.flush()?;
            io::stderr().lock().write_all(lines(&images).as_bytes())?;
        }
    }
    Ok(())
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::File { path, source }
}

fn write(
    exporter: &ImageExporter,
    request: &Request,
    to: &mut (dyn Write + Send),
) -> Result<Vec<Exported>, Error> {
    let shown = match request.images.as_slice() {
        [one] => one.clone(),
        all => format!("{} images", all.len()),
    };
    let mut progress = ProgressLine::new(&shown);
    let exported = exporter.export(request, to, &mut |now: Export| {
        let verb = if now.is_writing { "writing" } else { "reading" };
        progress.show(verb, now.done, now.total);
    });
    progress.clear();
    Ok(exported?)
}

/// A line for each image.
fn lines(images: &[Exported]) -> String {
    let mut text = String::new();
    for image in images {
        for name in &image.names {
            text.extend([name, " "]);
        }
        text.extend([&*image.id, "\n"]);
    }
    text
}
