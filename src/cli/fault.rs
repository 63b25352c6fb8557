//! `criscope fault`: faults that are injected on purpose.

use std::io::{self, Write};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use http::Method as Verb;

use super::CommandFailure;
use super::ask::{AdminEndpointArgs, block_on};
use crate::cri::Method;
use crate::cri::status::{CODES, Code, code_name};
use crate::cri::visible::visible;
use crate::pages::commands::duration;
use crate::pages::source::PageSource as _;
use crate::pages::terminal::format::{self, OutputFormat};
use crate::proxy::faults::{FaultEffect, FaultRule, FaultView};
use crate::units;
use crate::units::times::{UnixMicros, millis, whole_millis};

const FAULTS_PAGE: &str = "/debug/faults";

/// Delay calls or let them fail on purpose, to try alerts and upgrades
///
/// Needs faults.enabled = true in the configuration of the running criscope, and root. Every fault ends by itself. explain,
/// the log and criscope_faults_injected_total name the injected faults.
#[derive(Debug, clap::Subcommand)]
pub(super) enum FaultCommand {
    Add(AddFaultArgs),
    List(ListFaultsArgs),
    Clear(ClearFaultsArgs),
}

/// Inject a fault into the calls of a method
///
/// Prints the number of the fault. Calls that it holds go on when it ends or is cleared. If several faults apply to a call, the
/// oldest counts.
#[derive(Debug, clap::Args)]
pub(super) struct AddFaultArgs {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Method of the CRI, such as RunPodSandbox
    #[arg(long, value_name = "METHOD", hide_possible_values = true, value_parser = method())]
    method: Method,
    /// Only calls for pods in this namespace
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// Only calls for pods of this name
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// How long the fault lasts, at most 1h (30s, 5m)
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Duration,
    #[command(flatten)]
    effect: FaultEffectArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct FaultEffectArgs {
    /// Hold each call for this time, then let it go on
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,
    /// Answer each call with this code instead of the runtime
    #[arg(long, value_name = "CODE", value_parser = PossibleValuesParser::new(failures()))]
    fail: Option<String>,
    /// Hold each call until the fault ends
    #[arg(long)]
    hang: bool,
}

/// List the faults in effect
#[derive(Debug, clap::Args)]
pub(super) struct ListFaultsArgs {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// End a fault, or all of them
#[derive(Debug, clap::Args)]
pub(super) struct ClearFaultsArgs {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Number of the fault [default: all]
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,
    /// End every fault, which is the default
    #[arg(long, conflicts_with = "number")]
    all: bool,
}

/// The methods of the CRI; clap suggests one for a name that is nearly one.
fn method() -> impl TypedValueParser<Value = Method> {
    let methods = Method::ALL.into_iter();
    let known = methods.filter(|method| *method != Method::Other);
    PossibleValuesParser::new(known.map(Method::name)).map(|name| {
        let mut methods = Method::ALL.into_iter();
        methods
            .find(|method| method.name() == name)
            .unwrap_or(Method::Other)
    })
}

/// The names of the codes that a call can fail with.
fn failures() -> impl Iterator<Item = &'static str> {
    let codes = CODES.into_iter().filter(|code| *code != Code::Ok);
    codes.map(code_name)
}

impl FaultEffectArgs {
    fn effect(&self) -> FaultEffect {
        let name = self.fail.as_deref();
        let code = name.and_then(|name| CODES.into_iter().find(|code| code_name(*code) == name));
        match (self.delay, code) {
            (Some(delay), _) => FaultEffect::Delay {
                ms: whole_millis(delay),
            },
            (None, Some(code)) => FaultEffect::Fail { code },
            (None, None) => FaultEffect::Hang,
        }
    }
}

pub(super) fn run(command: &FaultCommand) -> Result<(), CommandFailure> {
    match command {
        FaultCommand::Add(args) => add(args),
        FaultCommand::List(args) => list(args),
        FaultCommand::Clear(args) => clear(args),
    }
}

fn add(args: &AddFaultArgs) -> Result<(), CommandFailure> {
    let rule = FaultRule {
        method: args.method,
        namespace: args.namespace.clone(),
        pod: args.pod.clone(),
        effect: args.effect.effect(),
        for_ms: whole_millis(args.lasts),
    };
    let body = serde_json::to_vec(&rule).map_err(io::Error::from)?;
    let endpoint = args.admin.endpoint()?;
    let answer = block_on(async { Ok(endpoint.change(Verb::POST, FAULTS_PAGE, body).await?) })?;
    let fault: FaultView = endpoint.parse(FAULTS_PAGE, &answer)?;
    print(&[fault], "")
}

fn list(args: &ListFaultsArgs) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    let faults: Vec<FaultView> = block_on(async { Ok(endpoint.json(FAULTS_PAGE).await?) })?;
    match args.output {
        Some(format) => Ok(format::print(format, &faults)?),
        None => print(&faults, "No faults are injected."),
    }
}

fn clear(args: &ClearFaultsArgs) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    let path = match args.number {
        Some(number) => format!("{FAULTS_PAGE}?number={number}"),
        None => FAULTS_PAGE.to_owned(),
    };
    let change = async { Ok(endpoint.change(Verb::DELETE, &path, Vec::new()).await?) };
    let ended: Vec<FaultView> = endpoint.parse(&path, &block_on(change)?)?;
    if ended.is_empty() && args.number.is_some() {
        super::output::error("no fault in effect has this number");
        return Err(CommandFailure::Found);
    }
    print(&ended, "No faults were injected.")
}

fn print(faults: &[FaultView], none: &str) -> Result<(), CommandFailure> {
    let now = UnixMicros::now();
    let mut out = io::stdout().lock();
    if faults.is_empty() {
        writeln!(out, "{none}")?;
    }
    for fault in faults {
        writeln!(out, "{}", line(fault, now))?;
    }
    Ok(out.flush()?)
}

/// `3  RunPodSandbox of shop/web is delayed by 3000 ms; 2 calls, ends in 58.0 s`
fn line(fault: &FaultView, now: UnixMicros) -> String {
    let calls = match fault.calls {
        1 => "1 call".to_owned(),
        n => format!("{n} calls"),
    };
    let left = millis(fault.until_unix_us.since(now));
    let rule = fault.rule.to_string();
    let (rule, left) = (visible(&rule), units::duration(left));
    format!("{}  {rule}; {calls}, ends in {left}", fault.number)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ParsedLine {
        #[command(subcommand)]
        command: FaultCommand,
    }

    fn effect(line: &[&str]) -> Option<FaultEffect> {
        let all = ["fault", "add", "--method", "PullImage"];
        let line = all.iter().chain(line);
        match ParsedLine::try_parse_from(line).ok()?.command {
            FaultCommand::Add(add) => Some(add.effect.effect()),
            _ => None,
        }
    }

    #[test]
    fn a_fault_has_one_effect_and_an_end() {
        let of = |line: &[&str]| effect(&[line, &["--for", "60s"]].concat());
        assert_eq!(
            of(&["--delay", "3s"]),
            Some(FaultEffect::Delay { ms: 3000 })
        );
        let unavailable = FaultEffect::Fail {
            code: Code::Unavailable,
        };
        assert_eq!(of(&["--fail", "UNAVAILABLE"]), Some(unavailable));
        assert_eq!(of(&["--hang"]), Some(FaultEffect::Hang));
        for bad in [&[][..], &["--fail", "OK"], &["--hang", "--delay", "1s"]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(effect(&["--hang"]), None, "without an end");
        let named = |name: &str| {
            let line = ["fault", "add", "--method", name, "--hang", "--for", "1s"];
            ParsedLine::try_parse_from(line)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        assert_eq!(named("RunPodSandbox"), Ok(()));
        assert!(named("_OTHER").is_err());
        let suggested = named("RunPodSandbx").expect_err("no method");
        assert!(suggested.contains("'RunPodSandbox'"), "{suggested}");
    }

    #[test]
    fn a_line_says_what_is_injected_and_until_when() {
        let view: FaultView = serde_json::from_str(
            r#"{"number":3,"method":"RunPodSandbox","namespace":"shop","pod":"web","effect":{"delay":{"ms":3000}},
                "for_ms":60000,"until_unix_us":58000000,"calls":1}"#,
        )
        .expect("a view");
        assert_eq!(
            line(&view, UnixMicros::EPOCH),
            "3  RunPodSandbox of shop/web is delayed by 3000 ms; 1 call, ends in 58.0 s"
        );
    }
}
