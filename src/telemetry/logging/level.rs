//! The log level: `info`, `warn,criscope::rpc=debug`, and the like.

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Libraries on the request path that say something for every frame. They are heard from warnings on, unless named.
const NOISY: [&str; 5] = ["h2", "hyper", "tonic", "tower", "opentelemetry"];

/// A log level that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "log level `{level}`: `{part}` is neither a level (off, error, warn, info, debug, trace) nor TARGET=LEVEL"
)]
pub struct LevelError {
    /// The whole text.
    pub level: String,
    /// The part that is wrong.
    pub part: String,
}

/// Reads a list, separated by commas, of at most one level for everything and of `TARGET=LEVEL` for targets and what
/// is below them. Without a level for everything, only the named targets are heard.
///
/// # Errors
/// If a part is neither.
pub fn parse(level: &str) -> Result<Targets, LevelError> {
    let mut default = LevelFilter::OFF;
    let mut named = Vec::new();
    for part in level.split(',').map(str::trim) {
        let error = || LevelError {
            level: level.to_owned(),
            part: part.to_owned(),
        };
        match part.split_once('=') {
            Some((target, level)) if is_target(target) => {
                named.push((target, word(level).ok_or_else(error)?));
            }
            Some(_) => return Err(error()),
            None => default = word(part).ok_or_else(error)?,
        }
    }
    let quiet = default.min(LevelFilter::WARN);
    let noisy = NOISY
        .into_iter()
        .filter(|n| named.iter().all(|(target, _)| target != n));
    let caps: Vec<_> = noisy.map(|n| (n, quiet)).collect();
    Ok(Targets::new()
        .with_default(default)
        .with_targets(caps)
        .with_targets(named))
}

/// `LevelFilter` itself takes numbers and the empty string too.
fn word(level: &str) -> Option<LevelFilter> {
    if level.is_empty() || !level.bytes().all(|b| b.is_ascii_alphabetic()) {
        return None;
    }
    LevelFilter::from_str(level).ok()
}

fn is_target(target: &str) -> bool {
    !target.is_empty()
        && target
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_:-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_are_quiet_unless_named() {
        let table = [
            ("info", "criscope::rpc", Level::INFO, true),
            ("info", "criscope::rpc", Level::DEBUG, false),
            ("debug", "h2::proto::connection", Level::DEBUG, false),
            ("debug", "hyper_util::client", Level::INFO, false),
            ("debug", "tower::buffer", Level::WARN, true),
            ("error", "tonic::transport", Level::WARN, false),
            ("off", "h2", Level::ERROR, false),
            ("info,h2=debug", "h2::codec", Level::DEBUG, true),
            ("info,h2::codec=debug", "h2::codec", Level::DEBUG, true),
            ("info,h2::codec=debug", "h2::proto", Level::INFO, false),
            (
                "warn, criscope::rpc=debug",
                "criscope::rpc",
                Level::DEBUG,
                true,
            ),
            (
                "warn, criscope::rpc=debug",
                "criscope::admin",
                Level::INFO,
                false,
            ),
            ("criscope=info", "other", Level::ERROR, false),
            ("INFO", "criscope", Level::INFO, true),
        ];
        for (text, target, level, heard) in table {
            let filter = parse(text).expect(text);
            assert_eq!(
                filter.would_enable(target, &level),
                heard,
                "{text}: {target} {level}"
            );
        }
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, part) in [
            ("", ""),
            ("inof", "inof"),
            ("3", "3"),
            ("info,", ""),
            ("info,criscope=", "criscope="),
            ("info,=debug", "=debug"),
            ("info,criscope=verbose", "criscope=verbose"),
            ("info,criscope[span]=debug", "criscope[span]=debug"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.part, part, "{text}");
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("log level `{text}`: "))
            );
        }
    }
}
