//! `criscope load-image`

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::progress::ProgressLine;
use super::{CommandFailure, ConfigSourceArgs, DEFAULT_CONFIG_FILE, output};
use crate::app::load::{ImageLoader, ImageLoaderError};
use crate::cri::visible::visible;

const READ_BUFFER_BYTES: usize = 256 << 10;

/// Load images from archives into the store of the built-in runtime
///
/// Reads OCI archives (`skopeo copy ... oci-archive:FILE`) and docker archives (`docker save`), also compressed with
/// gzip or zstd. A running criscope loads them; otherwise this command does. It takes the path of the store from the
/// daemon's configuration: without --config, from /etc/criscope/criscope.toml if it exists. Prints the names
/// and the id of each image. Exits with 1 if an archive cannot be loaded; the others are loaded nevertheless.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigSourceArgs,
    /// Image archives; - for standard input, which is copied to $TMPDIR first
    #[arg(required = true, value_name = "ARCHIVE")]
    archives: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    // Without the configuration, images would silently go to another store than the running criscope's.
    let loaded = args
        .config
        .or_usual(Path::new(DEFAULT_CONFIG_FILE))
        .load()?;
    let mut loader = None;
    let mut failed = false;
    for archive in &args.archives {
        let mut progress = ProgressLine::new(&archive.display().to_string());
        // The first archive that can be opened makes the store, not a path that is wrong.
        let result = match open(archive, &mut progress) {
            Ok(file) => {
                let loader = match &mut loader {
                    Some(loader) => loader,
                    none => none.insert(ImageLoader::new(&loaded.config)?),
                };
                load(loader, file, archive, &mut progress)
            }
            Err(error) => Err(error.into()),
        };
        progress.clear();
        match result {
            Ok(lines) => io::stdout().lock().write_all(lines.as_bytes())?,
            Err(error) => {
                let (name, mut text) = (archive.display().to_string(), error.to_string());
                // Many errors include it already.
                if !text.starts_with(&name) {
                    text = format!("{name}: {text}");
                }
                output::error(visible(&text));
                failed = true;
            }
        }
    }
    if failed {
        Err(CommandFailure::Found)
    } else {
        Ok(())
    }
}

/// Loads one archive; returns a line for each image.
fn load(
    loader: &ImageLoader,
    file: File,
    archive: &Path,
    progress: &mut ProgressLine,
) -> Result<String, LoadFailure> {
    let (name, mut report) = (archive.display().to_string(), |done, all| {
        progress.show("loading", done, all);
    });
    let images = loader.load(file, &name, &mut report)?;
    let lines = images
        .into_iter()
        .map(|image| match image.names.as_slice() {
            [] => format!("{}\n", image.id),
            names => format!("{} {}\n", names.join(" "), image.id),
        });
    Ok(lines.collect())
}

#[derive(Debug, thiserror::Error)]
enum LoadFailure {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Loader(#[from] ImageLoaderError),
}

/// Opens an archive for random access: other than regular files are copied to an unnamed temporary file.
fn open(archive: &Path, progress: &mut ProgressLine) -> io::Result<File> {
    let is_stdin = archive == Path::new("-");
    let mut source: Box<dyn Read> = if is_stdin {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(archive)?;
        let found = file.metadata()?;
        if found.is_file() {
            return Ok(file);
        }
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Box::new(file)
    };
    let mut copy = nameless()?;
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let mut done = 0;
    loop {
        let length = match source.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            length => length?,
        };
        copy.write_all(&buffer[..length])?;
        done += length as u64;
        progress.show("reading", done, 0);
    }
    copy.rewind()?;
    Ok(copy)
}

fn nameless() -> io::Result<File> {
    let path = env::temp_dir().join(format!(".criscope-load-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
