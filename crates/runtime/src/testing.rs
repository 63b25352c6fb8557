//! Helpers of unit tests, here and in crates above.

use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{self, Mode};

/// Long enough that only a hang takes longer, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Runs this on a thread of its own, with a umask of its own.
///
/// # Panics
/// If the thread cannot have a umask of its own, or the function panics.
pub fn with_umask<T: Send>(umask: u32, run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let umasked = scope.spawn(|| {
            unshare(CloneFlags::CLONE_FS).expect("unshare");
            stat::umask(Mode::from_bits_truncate(umask));
            run()
        });
        umasked.join().expect("no panic")
    })
}
