//! `criscope calls`: calls in flight and rates, like top.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde::Deserialize;

use super::{PageCommandError, duration};
use crate::source::{PageError, PageSource};
use crate::terminal::format::{self, OutputFormat};
use crate::terminal::render::calls::{self, CallsScreen};
use crate::terminal::{self, screen};
use crate::view::OpenSessionView;

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

/// How to show calls.
#[derive(Clone, Debug, clap::Args)]
pub struct CallsArgs {
    /// Print once
    #[arg(long)]
    once: bool,
    /// Time between two updates (500ms, 1s)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// Print the calls in flight once in this format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// Shows calls until Ctrl-C, or once.
///
/// # Errors
/// If they could not be read or printed.
pub async fn run(
    args: &CallsArgs,
    source: &(impl PageSource + Sync),
) -> Result<(), PageCommandError> {
    if let Some(format) = args.output {
        let calls: serde_json::Value = source.json(CALLS_PAGE).await?;
        return Ok(format::print(format, &calls)?);
    }
    if args.once || !io::stdout().is_terminal() {
        let text = draw(source, None).await?;
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    }
    let draw = async |height| draw(source, height).await;
    screen::watch(draw, args.interval.max(MIN_REFRESH_INTERVAL)).await
}

/// Prints the page of calls in flight unchanged.
///
/// # Errors
/// If it could not be read or printed.
pub async fn print_page(source: &(impl PageSource + Sync)) -> Result<(), PageCommandError> {
    Ok(format::print_json(&source.bytes(CALLS_PAGE).await?)?)
}

/// One reading, as text of at most `height` lines.
async fn draw(
    source: &(impl PageSource + Sync),
    height: Option<usize>,
) -> Result<String, PageError> {
    let now = CallsScreen {
        calls: source.json(CALLS_PAGE).await?,
        methods: source.json(METHODS_PAGE).await?,
        sessions: source.json::<SessionsPart>(FRONT_PAGE).await?.sessions,
    };
    let look = terminal::look(DEFAULT_COLUMNS);
    Ok(calls::screen(source.address(), &now, look, height))
}
