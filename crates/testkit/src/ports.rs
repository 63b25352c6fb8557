//! Ports for servers of tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::pid_namespace;

/// The first port used by tests.
const FIRST_PORT: u32 = 20_000;

/// The number of ports that one process allocates.
const PORTS: u32 = 1000;

/// The number of processes with disjoint port ranges; all ports are below 32768.
const PROCESSES: u32 = 12;

/// Allocates a port below the ephemeral range, so that no outgoing connection takes it. Ports are reused only after a
/// thousand allocations: tests also use them for servers that are absent or come back later.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // The pid is the same in every PID namespace.
    let process = pid_namespace::number().unwrap_or_else(std::process::id);
    let base = FIRST_PORT + process % PROCESSES * PORTS;
    // Processes that share a range start at different ports.
    let first = process / PROCESSES * 100;
    loop {
        let offset = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(base + offset).expect("below 32768");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
