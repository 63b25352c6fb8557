//! When a dump is written. Whoever asks for one waits for nothing: a thread of its own takes the copy and writes it, so
//! that a disk that hangs holds nobody up, and so that a panic under a lock of the recorder cannot meet that lock again.

use std::fmt;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::Recorder;
use super::dump::{About, Dump, Filter};
use super::files::{self, ENDINGS, FileError};
use super::when::stamp;
use crate::call::{Call, CallRecord};
use crate::lifecycle::activity;
use crate::lifecycle::process_scanner::Observations;
use crate::lifecycle::view;
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;
use crate::version;

/// Dumps that may be under way at the same time: one that is written, and one that waits for it.
const AT_ONCE: usize = 2;

/// Why a dump is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// SIGUSR2.
    Signal,
    /// A thread panicked.
    Panic,
    /// A call has used up its deadline.
    Stuck,
}

impl Reason {
    /// Every value.
    pub const ALL: [Reason; 3] = [Reason::Signal, Reason::Panic, Reason::Stuck];

    /// A word for names of files and for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signal => "sigusr2",
            Self::Panic => "panic",
            Self::Stuck => "stuck",
        }
    }

    /// How long another one for the same reason has to wait. What panics or hangs once often does so again, and the first
    /// dump must not be pushed out by ten that say the same.
    const fn pause(self) -> Duration {
        match self {
            Self::Signal => Duration::from_secs(1),
            Self::Panic => Duration::from_secs(60),
            Self::Stuck => Duration::from_secs(600),
        }
    }
}

/// Gives the calls in flight, the oldest first.
pub type Flying = Box<dyn Fn() -> Vec<Arc<Call>> + Send + Sync>;

/// What dumps are made of and where they go.
pub struct Parts {
    /// Calls that have ended.
    pub recorder: Arc<Recorder>,
    /// Calls in flight.
    pub in_flight: Flying,
    /// What the runtime does for them.
    pub observations: Arc<Observations>,
    /// Gives the fingerprint of the configuration in force.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// Where losses are counted.
    pub drops: Arc<Drops>,
    /// The directory, `story.state_dir`.
    pub state_dir: PathBuf,
    /// `recorder.dumps`
    pub keep: usize,
    /// `recorder.max_dump_bytes`
    pub max_bytes: usize,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// See the module documentation.
pub struct Dumps {
    parts: Parts,
    dir: PathBuf,
    began: Instant,
    /// For each reason when the last one was asked for, in milliseconds from `began`, plus one; 0 if never.
    last: [AtomicU64; Reason::ALL.len()],
    under_way: Mutex<usize>,
    none_left: Condvar,
    /// Held by the one who writes.
    writing: Mutex<()>,
}

impl fmt::Debug for Dumps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dumps").field("dir", &self.dir).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One dump under way; its end is told also if it panics.
struct UnderWay(Arc<Dumps>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        *lock(&self.0.under_way) -= 1;
        self.0.none_left.notify_all();
    }
}

impl Dumps {
    /// Dumps of these parts. Nothing is touched yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            dir: parts.state_dir.join("dumps"),
            parts,
            began: Instant::now(),
            last: Default::default(),
            under_way: Mutex::default(),
            none_left: Condvar::new(),
            writing: Mutex::default(),
        }
    }

    /// Where they are.
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

    /// Asks for a dump, and returns at once. Says whether there will be one: not if dumps are off, or if there was one for
    /// the same reason a short while ago.
    pub fn ask(self: &Arc<Self>, reason: Reason, detail: Option<String>) -> bool {
        if self.parts.keep == 0 || !self.is_due(reason) {
            return false;
        }
        {
            let mut under_way = lock(&self.under_way);
            if *under_way >= AT_ONCE {
                self.parts.drops.add(DropReason::DumpQueueFull, 1);
                return false;
            }
            *under_way += 1;
        }
        let mine = UnderWay(Arc::clone(self));
        let work = move || mine.0.write(reason, detail.as_deref());
        let started = thread::Builder::new().name("dump".to_owned()).spawn(work);
        if started.is_err() {
            self.parts.drops.add(DropReason::DumpFailed, 1);
        }
        started.is_ok()
    }

    fn is_due(&self, reason: Reason) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.began.elapsed()) + 1;
        let last = &self.last[reason as usize];
        let change = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            (last == 0 || now - last.min(now) >= millis(reason.pause())).then_some(now)
        });
        change.is_ok()
    }

    /// Waits until no dump is under way, or for so long.
    pub fn wait(&self, most: Duration) {
        let under_way = lock(&self.under_way);
        let waited = self
            .none_left
            .wait_timeout_while(under_way, most, |n| *n > 0);
        // Whether they are done or not: there is nothing more to do.
        drop(waited);
    }

    /// A copy of everything, as it would be written. Takes a while: not for a thread that has more to do.
    pub fn collect(&self, reason: &str, detail: Option<String>, filter: &Filter) -> Dump {
        let rows = (self.parts.in_flight)().into_iter().map(|call| {
            let mut row = view::Call::of(&CallRecord::in_flight(&call));
            row.doing = activity::of(&self.parts.observations, &call);
            row
        });
        let about = About {
            version: version::VERSION.to_owned(),
            commit: version::commit().unwrap_or("unknown").to_owned(),
            reason: reason.to_owned(),
            detail,
            config: (self.parts.config)(),
            ..About::default()
        };
        let in_flight = rows.collect();
        Dump::new(about, in_flight, self.parts.recorder.memory(), filter)
    }

    fn write(&self, reason: Reason, detail: Option<&str>) {
        // What is seen is what was when it was asked for, not when the disk was free.
        let dump = self.collect(reason.name(), detail.map(str::to_owned), &Filter::default());
        let _one_at_a_time = lock(&self.writing);
        match self.write_files(&dump, reason) {
            Ok(path) => tracing::info!(
                event = "dump.written",
                reason = reason.name(),
                detail,
                file.path = %path.display(),
                "the flight recorder was written down"
            ),
            Err(error) => {
                self.parts.drops.add(DropReason::DumpFailed, 1);
                tracing::error!(
                    event = "dump.failed",
                    reason = reason.name(),
                    detail,
                    error.message = %error,
                    "the flight recorder cannot be written down"
                );
            }
        }
    }

    fn write_files(&self, dump: &Dump, reason: Reason) -> Result<PathBuf, FileError> {
        let most = self.parts.max_bytes;
        let name = format!("{}-{}", stamp(SystemTime::now()), reason.name());
        let [json, trace] = ENDINGS.map(|ending| self.dir.join(format!("{name}{ending}")));
        files::prepare(&self.dir)?;
        // Also when it fails: there may be less room now than there was.
        let written = files::write(&json, |out| dump.write_json(out, most).map(drop))
            .and_then(|()| files::write(&trace, |out| dump.write_trace(out, most).map(drop)));
        files::prune(&self.dir, self.parts.keep)?;
        written.map(|()| json)
    }
}

/// Has a dump written when a thread panics, after whatever was to happen on a panic until now. The hook itself takes no
/// lock of the recorder, and one panic a minute is enough.
pub fn on_panic(dumps: Arc<Dumps>) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        before(info);
        // Where it was, and not what it said: that may quote anything.
        dumps.ask(Reason::Panic, info.location().map(ToString::to_string));
    }));
}

#[cfg(test)]
mod tests;
