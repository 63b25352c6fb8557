//! `criscope calls`: calls in flight and rates, like top.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Deserialize;

use super::CommandFailure;
use super::ask::{AdminEndpoint, StateSourceArgs, block_on, print_json};
use super::format::{self, OutputFormat};
use super::http::AdminRequestError;
use super::output;
use super::render::calls::{self, CallsScreen};
use super::screen;
use super::smoke::duration;
use crate::lifecycle::view::OpenSessionView;

/// Width of the output without a terminal.
const DEFAULT_COLUMNS: usize = 120;

/// Shortest interval between two screens.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

const CALLS_PAGE: &str = "/debug/calls?format=json";
const METHODS_PAGE: &str = "/debug/rpcz?format=json";
const FRONT_PAGE: &str = "/?format=json";

/// The part of the front page that no other page has.
#[derive(Debug, Deserialize)]
struct SessionsPart {
    sessions: Vec<OpenSessionView>,
}

/// Show calls in flight, open sessions and rates per method, like top
///
/// kubectl exec, attach and port-forward open sessions. Their calls have ended already: a call only fetches the session's URL.
/// Reads from the running criscope. On a terminal it runs until Ctrl-C; otherwise it prints once.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    admin: StateSourceArgs,
    /// Print once
    #[arg(long)]
    once: bool,
    /// Time between two updates (500ms, 1s)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// Print the calls in flight once in this format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
    /// Short for -o json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    block_on(async {
        if args.json {
            return Ok(print_json(&endpoint.bytes(CALLS_PAGE).await?)?);
        }
        if let Some(format) = args.output {
            let calls: serde_json::Value = endpoint.json(CALLS_PAGE).await?;
            return Ok(format::print(format, &calls)?);
        }
        if args.once || !io::stdout().is_terminal() {
            let text = look(&endpoint, None).await?;
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            return Ok(out.flush()?);
        }
        let draw = async |height| look(&endpoint, height).await;
        screen::watch(draw, args.interval.max(MIN_REFRESH_INTERVAL)).await
    })
}

/// One reading, as text of at most `height` lines.
async fn look(
    endpoint: &AdminEndpoint,
    height: Option<usize>,
) -> Result<String, AdminRequestError> {
    let now = CallsScreen {
        calls: endpoint.json(CALLS_PAGE).await?,
        methods: endpoint.json(METHODS_PAGE).await?,
        sessions: endpoint.json::<SessionsPart>(FRONT_PAGE).await?.sessions,
    };
    let look = output::look(DEFAULT_COLUMNS);
    Ok(calls::screen(endpoint.address(), &now, look, height))
}
