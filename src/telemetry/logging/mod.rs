//! Log lines to standard error, as JSON or text, written by a separate thread.
//!
//! Callers never wait: the queue is bounded, and a line that finds it full is dropped and counted, so that a blocked
//! pipe behind standard error costs lines, not calls. Each event is rate-limited (see `limit`). The level can be
//! changed at run time.

mod level;
mod limit;
mod line;

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
pub use self::level::{AUDIT, LevelError, parse as parse_level};
use self::limit::RateLimit;
use self::line::{Line, TextFields};
use super::drops::Drops;
use super::otlp;
use super::settings::{Log, LogFormat};

/// Capacity of the queue, in lines.
const QUEUE: usize = 4096;

/// How long shutdown waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Why logging cannot be set up or changed.
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
    levels: Arc<Mutex<Levels>>,
}

#[derive(Debug)]
struct Levels {
    /// The level in force, as given.
    now: String,
    /// The configured level: the minimum for the audit trail.
    configured: Targets,
}

impl LogHandle {
    /// Returns the level in force, as given.
    pub fn level(&self) -> String {
        self.lock().now.clone()
    }

    /// Changes the level until the configuration is reloaded; see [`parse_level`] for the syntax. The audit trail
    /// (mutating calls, sessions, changes of the configuration and of the level) stays at least at the configured
    /// level.
    ///
    /// # Errors
    /// If the level is invalid; the old one stays in force.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        let asked = parse_level(level)?;
        let mut levels = self.lock();
        self.filter.reload(with_audit(&asked, &levels.configured))?;
        level.clone_into(&mut levels.now);
        Ok(())
    }

    /// Applies the configured level, also to the audit trail.
    ///
    /// # Errors
    /// As [`LogHandle::set_level`].
    pub fn configure(&self, level: &str) -> Result<(), LogError> {
        let configured = parse_level(level)?;
        let mut levels = self.lock();
        self.filter.reload(with_audit(&configured, &configured))?;
        level.clone_into(&mut levels.now);
        levels.configured = configured;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Levels> {
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
            let _ = wait.recv_timeout(LAST_LINES);
        }
    }
}

/// Installs the global subscriber, which logs to standard error. With a tracer, spans of background work are exported
/// too (see [`otlp::layer`]).
///
/// # Errors
/// If the level is invalid or a subscriber is installed already.
pub fn install(
    config: &Log,
    tracer: Option<SdkTracer>,
    drops: &Arc<Drops>,
) -> Result<(LogHandle, LogGuard), LogError> {
    let terminal = io::stderr().is_terminal();
    let (subscriber, handle, guard) = subscriber(config, io::stderr(), terminal, tracer, drops)?;
    tracing::subscriber::set_global_default(subscriber)?;
    Ok((handle, guard))
}

fn subscriber<W: io::Write + Send + 'static>(
    config: &Log,
    writer: W,
    terminal: bool,
    tracer: Option<SdkTracer>,
    drops: &Arc<Drops>,
) -> Result<(impl Subscriber + Send + Sync, LogHandle, LogGuard), LogError> {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(QUEUE)
        .lossy(true)
        .thread_name("log")
        .finish(writer);
    drops.watch_log_queue(writer.error_counter());

    let limit = RateLimit::new(Arc::clone(drops));
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Json => false,
        LogFormat::Text => true,
    };
    let line = match text {
        false => Line::Json(limit),
        true => Line::Text(limit, fmt::format().with_ansi(terminal)),
    };
    // Reloads the filter, not the layer: a layer that was swapped in has no filter id.
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
        .with(tracer.map(otlp::layer));
    let handle = LogHandle {
        filter: reload,
        levels: Arc::new(Mutex::new(Levels {
            now: config.level.clone(),
            configured,
        })),
    };
    Ok((subscriber, handle, LogGuard(Some(guard))))
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::LazyLock;
    use std::time::Instant;

    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;

    use super::*;

    /// Isolates tests that have their own subscribers. With a single subscriber in the process, `tracing` caches the
    /// interest of the first thread that reaches a callsite for all threads; with several it asks each time.
    pub(crate) fn apart() {
        static SEVERAL: LazyLock<[Dispatch; 2]> =
            LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));
        LazyLock::force(&SEVERAL);
    }

    /// Captured output. Complete once it has no other owner: the writer thread has ended then, for which its guard may
    /// not wait long enough on a busy machine.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Written(Arc<Mutex<Vec<u8>>>);

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
        pub(crate) fn text(&self) -> String {
            let end = Instant::now() + Duration::from_secs(120);
            while Arc::strong_count(&self.0) > 1 {
                assert!(Instant::now() < end, "the log was not written in time");
                thread::sleep(Duration::from_millis(1));
            }
            String::from_utf8(self.0.lock().expect("lock").clone()).expect("utf-8")
        }

        /// The lines as JSON objects.
        pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
            self.text()
                .lines()
                .map(|l| serde_json::from_str(l).expect(l))
                .collect()
        }
    }

    /// Runs `run` with a separate log and returns the output.
    pub(crate) fn logged(level: &str, format: LogFormat, run: impl FnOnce(&LogHandle)) -> Written {
        apart();
        let written = Written::default();
        let config = Log {
            format,
            level: level.to_owned(),
        };
        let (subscriber, handle, guard) =
            subscriber(&config, written.clone(), false, None, &Arc::default()).expect("set up");
        tracing::subscriber::with_default(subscriber, || run(&handle));
        drop(guard);
        written
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::limit::{BURST, PER_SECOND};
    use super::testing::logged;
    use super::*;
    use crate::telemetry::drops::DropReason;
    use crate::testing::PATIENCE;

    #[test]
    fn a_json_line_is_flat() {
        let written = logged("info", LogFormat::Json, |_| {
            let error = io::Error::other("broken \"pipe\"\n");
            tracing::info!(
                target: "criscope::test",
                event = "x.y", pod.name = "web\u{1b}[31m", n = 3u64, f = 1.5, yes = true, missing = None::<&str>,
                error = &error as &dyn std::error::Error, shown = %format_args!("a{}", 1),
                "hello {}", "world"
            );
        });
        let mut objects = written.objects();
        assert_eq!(objects.len(), 1);
        let ts = objects[0]
            .as_object_mut()
            .expect("object")
            .remove("ts")
            .expect("ts");
        let ts = ts.as_str().expect("text");
        assert!(
            ts.starts_with("20") && ts.ends_with('Z') && ts.as_bytes()[10] == b'T',
            "{ts}"
        );
        assert_eq!(
            objects[0],
            json!({
                "level": "info", "target": "criscope::test", "event": "x.y", "msg": "hello world",
                "pod.name": "web\u{1b}[31m", "n": 3, "f": 1.5, "yes": true,
                "error": "broken \"pipe\"\n", "shown": "a1"
            })
        );
    }

    #[test]
    fn a_line_is_bounded_and_has_no_line_breaks() {
        let long = "x".repeat(1 << 20);
        for format in [LogFormat::Json, LogFormat::Text] {
            let written = logged("info", format, |_| {
                let error = io::Error::other(long.clone());
                tracing::warn!(
                    target: "criscope::test",
                    name = long, %error, shown = ?long, cause = &error as &dyn std::error::Error,
                    forged = "a\n2026-01-01T00:00:00Z ERROR criscope::rpc: forged \u{1b}[2J\u{9b}2J",
                    plain = %"b\nc", "{long}"
                );
            });
            let text = written.text();
            assert_eq!(text.lines().count(), 1, "{format:?}");
            assert!(text.len() < 64 << 10, "{format:?}: {} bytes", text.len());
            assert!(text.contains("xx…"), "{format:?}: the cut is marked");
            let line = text.trim_end_matches('\n');
            // JSON may contain raw C1 controls, and its readers unescape all other control characters anyway.
            let is_raw =
                |c: char| c.is_ascii_control() || format == LogFormat::Text && c.is_control();
            assert!(!line.contains(is_raw), "{format:?}");
        }
    }

    #[test]
    fn text_lines_are_human_readable() {
        let written = logged("info", LogFormat::Text, |_| {
            tracing::warn!(target: "criscope::test", n = 3, "hello");
            tracing::debug!(target: "criscope::test", "not heard");
        });
        let text = written.text();
        assert!(
            text.ends_with(" WARN criscope::test: hello n=3\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn the_level_can_change_at_run_time() {
        let written = logged("info", LogFormat::Json, |handle| {
            let say = |text: &str| tracing::debug!(target: "criscope::test", "{text}");
            assert_eq!(handle.level(), "info");
            say("too early");
            handle
                .set_level("warn,criscope::test=debug")
                .expect("a level");
            assert_eq!(handle.level(), "warn,criscope::test=debug");
            say("heard");
            assert!(matches!(handle.set_level("loud"), Err(LogError::Level(_))));
            assert_eq!(handle.level(), "warn,criscope::test=debug");
            say("still heard");
            handle.set_level("off").expect("a level");
            say("too late");
        });
        let said: Vec<_> = written.objects().iter().map(|o| o["msg"].clone()).collect();
        assert_eq!(said, ["heard", "still heard"]);
    }

    #[test]
    fn repeated_events_are_rate_limited_and_counted() {
        testing::apart();
        let before = Instant::now();
        let drops = Arc::new(Drops::default());
        let written = testing::Written::default();
        let config = Log {
            format: LogFormat::Json,
            level: "info".to_owned(),
        };
        let (subscriber, _handle, guard) =
            subscriber(&config, written.clone(), false, None, &drops).expect("set up");
        let storm =
            |n: usize| (0..n).for_each(|i| tracing::warn!(target: "criscope::test", i, "storm"));
        tracing::subscriber::with_default(subscriber, || {
            storm(2000);
            tracing::warn!(target: "criscope::test", "another event");
            // Wait until the bucket has a token again.
            thread::sleep(Duration::from_millis(30));
            storm(1);
        });
        let took = before.elapsed();
        drop(guard);
        let objects = written.objects();
        let storms = objects.iter().filter(|o| o["msg"] == "storm").count();
        // The burst, and the tokens added meanwhile.
        let most = BURST + (took.as_secs() + 1) * PER_SECOND;
        assert!((BURST..=most).contains(&(storms as u64)), "{storms}");
        assert_eq!(
            objects
                .iter()
                .filter(|o| o["msg"] == "another event")
                .count(),
            1
        );
        let told: u64 = objects
            .iter()
            .filter_map(|o| o["suppressed"].as_u64())
            .sum();
        assert_eq!(
            told,
            drops.count(DropReason::LogRateLimited),
            "every suppressed line is reported"
        );
        assert_eq!(told as usize + storms, 2001);
    }

    /// With standard error blocked, lines are dropped and counted, and neither callers nor shutdown wait.
    #[test]
    fn a_stuck_pipe_delays_no_caller() {
        testing::apart();
        let (reader, writer) = io::pipe().expect("pipe");
        let drops = Arc::new(Drops::default());
        let config = Log {
            format: LogFormat::Json,
            level: "info".to_owned(),
        };
        let (subscriber, _handle, guard) =
            subscriber(&config, writer, false, None, &drops).expect("set up");
        let before = Instant::now();
        let text = "x".repeat(4000);
        tracing::subscriber::with_default(subscriber, || {
            // Each callsite has its own limit, so that the queue overflows first.
            macro_rules! lines {
                ($($n:literal)*) => {
                    $(for _ in 0..350 { tracing::info!(target: "criscope::test", n = $n, "{text}"); })*
                };
            }
            lines!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        });
        assert!(before.elapsed() < PATIENCE, "{:?}", before.elapsed());
        assert!(drops.count(DropReason::LogQueueFull) > 0);
        drop(guard);
        assert!(before.elapsed() < 2 * PATIENCE, "{:?}", before.elapsed());
        drop(reader);
    }
}
