//! Converts values: from the syntax of another runtime into that of criscope.

use toml::Value;

/// The value as it is written in criscope's file, or why it cannot be.
pub(super) type ValueConversion = fn(&Value) -> Result<String, String>;

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

/// Keeps the value.
pub(super) fn same(value: &Value) -> Result<String, String> {
    Ok(written(value))
}

/// A list of one.
pub(super) fn listed(value: &Value) -> Result<String, String> {
    Ok(format!("[{}]", quoted(text_of(value)?)))
}

/// The directories of a search list (`a:b`).
pub(super) fn split(value: &Value) -> Result<String, String> {
    let parts: Vec<_> = text_of(value)?.split(':').map(quoted).collect();
    Ok(format!("[{}]", parts.join(", ")))
}

/// A number of seconds.
pub(super) fn seconds(value: &Value) -> Result<String, String> {
    match value {
        Value::Integer(number) => Ok(quoted(&format!("{number}s"))),
        Value::String(number) if number.parse::<u64>().is_ok() => Ok(quoted(&format!("{number}s"))),
        _ => duration(value),
    }
}

/// A duration as Go writes it: `1h30m`, `500ms`, `0`.
pub(super) fn duration(value: &Value) -> Result<String, String> {
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
pub(super) fn decoder_providers(value: &Value) -> Result<String, String> {
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
pub(super) fn driver(value: &Value) -> Result<String, String> {
    match value {
        Value::Boolean(true) => Ok(quoted("systemd")),
        Value::Boolean(false) => Ok(quoted("cgroupfs")),
        other => same(other),
    }
}

/// The opposite of a switch.
pub(super) fn negated(value: &Value) -> Result<String, String> {
    let on = value.as_bool().ok_or("not a boolean")?;
    Ok((!on).to_string())
}

/// `-1` or 0 is no limit.
pub(super) fn limit(value: &Value) -> Result<String, String> {
    let number = value.as_integer().ok_or("not a number")?;
    Ok(number.max(0).to_string())
}

/// `key=value` pairs as a table.
pub(super) fn pairs(value: &Value) -> Result<String, String> {
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
pub(super) fn capabilities(value: &Value) -> Result<String, String> {
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
pub(super) fn level(value: &Value) -> Result<String, String> {
    Ok(quoted(match text_of(value)? {
        "fatal" | "panic" | "error" => "error",
        "warn" | "warning" => "warn",
        "debug" => "debug",
        "trace" => "trace",
        _ => "info",
    }))
}

/// Only `ignore` of CRI-O's `image_volumes` has another effect.
pub(super) fn ignored(value: &Value) -> Result<String, String> {
    Ok((text_of(value)? == "ignore").to_string())
}

/// A seccomp profile for containers that ask for none.
pub(super) fn seccomp(value: &Value) -> Result<String, String> {
    let text = text_of(value)?;
    Ok(quoted(match text {
        "unconfined" => text,
        "runtime/default" | "docker/default" => "runtime/default",
        path if path.starts_with('/') => return Ok(quoted(&format!("localhost/{path}"))),
        other => other,
    }))
}
