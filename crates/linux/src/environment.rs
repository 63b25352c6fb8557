//! Environment variables that programs started by the runtime must not inherit.

/// Variables of the protocol between the service manager and the daemon (`sd_notify(3)`, `sd_listen_fds(3)`). runc
/// takes `NOTIFY_SOCKET` as the container's own: `start` would then wait until the container reports readiness.
pub const SERVICE_MANAGER: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];
