//! Settings of the allocator, and when free memory goes back to the kernel.

#[cfg(target_env = "gnu")]
pub(super) use gnu::{give_memory_back, trim_when_grown};

/// musl has no such settings and needs none.
#[cfg(not(target_env = "gnu"))]
pub(super) fn give_memory_back() {}

/// See [`give_memory_back`].
#[cfg(not(target_env = "gnu"))]
pub(super) async fn trim_when_grown() {}

#[cfg(target_env = "gnu")]
mod gnu {
    use std::fs;
    use std::time::Duration;

    use tokio::time::{MissedTickBehavior, interval};

    /// Interval of checks whether memory has grown.
    const MEMORY_CHECK_INTERVAL: Duration = Duration::from_secs(10);
    /// Growth of the anonymous memory, in bytes, after which free pages are returned.
    const TRIM_AFTER_GROWTH_BYTES: u64 = 512 << 10;

    /// Makes glibc give memory back. By default it makes up to eight arenas for each processor, and after the first large allocation
    /// that is freed it keeps ever more: a daemon that has pulled images stays at 60 MB instead of 25 (`cargo bench --bench pulls`).
    /// Two arenas are enough: the request path has one thread of its own, and the rest seldom allocates.
    #[allow(unsafe_code)]
    pub(crate) fn give_memory_back() {
        const MAX_ARENAS: i32 = 2;
        /// Bytes at the end of the heap that are kept, for the next message: with less, each list of 1,000 containers has its pages
        /// faulted in again.
        const HEAP_TOP_KEPT_BYTES: i32 = 1 << 20;
        for (parameter, value) in [
            (libc::M_ARENA_MAX, MAX_ARENAS),
            (libc::M_TRIM_THRESHOLD, HEAP_TOP_KEPT_BYTES),
        ] {
            // SAFETY: mallopt(3) takes two numbers, and may be called at any time. A value that it refuses changes nothing.
            unsafe { libc::mallopt(parameter, value) };
        }
    }

    /// Returns free pages to the kernel each time memory has grown. Pulls, sessions and calls free nearly all that they allocated, but
    /// what others allocated meanwhile lies between: without this, the pages stay.
    pub(crate) async fn trim_when_grown() {
        let mut tick = interval(MEMORY_CHECK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut least = 0;
        loop {
            tick.tick().await;
            let now = anonymous();
            if now > least + TRIM_AFTER_GROWTH_BYTES {
                trim();
                least = anonymous();
            } else {
                least = least.min(now);
            }
        }
    }

    /// Returns whole pages that are free inside the heap to the kernel. It takes well under a millisecond for each 10 MB of heap.
    #[allow(unsafe_code)]
    fn trim() {
        // SAFETY: malloc_trim(3) takes a number, and locks the arenas that it reads.
        unsafe { libc::malloc_trim(0) };
    }

    /// Resident anonymous memory of this process in bytes (`RssAnon` in proc(5)); 0 if it cannot be read.
    fn anonymous() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let value = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = value.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }

    #[cfg(test)]
    mod tests {
        use std::env;
        use std::process::Command;

        use super::*;

        const NAME: &str = "app::heap::gnu::tests::what_is_free_between_pieces_in_use_goes_back";
        /// Set in the process in which the test runs alone: what other tests allocate meanwhile would count too.
        const ALONE: &str = "CRISCOPE_TEST_HEAP";

        #[test]
        fn what_is_free_between_pieces_in_use_goes_back() {
            if env::var_os(ALONE).is_none() {
                let alone = Command::new(env::current_exe().expect("own program"))
                    .args(["--exact", NAME])
                    .env(ALONE, "1")
                    .output();
                let alone = alone.expect("runs");
                let said = String::from_utf8_lossy(&alone.stdout);
                assert!(said.contains("1 passed"), "{said}");
                return;
            }
            const PIECES: usize = 64 << 10;
            let before = anonymous();
            let mut pieces: Vec<_> = (0..PIECES).map(|_| vec![1_u8; 1000]).collect();
            let full = anonymous();
            assert!(full > before + (32 << 20), "{before}, then {full}");
            let mut n = 0;
            pieces.retain(|_| {
                n += 1;
                n % 64 == 0
            });
            trim();
            let after = anonymous();
            assert!(after + (32 << 20) < full, "{full}, then {after}");
            drop(pieces);
        }
    }
}
