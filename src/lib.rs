//! criscope is an observable CRI endpoint. It measures every call of the kubelet, groups the calls of one pod into one
//! story, and forwards them byte for byte to a container runtime or serves them with its built-in runtime.
//!
//! ```text
//!  kubelet, crictl                                                            containerd, CRI-O, ...
//!        |                                                                             ^
//!        v                                                                             |
//!    listener  ->  instrument  ->  rescue  ->  inspect  ->  router  ->  backend  ------+
//!                      |                          |           |  \            +- probe, resync
//!                      |                          +- pod_index-+  +->  runtime  ->  OCI runtime, CNI plugins, registries
//!                      v
//!              signals: metrics, log, spans  ->  telemetry        admin reads: /metrics /readyz /debug/calls
//! ```
//!
//! # Invariants
//!
//! 1. **Byte-exact.** What passes through to an upstream is never re-encoded: unknown methods, unknown fields, metadata,
//!    deadlines, cancellation, trailers, status codes and messages arrive as they were sent. Decoding is done on a copy.
//!    (With traces on, `traceparent` is ours, as W3C trace context intends. So is `tracestate` where the trace is another. With
//!    `streaming.observe` on, the URL of a session is ours, and nothing else of its answer; the session's bytes are not. With
//!    `answer_runtime_config` on, `RuntimeConfig` of a runtime that does not implement it is answered by us. With
//!    `join_retries` on, RunPodSandbox and CreateContainer have a longer deadline, and the kubelet's retry gets the answer of the
//!    call that it had given up.)
//! 2. **One end.** Every call that enters ends in exactly one outcome (ok, error, cancelled, deadline), streams and
//!    dropped calls included, and every signal comes from that one end.
//! 3. **Telemetry never hurts.** No exporter, page or log can fail, delay or block a call. All buffers are bounded; what
//!    is dropped is counted.
//! 4. **No secret leaves.** Env values, registry credentials, exec output, annotations and verbose info maps never reach
//!    a log, span, metric, page or dump. No CRI message has a `Debug`.
//!    (Root can have requests recorded into a file, over the admin socket only: `docs/adr/0048`.)
//! 5. **Bounded labels.** Metric labels are Rust enums or names from the loaded configuration.
//! 6. **Work outlives its caller.** A verb of the built-in runtime is carried out by a task of its own: a kubelet that
//!    hangs up never leaves a half-made pod. Taking back what failed has its own deadline.
//! 7. **Restart loses nothing.** Containers, logs and exit codes survive a `kill -9` of the daemon at any point; one
//!    broken record never stops the rest.
//! 8. **A partial failure is never a shorter list.** If one of two backends cannot answer a List, the List fails.
//!
//! # Modules, in reading order
//!
//! [`proxy`] is the request path; read its list of layers first. [`call`] is one call on that path; [`cri`], [`grpc`] and
//! [`uds`] are the protocol, its frames and its connections. Next to it are [`telemetry`] (export of signals), [`admin`]
//! (the HTTP endpoint), [`lifecycle`] (episodes: start, restart and stop of a pod, and why it took so long) and
//! [`watchdog`]. [`config`] collects the settings that modules declare with [`settings`], [`catalogue`] the metrics; with
//! [`cli`] they are the user's interface. [`app`] builds everything, and [`reload`] reconfigures it at run time. [`runtime`]
//! is the built-in backend, [`tls`] has the certificates of servers, [`streaming`] the server of exec, attach and port-forward; the small process next to each pod is
//! a crate of its own, [`criscope_shim`]. [`install`] changes a node and changes it back. [`smoke`] is a canary that calls a
//! runtime as a kubelet does, through [`client`].
//! [`replay`] plays recorded calls against another runtime. [`pages`] are the pages as data, and the commands that show them.
//! [`units`] formats durations, sizes and times, [`version`] has the version and the commit. `docs/ARCHITECTURE.md` has the
//! rest.

pub mod admin;
pub mod app;
pub mod catalogue;
pub mod cli;
pub mod client;
pub mod config;
pub mod install;
pub mod proxy;
pub mod reload;
pub mod replay;
pub mod smoke;
pub mod streaming;
pub mod tls;
pub mod watchdog;

pub use criscope_cri as cri;
pub use criscope_cri::{call, units};
pub use criscope_grpc as grpc;
pub use criscope_grpc::uds;
pub use criscope_lifecycle as lifecycle;
pub use criscope_pages as pages;
pub use criscope_runtime as runtime;
pub use criscope_settings as settings;
pub use criscope_telemetry as telemetry;
pub use criscope_telemetry::version;

/// Shared by unit tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    pub(crate) use criscope_runtime::testing::{PATIENCE, with_umask};

    /// Polls until there is an answer.
    ///
    /// A descriptor that a test has closed may stay open a moment longer: a child of a concurrent test has all descriptors
    /// of this process until its `exec`, listening sockets and locks too.
    ///
    /// # Panics
    /// If there is none within [`PATIENCE`].
    pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(Instant::now() < end, "{what} takes too long");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until no process listens on a socket that the caller has closed; see [`until`].
    pub(crate) fn until_stale(path: &Path) {
        until("a stale socket", || match UnixStream::connect(path) {
            Ok(_) => None,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
                Some(())
            }
        });
    }
}
