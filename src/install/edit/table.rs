//! A string in a table of a TOML file, as `address` in containerd's `[grpc]`.

use toml::{Table, Value};

use super::TextEditError;

/// The string at `[table] key`.
pub(crate) fn get(text: &str, table: &str, key: &str) -> Result<Option<String>, TextEditError> {
    let parsed = parse(text)?;
    let found = parsed.get(table).and_then(|table| table.get(key));
    Ok(found.and_then(Value::as_str).map(str::to_owned))
}

/// The integer at the top level, as containerd's `version`.
pub(crate) fn integer(text: &str, key: &str) -> Result<Option<i64>, TextEditError> {
    Ok(parse(text)?.get(key).and_then(Value::as_integer))
}

/// The text with `[table] key` set to a string.
///
/// # Errors
/// If it cannot be parsed, or the edit would change anything else.
pub(crate) fn set(
    text: &str,
    table: &str,
    key: &str,
    value: &str,
) -> Result<String, TextEditError> {
    let mut expected = parse(text)?;
    let entry = expected
        .entry(table)
        .or_insert_with(|| Value::Table(Table::new()));
    if let Some(fields) = entry.as_table_mut() {
        fields.insert(key.to_owned(), Value::from(value));
        let quoted = serde_json::Value::from(value).to_string();
        let edited = edit(text, table, key, &quoted);
        if parse(&edited).is_ok_and(|result| result == expected) {
            return Ok(edited);
        }
    }
    Err(TextEditError::Refused(format!("{table}.{key}")))
}

fn parse(text: &str) -> Result<Table, TextEditError> {
    text.parse()
        .map_err(|error: toml::de::Error| TextEditError::Unreadable(error.message().to_owned()))
}

fn edit(text: &str, table: &str, key: &str, value: &str) -> String {
    let (mut at, mut inside, mut header) = (0, false, None);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        at += line.len();
        if trimmed.starts_with('[') {
            let name = trimmed.split('#').next().unwrap_or_default().trim();
            inside = name == format!("[{table}]");
            if inside {
                header = Some(at);
            }
        } else if inside
            && let Some(rest) = trimmed.strip_prefix(key)
            && rest.trim_start().starts_with('=')
        {
            let start = at - line.len() + line.find('=').unwrap_or_default() + 1;
            let old = &text[start..at];
            let old = &old[..length_of_value(old)];
            let mut edited = text.to_owned();
            edited.replace_range(start..start + old.len(), &format!(" {value}"));
            return edited;
        }
    }
    let gap = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    match header {
        Some(at) => format!("{}{gap}{key} = {value}\n{}", &text[..at], &text[at..]),
        None => format!("{text}{gap}\n[{table}]\n{key} = {value}\n"),
    }
}

/// The length of ` "value"` before a comment and the end of the line.
fn length_of_value(text: &str) -> usize {
    let start = text.len() - text.trim_start_matches([' ', '\t']).len();
    let value = &text[start..];
    match value.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        Some(quote) => value[1..]
            .find(quote)
            .map_or(text.len(), |end| start + end + 2),
        None => start + value.find(['#', '\r', '\n']).unwrap_or(value.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_replaced_or_added_in_its_table() {
        for (text, expected) in [
            (
                "version = 2\n[grpc]\n  address = \"/a\" # b\n  uid = 0\n",
                "version = 2\n[grpc]\n  address = \"/n\" # b\n  uid = 0\n",
            ),
            (
                "[grpc] # g\nuid = 0\n[ttrpc]\naddress = \"/t\"\n",
                "[grpc] # g\naddress = \"/n\"\nuid = 0\n[ttrpc]\naddress = \"/t\"\n",
            ),
            ("version = 3", "version = 3\n\n[grpc]\naddress = \"/n\"\n"),
            ("[grpc]\naddress=''\n", "[grpc]\naddress= \"/n\"\n"),
        ] {
            assert_eq!(set(text, "grpc", "address", "/n").as_deref(), Ok(expected));
            assert_eq!(get(expected, "grpc", "address"), Ok(Some("/n".to_owned())));
        }
    }

    #[test]
    fn other_ways_to_write_it_are_refused() {
        for text in [
            "grpc.address = \"/a\"\n",
            "grpc = { address = \"/a\" }\n",
            "grpc = 1\n",
        ] {
            let result = set(text, "grpc", "address", "/n");
            assert!(
                matches!(result, Err(TextEditError::Refused(_))),
                "{text}: {result:?}"
            );
        }
        assert!(matches!(
            get("a = ", "b", "c"),
            Err(TextEditError::Unreadable(_))
        ));
        assert_eq!(integer("version = 3\n", "version"), Ok(Some(3)));
    }
}
