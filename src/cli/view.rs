//! `criscope view`: the pages of a capture.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::CommandFailure;
use super::ask::open;
use crate::app::captured;

/// Show the pages of a capture in a browser
///
/// Serves the pages until Ctrl-C, on loopback only. This version of criscope makes the pages of pods from the capture's journal;
/// other pages are shown as the recorded JSON.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The capture
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Loopback address to serve them on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9480", value_parser = loopback)]
    listen: SocketAddr,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "expected IP:PORT".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("not a loopback address".to_owned())
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let bundle = open(&args.file)?;
    Ok(captured::serve(bundle, args.listen, |address| {
        let mut out = io::stdout().lock();
        writeln!(out, "http://{address}/debug/pods")?;
        out.flush()
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_shown_on_loopback_only() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:80").is_ok());
        assert!(loopback("0.0.0.0:80").is_err() && loopback("localhost:80").is_err());
    }
}
