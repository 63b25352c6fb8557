//! Converts values: from the syntax of another runtime into that of criscope.

use serde::Deserialize;
use toml::Value;

/// How the value of another runtime becomes one of criscope.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ValueConversion {
    #[default]
    Same,
    Capabilities,
    DecoderProviders,
    Driver,
    Duration,
    Ignored,
    Level,
    Limit,
    Listed,
    Negated,
    Pairs,
    Seccomp,
    Seconds,
    Split,
}

impl ValueConversion {
    /// The value as it is written in criscope's file, or why it cannot be.
    pub(super) fn apply(self, value: &Value) -> Result<String, String> {
        match self {
            Self::Same => Ok(written(value)),
            Self::Capabilities => capabilities(value),
            Self::DecoderProviders => decoder_providers(value),
            Self::Driver => driver(value),
            Self::Duration => duration(value),
            Self::Ignored => ignored(value),
            Self::Level => level(value),
            Self::Limit => limit(value),
            Self::Listed => listed(value),
            Self::Negated => negated(value),
            Self::Pairs => pairs(value),
            Self::Seccomp => seccomp(value),
            Self::Seconds => seconds(value),
            Self::Split => split(value),
        }
    }
}

/// A string as TOML has it: that of JSON, with one more control character to escape.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// A value on one line.
pub(super) fn written(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(on) => on.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(all) => {
            let all: Vec<_> = all.iter().map(written).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Table(table) => {
            let all = table.iter();
            let all = all.map(|(key, value)| format!("{} = {}", quoted(key), written(value)));
            format!("{{{}}}", all.collect::<Vec<_>>().join(", "))
        }
    }
}

fn text_of(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "not a string".to_owned())
}

/// A list of one.
fn listed(value: &Value) -> Result<String, String> {
    Ok(format!("[{}]", quoted(text_of(value)?)))
}

/// The directories of a search list (`a:b`).
fn split(value: &Value) -> Result<String, String> {
    let parts: Vec<_> = text_of(value)?.split(':').map(quoted).collect();
    Ok(format!("[{}]", parts.join(", ")))
}

/// A number of seconds.
fn seconds(value: &Value) -> Result<String, String> {
    match value {
        Value::Integer(number) => Ok(quoted(&format!("{number}s"))),
        Value::String(number) if number.parse::<u64>().is_ok() => Ok(quoted(&format!("{number}s"))),
        _ => duration(value),
    }
}

/// A duration as Go writes it: `1h30m`, `500ms`, `0`.
fn duration(value: &Value) -> Result<String, String> {
    let text = text_of(value)?;
    let mut millis = 0.0;
    let mut left = text;
    while !left.is_empty() && left != "0" {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, rest) = left.split_at(digits.unwrap_or(left.len()));
        let units = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(units);
        let factor = match unit {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1000.0,
            "ms" => 1.0,
            "us" | "µs" => 0.001,
            _ => return Err(format!("{text:?} is not a duration")),
        };
        let number: f64 = number
            .parse()
            .map_err(|_| format!("{text:?} is not a duration"))?;
        millis += number * factor;
        left = rest;
    }
    // Durations are far below the precision of the mantissa.
    #[allow(clippy::cast_possible_truncation)]
    let millis = millis.round() as i64;
    Ok(quoted(&match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }))
}

/// The configuration of key providers, from the environment of a decoder for encrypted layers (imgcrypt's `ctd-decoder`).
fn decoder_providers(value: &Value) -> Result<String, String> {
    const NAME: &str = "OCICRYPT_KEYPROVIDER_CONFIG";
    let list = value.as_array().ok_or("not an array")?;
    let all = list.iter().map(text_of).collect::<Result<Vec<_>, _>>()?;
    let path = all
        .iter()
        .find_map(|text| text.strip_prefix(NAME)?.strip_prefix('='));
    path.map(quoted)
        .ok_or_else(|| format!("there is no {NAME}"))
}

/// Converts `cgroupfs` or `systemd` to the cgroup driver.
fn driver(value: &Value) -> Result<String, String> {
    match value {
        Value::Boolean(true) => Ok(quoted("systemd")),
        Value::Boolean(false) => Ok(quoted("cgroupfs")),
        other => Ok(written(other)),
    }
}

/// The opposite of a switch.
fn negated(value: &Value) -> Result<String, String> {
    let on = value.as_bool().ok_or("not a boolean")?;
    Ok((!on).to_string())
}

/// `-1` or 0 is no limit.
fn limit(value: &Value) -> Result<String, String> {
    let number = value.as_integer().ok_or("not a number")?;
    Ok(number.max(0).to_string())
}

/// `key=value` pairs as a table.
fn pairs(value: &Value) -> Result<String, String> {
    let list = value.as_array().ok_or("not an array")?;
    let mut table = toml::Table::new();
    for pair in list {
        let (key, value) = text_of(pair)?
            .split_once('=')
            .ok_or_else(|| format!("{} is not key=value", written(pair)))?;
        table.insert(key.to_owned(), Value::from(value));
    }
    Ok(written(&Value::Table(table)))
}

/// Capabilities, without CAP_ as CRI-O writes them.
fn capabilities(value: &Value) -> Result<String, String> {
    let list = value.as_array().ok_or("not an array")?;
    let names = list.iter().map(|name| {
        let name = text_of(name)?.to_ascii_uppercase();
        Ok(quoted(name.trim_start_matches("CAP_")))
    });
    Ok(format!(
        "[{}]",
        names.collect::<Result<Vec<_>, String>>()?.join(", ")
    ))
}

/// Log levels: those of logrus beyond criscope's.
fn level(value: &Value) -> Result<String, String> {
    Ok(quoted(match text_of(value)? {
        "fatal" | "panic" | "error" => "error",
        "warn" | "warning" => "warn",
        "debug" => "debug",
        "trace" => "trace",
        _ => "info",
    }))
}

/// Only `ignore` of CRI-O's `image_volumes` has another effect.
fn ignored(value: &Value) -> Result<String, String> {
    Ok((text_of(value)? == "ignore").to_string())
}

/// A seccomp profile for containers that ask for none.
fn seccomp(value: &Value) -> Result<String, String> {
    let text = text_of(value)?;
    Ok(quoted(match text {
        "unconfined" => text,
        "runtime/default" | "docker/default" => "runtime/default",
        path if path.starts_with('/') => return Ok(quoted(&format!("localhost/{path}"))),
        other => other,
    }))
}
