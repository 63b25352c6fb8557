//! Detects a stuck request path, and sends keep-alives to systemd's watchdog.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Interval of heartbeats.
const BEAT: Duration = Duration::from_secs(1);

/// Time without a heartbeat after which the request path counts as stuck. Nothing on its thread may take this long.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How many times the heartbeat is checked within the watchdog's limit: one late heartbeat must not end the daemon.
const CHANCES: u32 = 6;

/// Stack of the thread that sends keep-alives, in bytes.
const STACK: usize = 256 << 10;

/// The heartbeat of the request path's thread.
#[derive(Debug)]
pub struct Heartbeat {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
    /// Set once another process is the main process of the service.
    retired: AtomicBool,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            retired: AtomicBool::new(false),
        }
    }
}

impl Heartbeat {
    fn beat(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Time since the last beat.
    pub fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }

    /// Returns whether the request path runs.
    pub fn is_alive(&self) -> bool {
        self.silence() < STUCK_AFTER
    }

    /// Ends the keep-alives: another process is the main process of the service now.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Beats until dropped. Runs on the request path's async runtime: if that is blocked, so is this.
    pub async fn run(self: Arc<Self>) {
        let mut interval = tokio::time::interval(BEAT);
        loop {
            interval.tick().await;
            self.beat();
        }
    }
}

/// Starts the thread that sends keep-alives to systemd's watchdog (`WatchdogSec=`) as long as heartbeats arrive; without a watchdog
/// it starts none. A path that is stuck for half of the limit gets none, so that it is noticed within one and a half of it. The thread
/// does nothing else, since on a node that is short of CPU any busy thread may be late: systemd
/// would kill a daemon that serves calls, if slowly.
///
/// # Errors
/// If the thread cannot be created.
pub fn feed(heartbeat: Arc<Heartbeat>) -> io::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    let stuck_after = (limit / 2).clamp(2 * BEAT, STUCK_AFTER);
    let feed = move || {
        loop {
            thread::sleep(limit / CHANCES);
            if heartbeat.retired.load(Ordering::Relaxed) {
                return;
            }
            if heartbeat.silence() < stuck_after {
                notify(&[NotifyState::Watchdog]);
            } else {
                tracing::error!(
                    event = "watchdog.starved",
                    silence_ms = heartbeat.silence().as_millis() as u64,
                    "the request path is stuck; no keep-alive sent to systemd"
                );
            }
        }
    };
    let thread = thread::Builder::new().name("watchdog".to_owned());
    thread.stack_size(STACK).spawn(feed).map(drop)
}

/// Notifies the service manager, if there is one.
pub fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(error.message = %error, "cannot notify the service manager");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_turn_is_noticed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("runtime");
        let heartbeat = Arc::new(Heartbeat {
            start: Instant::now() - Duration::from_secs(60),
            ..Heartbeat::default()
        });
        assert!(!heartbeat.is_alive());
        runtime.spawn(Arc::clone(&heartbeat).run());
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        assert!(heartbeat.is_alive());
    }
}
