//! The settings in effect: `/debug/config`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Sources;
use super::calls::Format;
use super::page::{Escaped, page_at};
use crate::settings::{InEffect, fingerprint};

/// `/debug/config?format=json`
#[derive(Debug, Serialize)]
struct Settings {
    /// As `criscope_config_hash_info` has it.
    fingerprint: String,
    /// The log filter of now; it can be changed at `/debug/log-level`.
    log_level_now: String,
    /// By key path, each as it would be written in the file.
    settings: BTreeMap<String, Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    value: String,
    /// `live` if a reload changes it, else `restart`.
    takes_effect: &'static str,
}

/// `/debug/config`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let settings = shown(&sources.config.load(), sources.log.level());
    match format.is_json() {
        true => Json(settings).into_response(),
        false => page_at("/debug/config", "Settings in effect", &html(&settings)).into_response(),
    }
}

fn shown(config: &InEffect, log_level_now: String) -> Settings {
    let settings = config.iter().map(|(path, setting)| {
        let shown = Shown {
            value: without_user(&setting.value).into_owned(),
            takes_effect: if setting.live { "live" } else { "restart" },
        };
        (path.clone(), shown)
    });
    Settings {
        fingerprint: fingerprint(config),
        log_level_now,
        settings: settings.collect(),
    }
}

/// A value without user and password in its URLs. No setting may have them today; one that may some day is safe.
fn without_user(value: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(value);
    let mut from = 0;
    while let Some(scheme) = shown[from..].find("://") {
        let start = from + scheme + 3;
        let rest = &shown[start..];
        let ends = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | ',') || c.is_whitespace();
        let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
        if let Some(at) = authority.rfind('@') {
            shown.to_mut().replace_range(start..start + at, "...");
        }
        from = start;
    }
    shown
}

fn html(settings: &Settings) -> String {
    let mut html = format!(
        "<p>Fingerprint <code>{}</code>. The log filter is <code>{}</code> now.</p>\n<table><thead><tr><th scope=\"col\">key</th>\
         <th scope=\"col\">value</th><th scope=\"col\">a change takes effect</th></tr></thead><tbody>\n",
        Escaped(&settings.fingerprint),
        Escaped(&settings.log_level_now),
    );
    for (
        path,
        Shown {
            value,
            takes_effect,
        },
    ) in &settings.settings
    {
        let when = match *takes_effect {
            "live" => "on SIGHUP",
            _ => "with a restart",
        };
        // Writing to a String does not fail.
        let _ = writeln!(
            html,
            "<tr><td><code>{}</code></td><td><code>{}</code></td><td>{when}</td></tr>",
            Escaped(path),
            Escaped(value),
        );
    }
    html.push_str("</tbody></table>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn users_and_passwords_of_urls_are_not_shown() {
        for (value, shown) in [
            (
                "\"http://me:hunter2@host:4317\"",
                "\"http://...@host:4317\"",
            ),
            ("http://a@b@host/p@th?q=x@y", "http://...@host/p@th?q=x@y"),
            (
                "[\"x://u:p@h\", \"y://q@i\"]",
                "[\"x://...@h\", \"y://...@i\"]",
            ),
            ("\"unix:///run/a@b.sock\"", "\"unix:///run/a@b.sock\""),
            ("http://é:ß@host", "http://...@host"),
            ("://", "://"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_user(value), shown);
        }
    }

    #[test]
    fn every_setting_is_there() {
        let config = Config::with_upstream("/run/containerd/containerd.sock".into());
        let settings = shown(&config.settings(), "info".to_owned());
        assert_eq!(settings.settings.len(), config.settings().len());
        assert_eq!(
            settings.settings["telemetry.log.level"].takes_effect,
            "live"
        );
        let html = html(&settings);
        assert!(
            html.contains("unix:///run/containerd/containerd.sock"),
            "{html}"
        );
    }
}
