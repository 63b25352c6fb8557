//! A server on a thread of its own, so that it does not slow down the client that measures.

use std::future::Future;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use crate::error::{IoContext, Result};

/// A thread with its own runtime. Dropping it stops the server.
pub struct ServerThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Runs the future that `server` returns until it completes or this value is dropped.
    ///
    /// # Errors If the runtime or the thread cannot be created.
    pub fn start<F: Future<Output = ()>>(
        name: &str,
        server: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .during(|| format!("making the runtime of {name}"))?;
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = server() => {}
                        _ = stopped => {}
                    }
                });
            })
            .during(|| format!("starting the thread of {name}"))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
