//! Exports images into an archive: through the daemon if it runs, else directly from its image store.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::ServeError;
use super::load::ImageStoreAccess;
use crate::config::Config;
use crate::runtime::export;
use criscope_image::{ExportOptions, ExportWatch, ImageStore};

pub use crate::runtime::export::{ExportError, Exported, Progress, Request};

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Exports images.
#[derive(Debug)]
pub struct ImageExporter(ImageStoreAccess);

/// Why images cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ImageExporterError {
    /// There is no image store.
    #[error(
        "no backend of this configuration is the built-in runtime: images belong to the upstream, export them there"
    )]
    NotBuiltin,
    /// The running daemon's version cannot export images.
    #[error("the running criscope has an earlier version, which cannot export: restart it")]
    TooOld,
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] ServeError),
    /// There is no archive.
    #[error(transparent)]
    Archive(#[from] ExportError),
}

impl ImageExporter {
    /// Finds out whether the daemon runs.
    ///
    /// # Errors
    /// There is no built-in runtime, or its store is locked without a daemon that serves it.
    pub fn new(config: &Config) -> Result<Self, ImageExporterError> {
        let config = config
            .runtime
            .as_deref()
            .ok_or(ImageExporterError::NotBuiltin)?;
        let access = ImageStoreAccess::find(config)?;
        match &access {
            ImageStoreAccess::Daemon(state) if !export::is_served(state) => {
                Err(ImageExporterError::TooOld)
            }
            _ => Ok(Self(access)),
        }
    }

    /// Writes an archive.
    ///
    /// # Errors
    /// An image that is not there, or came encrypted; an output that cannot be written.
    pub fn export(
        &self,
        request: &Request,
        to: &mut (dyn Write + Send),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Exported>, ImageExporterError> {
        match &self.0 {
            ImageStoreAccess::Daemon(state) => Ok(export::export(state, request, to, progress)?),
            ImageStoreAccess::Own(store) => Ok(give_out(&store.1, request, to, progress)?),
        }
    }
}

fn give_out(
    images: &ImageStore,
    request: &Request,
    to: &mut (dyn Write + Send),
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Exported>, ExportError> {
    let (watch, options) = (ExportWatch::default(), ExportOptions::from(request.clone()));
    let exported = thread::scope(|scope| {
        let (done, ended) = sync_channel(1);
        let (watch, options) = (&watch, &options);
        scope.spawn(move || done.send(images.export(options, to, watch)));
        loop {
            match ended.recv_timeout(PROGRESS_INTERVAL) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) => progress(watch.progress().into()),
                // The exporting thread has panicked; the scope passes the panic on.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    });
    let exported = exported.unwrap_or_else(|| Ok(Vec::new()));
    let exported = exported.map_err(ExportError::failed)?;
    Ok(exported.into_iter().map(Exported::from).collect())
}
