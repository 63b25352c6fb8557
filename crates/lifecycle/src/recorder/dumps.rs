//! Decides when a dump is written. Requests return at once: a separate thread copies and writes, so that a hanging disk
//! blocks no other thread, and a panic under a lock of the recorder does not take that lock again.

use std::fmt;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::FlightRecorder;
use super::dump::{DumpFilter, DumpHeader, RecorderDump};
use super::files::{self, DUMP_FILE_ENDINGS, DumpFileError};
use super::when::stamp;
use crate::activity;
use crate::process_scanner::Observations;
use crate::view;
use criscope_cri::call::{Call, CallRecord};
use criscope_cri::units::times::whole_millis;
use criscope_telemetry::drops::DropReason;
use criscope_telemetry::version;
use criscope_telemetry::{BackgroundJob, Drops};

/// Upper bound of concurrent dumps: one is being written and one waits.
const MAX_CONCURRENT_DUMPS: usize = 2;

criscope_cri::named! {
    /// The reason of a dump.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum DumpReason {
        /// SIGUSR2.
        Signal = "sigusr2",
        /// A thread panicked.
        Panic = "panic",
        /// A call has used up its deadline.
        Stuck = "stuck",
    }
}

impl DumpReason {
    /// Minimum interval between two dumps for the same reason. A panic or a hang tends to repeat, and its repetitions must
    /// not push the first dump out.
    const fn pause(self) -> Duration {
        match self {
            Self::Signal => Duration::from_secs(1),
            Self::Panic => Duration::from_secs(60),
            Self::Stuck => Duration::from_secs(600),
        }
    }
}

/// Returns the calls in flight, the oldest first.
pub type InFlightCalls = Box<dyn Fn() -> Vec<Arc<Call>> + Send + Sync>;

/// Sources and destination of dumps.
pub struct DumpSources {
    /// Calls that have ended.
    pub recorder: Arc<FlightRecorder>,
    /// Calls in flight.
    pub in_flight: InFlightCalls,
    /// The runtime's activity for these calls.
    pub observations: Arc<Observations>,
    /// Returns the fingerprint of the configuration in force.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// Counter of dropped dumps.
    pub drops: Arc<Drops>,
    /// The directory, `story.state_dir`.
    pub state_dir: PathBuf,
    /// `recorder.dumps`
    pub keep: usize,
    /// `recorder.max_dump_bytes`
    pub max_bytes: usize,
}

impl fmt::Debug for DumpSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// Writes dumps on request, and limits their number.
pub struct DumpWriter {
    parts: DumpSources,
    dir: PathBuf,
    began: Instant,
    /// For each reason the milliseconds from `began` to the last request, plus one; 0 if there was none.
    last_ms: [AtomicU64; DumpReason::ALL.len()],
    in_progress: Mutex<usize>,
    idle: Condvar,
    /// Held by the thread that writes.
    writing: Mutex<()>,
}

impl fmt::Debug for DumpWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dumps").field("dir", &self.dir).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A dump in progress; dropping it ends the dump, also when the thread panics.
struct RunningDump(Arc<DumpWriter>);

impl Drop for RunningDump {
    fn drop(&mut self) {
        *lock(&self.0.in_progress) -= 1;
        self.0.idle.notify_all();
    }
}

impl DumpWriter {
    /// Creates no file and no directory yet.
    pub fn new(parts: DumpSources) -> Self {
        Self {
            dir: parts.state_dir.join("dumps"),
            parts,
            began: Instant::now(),
            last_ms: Default::default(),
            in_progress: Mutex::default(),
            idle: Condvar::new(),
            writing: Mutex::default(),
        }
    }

    /// The directory of the dumps.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Largest dump, in bytes.
    pub fn max_bytes(&self) -> usize {
        self.parts.max_bytes
    }

    /// Names and sizes of the files on disk, the newest first.
    pub fn stored(&self) -> Vec<(String, u64)> {
        files::stored(&self.dir)
    }

    /// Requests a dump and returns at once. Returns whether there will be one: not if dumps are off, or if the last one for
    /// the same reason is too recent.
    pub fn ask(self: &Arc<Self>, reason: DumpReason, detail: Option<String>) -> bool {
        if self.parts.keep == 0 || !self.is_due(reason) {
            return false;
        }
        {
            let mut in_progress = lock(&self.in_progress);
            if *in_progress >= MAX_CONCURRENT_DUMPS {
                self.parts.drops.add(DropReason::DumpQueueFull, 1);
                return false;
            }
            *in_progress += 1;
        }
        let mine = RunningDump(Arc::clone(self));
        let started = thread::Builder::new()
            .name("dump".to_owned())
            .spawn(move || mine.0.write(reason, detail.as_deref()));
        if started.is_err() {
            self.parts.drops.add(DropReason::DumpFailed, 1);
        }
        started.is_ok()
    }

    fn is_due(&self, reason: DumpReason) -> bool {
        let now = whole_millis(self.began.elapsed()) + 1;
        let last = &self.last_ms[reason as usize];
        let change = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            (last == 0 || now - last.min(now) >= whole_millis(reason.pause())).then_some(now)
        });
        change.is_ok()
    }

    /// Waits until no dump is in progress, for `limit` at most.
    pub fn wait(&self, limit: Duration) {
        let in_progress = lock(&self.in_progress);
        let waited = self.idle.wait_timeout_while(in_progress, limit, |n| *n > 0);
        // After a timeout there is nothing left to do either.
        drop(waited);
    }

    /// A copy of the recorder and the calls in flight, as it would be written. Too slow for a thread with other work.
    pub fn collect(
        &self,
        reason: &str,
        detail: Option<String>,
        filter: &DumpFilter,
    ) -> RecorderDump {
        let rows = (self.parts.in_flight)().into_iter().map(|call| {
            let mut row = view::CallView::from_record(&CallRecord::in_flight(&call));
            row.doing = activity::describe(&self.parts.observations, &call);
            row
        });
        let about = DumpHeader {
            version: version::VERSION.to_owned(),
            commit: version::commit().unwrap_or("unknown").to_owned(),
            reason: reason.to_owned(),
            detail,
            config: (self.parts.config)(),
            ..DumpHeader::default()
        };
        let in_flight = rows.collect();
        RecorderDump::new(about, in_flight, self.parts.recorder.memory(), filter)
    }

    fn write(&self, reason: DumpReason, detail: Option<&str>) {
        let job = BackgroundJob::DumpWrite.begin();
        job.set("criscope.reason", reason.name());
        // The copy is made at the time of the request, not when the disk is free.
        let dump = self.collect(
            reason.name(),
            detail.map(str::to_owned),
            &DumpFilter::default(),
        );
        let _one_at_a_time = lock(&self.writing);
        match self.write_files(&dump, reason) {
            Ok(path) => tracing::info!(
                target: "criscope::lifecycle",
                event = "dump.written",
                reason = reason.name(),
                detail,
                file.path = %path.display(),
                "dump of the flight recorder written"
            ),
            Err(error) => {
                self.parts.drops.add(DropReason::DumpFailed, 1);
                job.failed("dump", &error);
                tracing::error!(
                    target: "criscope::lifecycle",
                    event = "dump.failed",
                    reason = reason.name(),
                    detail,
                    error.message = %error,
                    "dump of the flight recorder failed"
                );
            }
        }
    }

    fn write_files(
        &self,
        dump: &RecorderDump,
        reason: DumpReason,
    ) -> Result<PathBuf, DumpFileError> {
        let limit = self.parts.max_bytes;
        let name = format!("{}-{}", stamp(SystemTime::now()), reason.name());
        let [json, trace] =
            DUMP_FILE_ENDINGS.map(|ending| self.dir.join(format!("{name}{ending}")));
        files::prepare(&self.dir)?;
        // Old dumps are removed also after an error: the disk may have less space now.
        let written = files::write(&json, |out| dump.write_json(out, limit).map(drop))
            .and_then(|()| files::write(&trace, |out| dump.write_trace(out, limit).map(drop)));
        files::prune(&self.dir, self.parts.keep)?;
        written.map(|()| json)
    }
}

/// Adds a dump to the panic hook, after the hook that was set before. The hook takes no lock of the recorder, and there is
/// at most one dump per minute.
pub fn on_panic(dumps: Arc<DumpWriter>) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        // Only the location is written: the message may quote secrets.
        dumps.ask(DumpReason::Panic, info.location().map(ToString::to_string));
    }));
}

#[cfg(test)]
mod tests;
