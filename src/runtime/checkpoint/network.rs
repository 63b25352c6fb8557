//! The network of a pod that CRIU has locked. During a dump CRIU drops all packets but its own with rules in the network namespace of the
//! pod, and removes them at the end (`network_lock` in its `criu/net.c`). If it is killed, they stay.

use std::io;
use std::process::{Command, Stdio};

use criscope_linux::environment;
use criscope_linux::namespace::{Error as NamespaceError, Kind, Pins, run_in};

use crate::runtime::error::{Error, Result};

/// The chain of CRIU in the table `filter`, with `--network-lock iptables`.
const CHAIN: &str = "CRIU";
/// What the tables of CRIU of the family `inet` begin with, with `--network-lock nftables`: a process or an id of the dump follows.
const TABLES: &str = "CRIU-";
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
    let open = move || pins.open(&id, Kind::Net);
    match run_in(open, Kind::Net, remove).await {
        Ok(removed) => removed,
        Err(NamespaceError::NotPinned { .. }) => Ok(()),
        Err(error) => Err(Error::Internal(error.to_string())),
    }
}

/// In the network namespace of the calling thread.
fn remove() -> Result<()> {
    for program in ["iptables", "ip6tables"] {
        remove_chain(program)?;
    }
    let Some(tables) = run("nft", &["list", "tables", "inet"])? else {
        return Ok(());
    };
    // The name is the last word of a line.
    let names = tables
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    for table in names {
        if table.starts_with(TABLES) {
            must("nft", &["delete", "table", "inet", table])?;
        }
    }
    Ok(())
}

fn remove_chain(program: &str) -> Result<()> {
    let iptables = |arguments: &[&str]| run(program, &[&["-w", WAIT], arguments].concat());
    if iptables(&["-S", CHAIN])?.is_none() {
        return Ok(());
    }
    for from in ["INPUT", "OUTPUT"] {
        for _ in 0..RULES {
            if iptables(&["-D", from, "-j", CHAIN])?.is_none() {
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
            "the network of the pod is locked by CRIU: {program} {} failed",
            arguments.join(" ")
        ))),
    }
}

/// What a program prints; `None` if it fails, or is not installed: then CRIU cannot have used it.
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
        Err(error) => Err(Error::io("run", std::path::Path::new(program), error)),
    }
}
