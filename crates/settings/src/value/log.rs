//! Log levels.

use tracing_subscriber::EnvFilter;

use super::super::suggest::nearest;
use super::{UnparsedValue, ValueError, ValueKind, quoted};

const LEVEL_NAMES: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A filter directive of `tracing-subscriber`.
#[derive(Clone, Copy, Debug)]
pub struct FilterDirective;

impl ValueKind for FilterDirective {
    type Value = String;

    fn words(&self) -> String {
        "a level (\"error\", \"warn\", \"info\", \"debug\", \"off\"), or levels by target such as \"info,criscope::rpc=debug\""
            .to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<String, ValueError> {
        let text = raw.text(self)?;
        compact(text).map_err(|cause| ValueError::Directive {
            text: text.to_owned(),
            cause,
        })
    }

    fn show(&self, value: &String) -> String {
        quoted(value.escape_default())
    }
}

/// The directive without the spaces after commas, which the filter does not accept.
fn compact(text: &str) -> Result<String, String> {
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    for part in &parts {
        bare_word(part)?;
    }
    let compact = parts.join(",");
    EnvFilter::try_new(&compact).map_err(|error| error.to_string())?;
    Ok(compact)
}

/// The filter interprets any other word as a target and enables all of its events: `inof` would mean "everything of the
/// target inof and nothing else". So a single word must be a level here.
fn bare_word(part: &str) -> Result<(), String> {
    if part.is_empty() {
        return Err("it is empty".to_owned());
    }
    if part.contains(['=', '['])
        || LEVEL_NAMES
            .iter()
            .any(|level| part.eq_ignore_ascii_case(level))
    {
        return Ok(());
    }
    Err(match nearest(part, LEVEL_NAMES) {
        Some(level) => format!("did you mean `{level}`?"),
        None => format!("write a level ({}) or target=level", LEVEL_NAMES.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        FilterDirective
            .read(&UnparsedValue::Text(text))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn levels_and_targets_are_taken() {
        for text in [
            "info",
            "DEBUG",
            "off",
            "info,criscope::rpc=debug",
            "info,[call{pod=x}]=debug",
        ] {
            assert_eq!(read(text), Ok(text.to_owned()));
        }
        assert_eq!(read("warn, h2=off"), Ok("warn,h2=off".to_owned()));
    }

    #[test]
    fn a_slip_is_not_a_target() {
        assert_eq!(
            read("inof"),
            Err("\"inof\" is not a log level: did you mean `info`?".to_owned())
        );
        assert_eq!(
            read("info,verbose"),
            Err(
                "\"info,verbose\" is not a log level: write a level (error, warn, info, debug, trace, off) or target=level"
                    .to_owned()
            )
        );
        for text in ["", "info,", "criscope=loud", "a=b=c"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
