//! The network of a pod that CRIU has locked. During a dump CRIU drops all packets but its own with rules in the network namespace of the
//! pod, and removes them at the end (`network_lock` in its `criu/net.c`). If it is killed, they stay.
//!
//! The network of the node it does not lock. There it drops the packets of each connection of the container, if it has been told to dump
//! connections (`tcp-established`), with rules of their own (`criu/netfilter.c`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use criscope_linux::environment;
use criscope_linux::namespace::{Error as NamespaceError, Kind, Pins, run_in};

use crate::error::{Error, Result};

/// The chain of CRIU in the table `filter`, with `--network-lock iptables`.
const CHAIN: &str = "CRIU";
/// The prefix of CRIU's tables of the family `inet`, with `--network-lock nftables`: a process or an id of the dump follows.
const TABLES: &str = "CRIU-";
/// The mark of CRIU's own packets.
const MARK: &str = "0xC114";
/// How much of CRIU's log is read, in bytes.
const MAX_LOG: u64 = 16 << 20;
/// How many rules lead to the chain at most: one for each dump that was killed.
const RULES: usize = 16;
/// How long to wait for the lock of iptables, in seconds.
const WAIT: &str = "5";

/// Removes the rules of CRIU from the network namespace of a pod. That there are none is no error, nor that the pod has no namespace any
/// more.
///
/// # Errors
/// If they cannot be removed.
pub(super) async fn unlock(pins: &Pins, sandbox: &str) -> Result<()> {
    let (pins, id) = (pins.clone(), sandbox.to_owned());
    match run_in(move || pins.open(&id, Kind::Net), Kind::Net, remove).await {
        Ok(removed) => removed,
        Err(NamespaceError::NotPinned { .. }) => Ok(()),
        Err(error) => Err(Error::Internal(error.to_string())),
    }
}

/// Removes the locks of single connections from the network of the node that a dump has set according to its log: the rules do not say
/// whose they are, and another engine may dump a container. CRIU's code in the processes of the container can write to the log, so
/// nothing else is removed.
///
/// # Errors
/// If the log cannot be read, or a rule cannot be removed.
pub(super) fn unlock_node(log: &Path) -> Result<()> {
    let file = match File::open(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(|error| Error::io("open", log, error))?,
    };
    let (mut locks, mut tables) = (BTreeSet::new(), BTreeSet::new());
    for line in BufReader::new(file.take(MAX_LOG)).split(b'\n') {
        let line = line.map_err(|error| Error::io("read", log, error))?;
        let line = String::from_utf8_lossy(&line);
        locks.extend(Lock::parse("Locked ", &line));
        if let Some(removed) = Lock::parse("Unlocked ", &line) {
            locks.remove(&removed);
        }
        tables.extend(table_of(&line).map(str::to_owned));
    }
    for lock in locks {
        lock.remove()?;
    }
    remove_tables(|table| tables.contains(table))
}

/// A lock of the packets from `from` to `to`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    from: SocketAddr,
    to: SocketAddr,
}

impl Lock {
    /// From a line such as `Locked 10.0.0.1:80 - 10.0.0.2:4711 connection`, which has the receiver first.
    fn parse(verb: &str, line: &str) -> Option<Self> {
        let (_, ends) = line.split_once(verb)?;
        let (to, from) = ends.strip_suffix(" connection")?.split_once(" - ")?;
        Some(Self {
            from: socket_addr(from)?,
            to: socket_addr(to)?,
        })
    }

    fn remove(&self) -> Result<()> {
        let program = if self.from.is_ipv4() {
            "iptables"
        } else {
            "ip6tables"
        };
        let (from, to) = (self.from.ip().to_string(), self.to.ip().to_string());
        let ports = [self.from.port(), self.to.port()].map(|port| port.to_string());
        for chain in ["INPUT", "OUTPUT"] {
            let rule = [
                chain, "-p", "tcp", "-m", "mark", "!", "--mark", MARK, "-s", &from, "--sport",
                &ports[0], "-d", &to, "--dport", &ports[1], "-j", "DROP",
            ];
            let check = [&["-w", WAIT, "-C"], &rule[..]].concat();
            if run(program, &check)?.is_some() {
                must(program, &[&["-w", WAIT, "-D"], &rule[..]].concat())?;
            }
        }
        Ok(())
    }
}

/// Parses an address and a port. An IPv6 address has no brackets.
fn socket_addr(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
}

/// The table in a line such as `Running nftables [add element inet CRIU-4711 conns4 { ... }]`.
fn table_of(line: &str) -> Option<&str> {
    let (_, command) = line.split_once("Running nftables [add ")?;
    command.split(' ').find(|word| word.starts_with(TABLES))
}

/// In the network namespace of the calling thread.
fn remove() -> Result<()> {
    for program in ["iptables", "ip6tables"] {
        remove_chain(program)?;
    }
    remove_tables(|_| true)
}

/// Removes those tables of CRIU that `is_ours` names.
fn remove_tables(is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let Some(tables) = run("nft", &["list", "tables", "inet"])? else {
        return Ok(());
    };
    // The name is the last word of a line.
    let names = tables
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    for table in names {
        if table.starts_with(TABLES) && is_ours(table) {
            must("nft", &["delete", "table", "inet", table])?;
        }
    }
    Ok(())
}

fn remove_chain(program: &str) -> Result<()> {
    if run(program, &["-w", WAIT, "-S", CHAIN])?.is_none() {
        return Ok(());
    }
    for from in ["INPUT", "OUTPUT"] {
        for _ in 0..RULES {
            if run(program, &["-w", WAIT, "-D", from, "-j", CHAIN])?.is_none() {
                break;
            }
        }
    }
    must(program, &["-w", WAIT, "-F", CHAIN])?;
    must(program, &["-w", WAIT, "-X", CHAIN])
}

fn must(program: &str, arguments: &[&str]) -> Result<()> {
    match run(program, arguments)? {
        Some(_) => Ok(()),
        None => Err(Error::Internal(format!(
            "the network is locked by CRIU: {program} {} failed",
            arguments.join(" ")
        ))),
    }
}

/// The output of a program; `None` if it fails, or is not installed: then CRIU cannot have used it.
fn run(program: &str, arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new(program);
    for name in environment::SERVICE_MANAGER {
        command.env_remove(name);
    }
    let done = command
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match done {
        Ok(done) if done.status.success() => {
            Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned()))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("run", Path::new(program), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_from_the_log() {
        let lock = |line| {
            Lock::parse("Locked ", line).map(|lock| (lock.from.to_string(), lock.to.to_string()))
        };
        let ends = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
        assert_eq!(
            lock("(00.01) Locked 10.0.0.1:80 - 10.0.0.2:4711 connection"),
            ends("10.0.0.2:4711", "10.0.0.1:80")
        );
        assert_eq!(
            lock("Locked ::1:80 - fe80::2:4711 connection"),
            ends("[fe80::2]:4711", "[::1]:80")
        );
        for other in [
            "Unlocked 10.0.0.1:80 - 10.0.0.2:4711 connection",
            "Locked 10.0.0.1:80 - 10.0.0.2:99999 connection",
            "Locked 10.0.0.1:80 - -j:1 connection",
        ] {
            assert_eq!(lock(other), None, "{other}");
        }
        let line = "(0.1) \tRunning nftables [add element inet CRIU-12 conns4 { 1.1.1.1 . 2 }]";
        assert_eq!(table_of(line), Some("CRIU-12"));
    }
}
