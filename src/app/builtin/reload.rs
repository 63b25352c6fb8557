//! A reload: gives the running built-in runtime another configuration.

use std::env;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

use super::{BuiltinRuntimeError, handlers, report_hooks};
use crate::config;
use crate::reload::Reconfigure;
use crate::runtime::Runtime;
use crate::runtime::sections::ProgramError;

/// The running runtime.
struct RunningRuntime {
    runtime: Arc<Runtime>,
    /// The programs of handlers that are missing now.
    missing: Mutex<Vec<ProgramError>>,
}

/// Takes over the live settings of a configuration, on the threads of the runtime. `missing` are the programs of handlers that were
/// missing at the start.
pub(super) fn reconfigure(
    threads: Handle,
    runtime: Arc<Runtime>,
    missing: Vec<ProgramError>,
) -> Box<Reconfigure> {
    let missing = Mutex::new(missing);
    let running = Arc::new(RunningRuntime { runtime, missing });
    Box::new(move |config| {
        let (running, config) = (Arc::clone(&running), config.clone());
        let work = threads.spawn(async move { running.take_over(&config).await });
        Box::pin(async move { Ok(work.await??) })
    })
}

impl RunningRuntime {
    async fn take_over(&self, config: &config::Runtime) -> Result<(), BuiltinRuntimeError> {
        let search = env::var_os("PATH").unwrap_or_default();
        let found = handlers::find(config, &search).await?;
        if let Some(lost) = self.first_lost(&found.missing) {
            return Err(lost.into());
        }
        found.report_missing();
        report_hooks(config);
        let missing = found.missing.clone();
        self.runtime
            .reconfigure(found.into_settings(config))
            .await?;
        *self.missing() = missing;
        Ok(())
    }

    /// A program that is missing and was not before. A start does without it, so that the other handlers can serve pods; the running
    /// ones can go on without a reload.
    fn first_lost(&self, missing: &[ProgramError]) -> Option<ProgramError> {
        let before = self.missing();
        missing.iter().find(|one| !before.contains(one)).cloned()
    }

    fn missing(&self) -> MutexGuard<'_, Vec<ProgramError>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
