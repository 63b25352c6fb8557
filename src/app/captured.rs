//! The pages of a capture, in the process of a command.

use std::io;
use std::net::{SocketAddr, TcpListener};

use axum::Router;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::lifecycle::capture::CaptureBundle;

/// Name, path and fetched path of each page in a capture.
pub const PAGES: &[(&str, &str, &str)] = &admin::PAGES;

/// The pages of a capture.
pub fn pages(bundle: CaptureBundle) -> Router {
    admin::captured_app(bundle)
}

/// Serves the pages of a capture until SIGINT or SIGTERM. `ready` gets the address.
///
/// # Errors
/// If the address cannot be bound.
pub fn serve(
    bundle: CaptureBundle,
    address: SocketAddr,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let app = pages(bundle);
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        ready(listener.local_addr()?)?;
        tokio::select! {
            served = admin::serve_captured(listener, app, CancellationToken::new()) => served,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}
