//! The receiver of criscope's spans: a collector on a separate thread that counts them.

use std::future::pending;
use std::sync::Arc;

use criscope_testkit::bench::server_thread::ServerThread;
use criscope_testkit::collector::{Collector, Manner};

use crate::error::Result;

/// A collector that runs until dropped.
pub(crate) struct Sink {
    collector: Arc<Collector>,
    _server: ServerThread,
}

impl Sink {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start() -> Result<Self> {
        let collector = Arc::new(Collector::absent(Manner::Counts));
        let server = ServerThread::start("otlp", {
            let collector = Arc::clone(&collector);
            move || async move {
                collector.start().await;
                pending().await
            }
        })?;
        Ok(Self {
            collector,
            _server: server,
        })
    }

    /// The value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) fn endpoint(&self) -> String {
        self.collector.endpoint()
    }

    /// The number of spans so far.
    pub(crate) fn spans(&self) -> usize {
        self.collector.count()
    }
}
