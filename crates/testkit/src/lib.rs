//! The test harness for criscope's integration tests and benchmarks.
//!
//! | part | modules |
//! |---|---|
//! | criscope as a process | [`proxy`] (any configuration), [`daemon`] (the built-in runtime), [`scrape`], [`leaks`] |
//! | runtimes behind it | [`fake`] (a CRI server that misbehaves as its [`script`] says), [`containerd`] |
//! | callers | [`client`] (raw HTTP/2), [`kubelet`] (typed, for real pods), [`session`] (exec and port-forward), [`pods`] (typed, for the fake), [`requests`], [`cadvisor`] |
//! | servers around it | [`registry`], [`docker_registry`], [`collector`] (OTLP), [`prometheus`]; [`pki`] |
//! | images | [`busybox`], [`image`], [`image_store`] |
//! | the machine | [`packages`], [`executable`], [`process`], [`pid_namespace`], [`hierarchies`] |
//! | benchmarks | [`mod@bench`] |
//!
//! Nothing sleeps for a fixed time: [`until`] polls a condition for at most [`PATIENCE`]. Helpers panic, because a test
//! that cannot be set up has failed; [`process`] and [`mod@bench`] return errors, because a benchmark reports them.
//!
//! The crate links criscope for its generated CRI types. The paths of the binaries are parameters: only the tests and
//! benchmarks of the root package know where cargo has put them.

// Used by one program's tests only; a failing test prints its own values.
#![expect(missing_docs, missing_debug_implementations, reason = "no public API")]

pub mod bench;
pub mod busybox;
pub mod cadvisor;
pub mod client;
pub mod collector;
pub mod containerd;
pub mod daemon;
pub mod docker_registry;
pub mod error;
pub mod executable;
pub mod fake;
mod grpc;
pub mod hierarchies;
pub mod image;
pub mod image_store;
pub mod kubelet;
pub mod leaks;
pub mod packages;
pub mod pid_namespace;
pub mod pki;
pub mod pods;
mod ports;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod registry;
pub mod requests;
pub mod scrape;
pub mod script;
pub mod session;
pub mod yaml;

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crate::grpc::{encode, headers, message, message_with, sorted};

/// How long a condition may take to become true. Generous, because a slow machine is not a failure, and the virtual
/// machine of `tests/v2/run.sh` may be emulated.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until `poll` returns a value.
///
/// # Panics
/// After [`PATIENCE`], naming what was waited for.
pub async fn until<T, F>(what: &str, mut poll: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Polls until a condition holds.
///
/// # Panics
/// After [`PATIENCE`], naming what was waited for.
pub async fn until_true<F>(what: &str, mut holds: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let poll = || {
        let held = holds();
        async { held.await.then_some(()) }
    };
    until(what, poll).await;
}

/// Waits until what `look` sees stays the same for a second, and returns it: no event tells that a writer is blocked.
///
/// # Panics
/// After [`PATIENCE`], naming what was waited for.
pub async fn until_still<T: PartialEq>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let still = async {
        let mut before = None;
        loop {
            let now = look();
            match now {
                Some(value) if before.as_ref() == Some(&value) => return value,
                now => before = now,
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    soon(what, still).await
}

/// Awaits a future.
///
/// # Panics
/// After [`PATIENCE`], naming what was waited for.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("timed out waiting for {what}"),
    }
}

/// Locks a mutex even if it is poisoned: the failure to report is the panic of the other thread.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises the limit of open files of this process, and of those it starts, to the hard limit.
pub fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("setrlimit");
}
