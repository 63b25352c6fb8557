//! SIGHUP: reads the configuration again, applies the reloadable changes, and logs the others.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use sd_notify::NotifyState;

use crate::config::{self, LoadedConfig, reload_diff};
use crate::proxy::instrument::signals::CallSignals;
use crate::settings::EffectiveSettings;
use crate::telemetry::logging::LogHandle;
use crate::telemetry::process::ConfigHash;
use crate::telemetry::{BackgroundJob, JobSpan};
use crate::watchdog;

/// Holds the configuration in effect and the parts that can be reconfigured.
#[derive(Debug)]
pub struct ConfigReloader {
    loaded: LoadedConfig,
    log: LogHandle,
    signals: Arc<CallSignals>,
    hash: ConfigHash,
    in_effect: Arc<ArcSwap<EffectiveSettings>>,
    runtime: RuntimeReload,
}

/// Why the built-in runtime keeps the configuration that it has.
pub type ReloadRefusal = Box<dyn StdError + Send + Sync>;

/// Gives the built-in runtime another configuration. The runtime takes all of it or nothing.
pub type Reconfigure =
    dyn Fn(&config::Runtime) -> BoxFuture<'static, Result<(), ReloadRefusal>> + Send + Sync;

/// How the built-in runtime is reconfigured, if there is one.
pub struct RuntimeReload(pub Option<Box<Reconfigure>>);

impl fmt::Debug for RuntimeReload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeReload").finish_non_exhaustive()
    }
}

impl ConfigReloader {
    /// Starts with the configuration in effect.
    pub fn new(
        loaded: LoadedConfig,
        log: LogHandle,
        signals: Arc<CallSignals>,
        hash: ConfigHash,
        in_effect: Arc<ArcSwap<EffectiveSettings>>,
        runtime: RuntimeReload,
    ) -> Self {
        Self {
            loaded,
            log,
            signals,
            hash,
            in_effect,
            runtime,
        }
    }

    /// Reads the configuration again. An invalid one changes nothing, and neither does one that the built-in runtime cannot use.
    pub async fn reload(&mut self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            watchdog::notify(&[NotifyState::Reloading, now]);
        }
        self.take_over(&BackgroundJob::ConfigReload.begin()).await;
        watchdog::notify(&[NotifyState::Ready]);
    }

    async fn take_over(&mut self, job: &JobSpan) {
        let new = match self.loaded.reload() {
            Ok(new) => new,
            Err(errors) => {
                for error in errors.iter() {
                    tracing::error!(event = "config.rejected", error.message = %error, "configuration not reloaded");
                }
                self.refused(job, &errors);
                return;
            }
        };
        let diff = reload_diff(&self.loaded.config, &new.config);
        let config = self.loaded.config.with_reloadable_of(&new.config);
        if let (Some(reconfigure), Some(runtime)) = (&self.runtime.0, &config.runtime)
            && let Err(error) = reconfigure(runtime).await
        {
            tracing::error!(event = "config.rejected", error.message = %error, "configuration not reloaded");
            self.refused(job, &error);
            return;
        }
        // Also without a difference: the level may have been changed at the admin endpoint since.
        if let Err(error) = self.log.configure(&config.telemetry.log.level) {
            tracing::error!(event = "config.rejected", error.message = %error, "log level not changed");
        }
        self.signals.set_sampling(&config.telemetry.sampling);
        self.hash.set(&config.fingerprint());
        self.in_effect.store(Arc::new(config.settings()));
        self.loaded.config = config;
        job.list("criscope.config.changed", &diff.reloadable);
        job.list("criscope.config.restart_needed", &diff.restart);
        tracing::info!(
            event = "config.reloaded",
            changed = diff.reloadable.join(" "),
            "configuration reloaded"
        );
        if !diff.restart.is_empty() {
            tracing::warn!(
                event = "config.restart_needed",
                keys = diff.restart.join(" "),
                "changes of these settings take effect at the next start only"
            );
        }
    }

    fn refused(&self, job: &JobSpan, error: &dyn fmt::Display) {
        self.hash.refused();
        job.failed("rejected", error);
    }
}
