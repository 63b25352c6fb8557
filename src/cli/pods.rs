//! `criscope pods`: recent starts of pods, the slowest first.

use std::io::{self, IsTerminal, Write};

use super::Failure;
use super::ask::{AdminArgs, block_on, encoded, print_json};
use super::output;
use super::render::pods::table;
use crate::lifecycle::view::Recent;

/// Width of the output without a terminal.
const COLUMNS: usize = 80;

/// Show recent starts and restarts, the slowest first
///
/// The newest restart of each crash loop comes first.
///
/// Reads from the running criscope.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    slowest: u32,
    /// Only pods in this namespace
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// Only those that failed, in which a call failed, or whose container is in a crash loop
    #[arg(long)]
    failed: bool,
    /// Print the JSON of /debug/pods
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let endpoint = args.admin.endpoint()?;
    let path = path(args);
    let bytes = block_on(async { Ok(endpoint.bytes(&path).await?) })?;
    if args.json {
        return Ok(print_json(&bytes)?);
    }
    let recent: Recent = endpoint.parse(&path, &bytes)?;
    let mut out = io::stdout().lock();
    if recent.episodes.is_empty() {
        writeln!(out, "{}", nothing(args))?;
    } else {
        let look = output::look(COLUMNS);
        let text = table(&recent, look, out.is_terminal());
        out.write_all(text.as_bytes())?;
    }
    Ok(out.flush()?)
}

fn path(args: &Args) -> String {
    let mut path = format!(
        "/debug/pods?format=json&sort=slowest&kind=start,restart&limit={}",
        args.slowest
    );
    if let Some(namespace) = &args.namespace {
        path.push_str(&format!("&namespace={}", encoded(namespace)));
    }
    if args.failed {
        path.push_str("&failed=true");
    }
    path
}

/// The message for an empty list.
fn nothing(args: &Args) -> String {
    let which = if args.failed {
        "No start has failed"
    } else {
        "No pod has been started"
    };
    let whose = args
        .namespace
        .as_ref()
        .map(|it| format!(" in namespace {}", crate::cri::visible::visible(it)))
        .unwrap_or_default();
    format!("{which}{whose} that criscope remembers.")
}
