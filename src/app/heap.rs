//! Settings of the allocator.

/// Makes glibc give memory back. By default it makes up to eight arenas for each processor, and after the first large allocation that is
/// freed it keeps ever more: a daemon that has pulled images stays at 60 MB instead of 25 (`cargo bench --bench pulls`). Two arenas are
/// enough: the request path has one thread of its own, and the rest seldom allocates. musl has no such settings and needs none.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub(super) fn give_memory_back() {
    const ARENAS: i32 = 2;
    /// Bytes at the end of the heap that are kept, for the next message: with less, each list of 1,000 containers has its pages
    /// faulted in again.
    const KEPT: i32 = 1 << 20;
    for (parameter, value) in [(libc::M_ARENA_MAX, ARENAS), (libc::M_TRIM_THRESHOLD, KEPT)] {
        // SAFETY: mallopt(3) takes two numbers, and may be called at any time. A value that it refuses changes nothing.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// See the other one.
#[cfg(not(target_env = "gnu"))]
pub(super) fn give_memory_back() {}

/// Returns whole pages that are free inside the heap to the kernel. It takes well under a millisecond for each 10 MB of heap.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub(super) fn trim() {
    // SAFETY: malloc_trim(3) takes a number, and locks what it looks at.
    unsafe { libc::malloc_trim(0) };
}

/// See the other one.
#[cfg(not(target_env = "gnu"))]
pub(super) fn trim() {}
