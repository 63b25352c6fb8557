//! `-o json` and `-o yaml`.

mod times;

use std::io::{self, Write};

use serde::Serialize;

use self::times::OrderedValue;

/// A format for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// JSON with indentation.
    Json,
    /// YAML.
    Yaml,
}

/// Prints a value, with its times in words too.
///
/// # Errors
/// If writing fails.
pub fn print(format: OutputFormat, value: &impl Serialize) -> io::Result<()> {
    let text = text(format, value)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    out.flush()
}

/// Writes a JSON response unchanged.
///
/// # Errors
/// If writing fails.
pub fn print_json(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn text(format: OutputFormat, value: &impl Serialize) -> io::Result<String> {
    let value = OrderedValue::new(value)?.with_times();
    match format {
        OutputFormat::Json => Ok(serde_json::to_string_pretty(&value)?),
        OutputFormat::Yaml => serde_saphyr::to_string(&value).map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;
    use crate::view::PodStory;

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
            assert!(json.contains("\n  \"now_time\": \"20"), "{json}");
            assert!(yaml.contains("\nnow_time: "), "{yaml}");
            let bad = |c: char| c.is_control() && c != '\n';
            assert!(!yaml.contains(bad) && !json.contains(bad), "{yaml}");
        }
    }
}
