//! What programs that the runtime starts do not inherit.

/// What the service manager and the daemon have between them (`sd_notify(3)`, `sd_listen_fds(3)`). runc takes
/// `NOTIFY_SOCKET` for its container's: `start` would then wait until the container says that it is ready.
pub const SERVICE_MANAGER: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];
