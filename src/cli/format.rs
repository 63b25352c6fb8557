//! `-o json` and `-o yaml`.

use std::io::{self, Write};

use serde::Serialize;

/// A format for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OutputFormat {
    Json,
    Yaml,
}

/// Prints a value.
///
/// # Errors
/// If writing fails.
pub(super) fn print(format: OutputFormat, value: &impl Serialize) -> io::Result<()> {
    let text = text(format, value)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    out.flush()
}

fn text(format: OutputFormat, value: &impl Serialize) -> io::Result<String> {
    match format {
        OutputFormat::Json => Ok(serde_json::to_string_pretty(value)?),
        OutputFormat::Yaml => serde_saphyr::to_string(value).map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;
    use crate::lifecycle::view::PodStory;

    #[test]
    fn both_read_back_as_they_were() {
        for episode in examples::all() {
            let story = examples::story(episode);
            let json = text(OutputFormat::Json, &story).expect("json");
            assert_eq!(
                serde_json::from_str::<PodStory>(&json).expect("read"),
                story
            );
            let yaml = text(OutputFormat::Yaml, &story).expect("yaml");
            assert_eq!(
                serde_saphyr::from_str::<PodStory>(&yaml).expect("read"),
                story
            );
            let bad = |c: char| c.is_control() && c != '\n';
            assert!(!yaml.contains(bad) && !json.contains(bad), "{yaml}");
        }
    }
}
