//! Parses the log level: `info`, `warn,criscope::rpc=debug`, and the like.

use std::str::FromStr;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Libraries that log every frame on the request path. Limited to warnings unless the level names them.
const NOISY_LIBRARIES: [&str; 5] = ["h2", "hyper", "tonic", "tower", "opentelemetry"];

/// Target of events that are written at any level: changes of the level itself.
pub const AUDIT_TARGET: &str = "criscope::audit";

/// Targets of the audit trail: mutating calls, sessions, and the configuration. A level set at run time cannot lower
/// their configured level.
const AUDITED_TARGETS: [&str; 3] = [
    "criscope::rpc",
    "criscope::streaming::audit",
    "criscope::reload",
];

/// Builds the filter for a requested level. The audit trail stays at least at its configured level.
pub(super) fn with_audit(requested: &Targets, configured: &Targets) -> Targets {
    let audited = AUDITED_TARGETS.into_iter().filter_map(|target| {
        let floor = level_of(configured, target);
        let raised = floor > level_of(requested, target);
        raised.then_some((target, floor))
    });
    // Directives for descendants of an audited target cannot go below the configured level either.
    let kept: Vec<_> = requested
        .iter()
        .filter(|(name, level)| {
            let mut audited = AUDITED_TARGETS.iter();
            let audited = audited.find(|audited| name.starts_with(**audited));
            audited.is_none_or(|audited| *level >= level_of(configured, audited))
        })
        .map(|(name, level)| (name.to_owned(), level))
        .collect();
    let default = requested.default_level().unwrap_or(LevelFilter::OFF);
    Targets::new()
        .with_default(default)
        .with_targets(kept)
        .with_targets(audited)
        .with_target(AUDIT_TARGET, LevelFilter::INFO)
}

/// Returns the most verbose level enabled for a target.
fn level_of(targets: &Targets, target: &str) -> LevelFilter {
    const LEVELS: [Level; 5] = [
        Level::TRACE,
        Level::DEBUG,
        Level::INFO,
        Level::WARN,
        Level::ERROR,
    ];
    let most = LEVELS
        .into_iter()
        .find(|level| targets.would_enable(target, level));
    most.map_or(LevelFilter::OFF, LevelFilter::from_level)
}

/// An invalid log level.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "log level `{level}`: `{part}` is neither a level (off, error, warn, info, debug, trace) nor TARGET=LEVEL"
)]
pub struct LevelError {
    /// The level as given.
    pub level: String,
    /// The invalid part.
    pub part: String,
}

/// Parses a comma-separated list of `TARGET=LEVEL`, which includes descendants of the target, and at most one default
/// level. Without a default level, only the named targets are logged.
///
/// # Errors
/// If a part is neither a level nor `TARGET=LEVEL`.
pub fn parse(level: &str) -> Result<Targets, LevelError> {
    let mut default = LevelFilter::OFF;
    let mut named = Vec::new();
    for part in level.split(',').map(str::trim) {
        let parsed = match part.split_once('=') {
            Some((target, level)) if is_target(target) => {
                word(level).map(|level| named.push((target, level)))
            }
            Some(_) => None,
            None => word(part).map(|level| default = level),
        };
        if parsed.is_none() {
            return Err(LevelError {
                level: level.to_owned(),
                part: part.to_owned(),
            });
        }
    }
    let quiet = default.min(LevelFilter::WARN);
    let noisy = NOISY_LIBRARIES
        .into_iter()
        .filter(|n| named.iter().all(|(target, _)| target != n));
    let caps: Vec<_> = noisy.map(|n| (n, quiet)).collect();
    Ok(Targets::new()
        .with_default(default)
        .with_targets(caps)
        .with_targets(named))
}

/// Parses a level name. `LevelFilter` itself also accepts numbers and the empty string.
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
    fn the_audit_trail_keeps_its_configured_level() {
        let configured = parse("info").expect("a level");
        let audited = AUDITED_TARGETS.into_iter().chain([AUDIT_TARGET]);
        for asked in [
            "off",
            "error",
            "criscope=off",
            "criscope::streaming=off",
            "info,criscope::rpc=off,criscope::streaming::audit=error",
            "info,criscope::streaming::audit::x=off,criscope::reload=off,criscope::audit=off",
            "info,criscope::au=off,criscope::rpc::x=off",
        ] {
            let filter = with_audit(&parse(asked).expect(asked), &configured);
            for target in audited.clone() {
                assert!(
                    filter.would_enable(target, &Level::INFO),
                    "{asked}: {target}"
                );
                assert!(
                    !filter.would_enable(target, &Level::DEBUG),
                    "{asked}: {target}"
                );
            }
        }
        let loud = with_audit(
            &parse("off,criscope::rpc=debug").expect("a level"),
            &configured,
        );
        assert!(loud.would_enable("criscope::rpc", &Level::DEBUG));
        assert!(!loud.would_enable("criscope::admin", &Level::ERROR));
        // The configuration may silence the audit trail.
        let silent = parse("off").expect("a level");
        let filter = with_audit(&parse("warn").expect("a level"), &silent);
        assert!(!filter.would_enable("criscope::rpc", &Level::INFO));
        assert!(filter.would_enable(AUDIT_TARGET, &Level::INFO));
    }

    #[test]
    fn errors_name_the_invalid_part() {
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
