//! The settings in effect: `/debug/config`.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Serialize;

use super::PageSources;
use super::table::{table, text};
use super::verdict::Verdict;
use crate::settings::{EffectiveSettings, fingerprint, without_user};

/// `/debug/config?format=json`
#[derive(Debug, Serialize)]
pub(super) struct SettingsInEffect {
    /// The label of `criscope_config_hash_info`.
    fingerprint: String,
    /// The current log filter, which can be changed at `/debug/log-level`.
    log_level_now: String,
    /// By key path, in the syntax of the file.
    settings: BTreeMap<String, RenderedSetting>,
}

#[derive(Debug, Serialize)]
struct RenderedSetting {
    value: String,
    /// `live` if a reload applies it, else `restart`.
    takes_effect: &'static str,
}

/// The settings in effect.
pub(super) fn settings(sources: &PageSources) -> SettingsInEffect {
    shown(&sources.config.load(), sources.log.level())
}

fn shown(config: &EffectiveSettings, log_level_now: String) -> SettingsInEffect {
    let settings = config.iter().map(|(path, setting)| {
        let shown = RenderedSetting {
            value: without_user(&setting.value).into_owned(),
            takes_effect: if setting.live { "live" } else { "restart" },
        };
        (path.clone(), shown)
    });
    SettingsInEffect {
        fingerprint: fingerprint(config),
        log_level_now,
        settings: settings.collect(),
    }
}

/// `/debug/config`
pub(super) fn html(settings: &SettingsInEffect) -> (Verdict, Markup) {
    let restart = settings.settings.values();
    let restart = restart.filter(|setting| setting.takes_effect == "restart");
    let verdict = Verdict::good(format!(
        "{} settings are in effect; a change of {} of them needs a restart.",
        settings.settings.len(),
        restart.count()
    ));
    let columns = html! { (text("key")) (text("value")) (text("a change takes effect")) };
    let rows = html! {
        @for (path, setting) in &settings.settings {
            tr {
                td { code { (path) } }
                td { code { (setting.value) } }
                td { (if setting.takes_effect == "live" { "on SIGHUP" } else { "with a restart" }) }
            }
        }
    };
    let body = html! {
        p {
            "Fingerprint " code { (settings.fingerprint) } ". Current log filter: " code { (settings.log_level_now) } "."
        }
        (table(&columns, &rows))
    };
    (verdict, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_setting_is_there() {
        let config = Config::with_upstream("/run/containerd/containerd.sock".into());
        let settings = shown(&config.settings(), "info".to_owned());
        assert_eq!(settings.settings.len(), config.settings().len());
        assert_eq!(
            settings.settings["telemetry.log.level"].takes_effect,
            "live"
        );
        let html = html(&settings).1.into_string();
        assert!(
            html.contains("unix:///run/containerd/containerd.sock"),
            "{html}"
        );
    }
}
