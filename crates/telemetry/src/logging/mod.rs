//! Log lines to standard error, as JSON or text, written by a separate thread.
//!
//! Callers never wait: the queue is bounded, and a line that finds it full is dropped and counted, so that a blocked
//! pipe behind standard error costs lines, not calls. Each event is rate-limited (see `limit`). The level can be
//! changed at run time.

mod level;
mod limit;
mod line;
mod record;

use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use opentelemetry_sdk::trace::SdkTracer;
use tracing::Subscriber;
use tracing::subscriber::SetGlobalDefaultError;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::{fmt, reload};

use self::level::with_audit;
pub use self::level::{AUDIT_TARGET, LevelError, parse as parse_level};
use self::limit::LogRateLimit;
use self::line::{LineFormat, TextFields};
use super::drops::Drops;
use super::otlp::{self, LogRecordQueue};
use super::settings::{LogFormat, LogSettings};

/// Capacity of the queue, in lines.
const QUEUE_LINES: usize = 4096;

/// How long shutdown waits for the last lines.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason why logging cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is invalid.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// A global subscriber is installed already.
    #[error("log set-up: {0}")]
    Installed(#[from] SetGlobalDefaultError),
    /// The subscriber is gone.
    #[error("log level: {0}")]
    Reload(#[from] reload::Error),
}

/// Reads and changes the log level.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, tracing_subscriber::Registry>,
    levels: Arc<Mutex<LogLevels>>,
}

#[derive(Debug)]
struct LogLevels {
    /// The level in force, as it was given.
    current: String,
    /// The configured level: the minimum for the audit trail.
    configured: Targets,
}

impl LogHandle {
    /// Returns the level in force, as given.
    pub fn level(&self) -> String {
        self.lock().current.clone()
    }

    /// Changes the level until the configuration is reloaded; see [`parse_level`] for the syntax. The audit trail
    /// (mutating calls, sessions, changes of the configuration and of the level) stays at least at the configured
    /// level.
    ///
    /// # Errors
    /// If the level is invalid; the old one stays in force.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let requested = parse_level(level)?;
        let mut levels = self.lock();
        self.filter
            .reload(with_audit(&requested, &levels.configured))?;
        level.clone_into(&mut levels.current);
        Ok(())
    }

    /// Applies the configured level, also to the audit trail.
    ///
    /// # Errors
    /// If the level is invalid; the old one stays in force.
    pub fn configure(&self, level: &str) -> Result<(), LogError> {
        let configured = parse_level(level)?;
        let mut levels = self.lock();
        self.filter.reload(with_audit(&configured, &configured))?;
        level.clone_into(&mut levels.current);
        levels.configured = configured;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, LogLevels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the last lines on drop, which takes two seconds at most.
#[derive(Debug)]
#[must_use = "log lines are lost once this is dropped"]
pub struct LogGuard(Option<WorkerGuard>);

impl Drop for LogGuard {
    fn drop(&mut self) {
        let Some(guard) = self.0.take() else { return };
        // Dropping the guard may print, and block, if its thread is stuck.
        let (done, wait) = mpsc::sync_channel(1);
        let spawned = thread::Builder::new()
            .name("log-end".to_owned())
            .spawn(move || {
                drop(guard);
                let _ = done.send(());
            });
        if spawned.is_ok() {
            let _ = wait.recv_timeout(LAST_LINES_TIMEOUT);
        }
    }
}

/// Destinations of the log besides standard error.
#[derive(Debug, Default)]
pub struct LogExports {
    /// Exports spans of background work (see [`otlp::layer`]).
    pub tracer: Option<SdkTracer>,
    /// Takes log records.
    pub records: Option<LogRecordQueue>,
}

/// Installs the global subscriber, which logs to standard error.
///
/// # Errors
/// If the level is invalid or a subscriber is installed already.
pub fn install(
    config: &LogSettings,
    exports: LogExports,
    drops: &Arc<Drops>,
) -> Result<(LogHandle, LogGuard), LogError> {
    let terminal = io::stderr().is_terminal();
    let (subscriber, handle, guard) = subscriber(config, io::stderr(), terminal, exports, drops)?;
    tracing::subscriber::set_global_default(subscriber)?;
    Ok((handle, guard))
}

fn subscriber<W: io::Write + Send + 'static>(
    config: &LogSettings,
    writer: W,
    terminal: bool,
    exports: LogExports,
    drops: &Arc<Drops>,
) -> Result<(impl Subscriber + Send + Sync, LogHandle, LogGuard), LogError> {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(writer);
    drops.watch_log_queue(writer.error_counter());

    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Json => false,
        LogFormat::Text => true,
    };
    let line = LineFormat {
        limit: LogRateLimit::new(Arc::clone(drops)),
        text: text.then(|| fmt::format().with_ansi(terminal)),
        export: exports.records,
    };
    // The reload swaps the filter and not the layer: a layer that was swapped in has no filter id.
    let configured = parse_level(&config.level)?;
    let filter = with_audit(&configured, &configured);
    let (filter, reload) = reload::Layer::new(filter);
    let lines = fmt::layer()
        .fmt_fields(TextFields)
        .with_ansi(terminal && text)
        .event_format(line)
        .log_internal_errors(false)
        .with_writer(writer)
        .with_filter(filter);
    let subscriber = tracing_subscriber::registry()
        .with(lines)
        .with(exports.tracer.map(otlp::layer));
    let handle = LogHandle {
        filter: reload,
        levels: Arc::new(Mutex::new(LogLevels {
            current: config.level.clone(),
            configured,
        })),
    };
    Ok((subscriber, handle, LogGuard(Some(guard))))
}

/// Log lines that tests read.
#[cfg(any(test, feature = "test-util"))]
pub mod testing {
    use std::sync::LazyLock;
    use std::time::Instant;

    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;

    use super::*;

    /// Isolates tests that have their own subscribers. With a single subscriber in the process, `tracing` caches the
    /// interest of the first thread that reaches a callsite for all threads; with several it asks each time.
    pub fn apart() {
        static SEVERAL: LazyLock<[Dispatch; 2]> =
            LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));
        LazyLock::force(&SEVERAL);
    }

    /// Captured output. Complete once it has no other owner: the writer thread has ended then, for which its guard may
    /// not wait long enough on a busy machine.
    #[derive(Clone, Debug, Default)]
    pub struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        /// The text, once it is complete.
        pub fn text(&self) -> String {
            let end = Instant::now() + Duration::from_secs(120);
            while Arc::strong_count(&self.0) > 1 {
                assert!(Instant::now() < end, "the log was not written in time");
                thread::sleep(Duration::from_millis(1));
            }
            String::from_utf8(self.0.lock().expect("lock").clone()).expect("utf-8")
        }

        /// The lines as JSON objects.
        pub fn objects(&self) -> Vec<serde_json::Value> {
            self.text()
                .lines()
                .map(|l| serde_json::from_str(l).expect(l))
                .collect()
        }
    }

    /// Runs `run` with a separate log and returns the output.
    pub fn logged(level: &str, format: LogFormat, run: impl FnOnce(&LogHandle)) -> Written {
        apart();
        let written = Written::default();
        let config = LogSettings {
            format,
            level: level.to_owned(),
        };
        let (subscriber, handle, guard) = subscriber(
            &config,
            written.clone(),
            false,
            LogExports::default(),
            &Arc::default(),
        )
        .expect("set up");
        tracing::subscriber::with_default(subscriber, || run(&handle));
        drop(guard);
        written
    }
}

#[cfg(test)]
mod tests;
