//! A top-level string of a YAML or JSON document, as in a `KubeletConfiguration`.

use std::ops::Range;

use serde_json::Value;

use super::TextEditError;

/// The value of a top-level key; `None` if it is absent or empty.
pub(crate) fn get(text: &str, key: &str) -> Result<Option<String>, TextEditError> {
    let value = parse(text)?;
    let found = value.get(key).and_then(Value::as_str);
    Ok(found.filter(|found| !found.is_empty()).map(str::to_owned))
}

/// The text with a top-level key set.
///
/// # Errors
/// If it cannot be parsed, or the edit would change anything else.
pub(crate) fn set(text: &str, key: &str, value: &str) -> Result<String, TextEditError> {
    let mut expected = parse(text)?;
    let edited = if json(text) {
        set_json(text, key, value)
    } else {
        Some(set_yaml(text, key, value))
    };
    if expected.is_null() {
        expected = Value::Object(serde_json::Map::new());
    }
    if let Some(fields) = expected.as_object_mut() {
        fields.insert(key.to_owned(), Value::from(value));
        if let Some(edited) = edited
            && parse(&edited).is_ok_and(|result| result == expected)
        {
            return Ok(edited);
        }
    }
    Err(TextEditError::Refused(key.to_owned()))
}

fn json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

fn parse(text: &str) -> Result<Value, TextEditError> {
    let mut lines = text.lines().map(str::trim);
    if lines.all(|line| line.is_empty() || line.starts_with('#') || line == "---") {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(text).map_err(|error| TextEditError::Unreadable(first_line(&error)))
}

/// Later lines of the parser's errors quote the file.
fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

fn set_yaml(text: &str, key: &str, value: &str) -> String {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(span) = value_of(line, key) {
            let replace = at + span.start..at + span.end;
            let space = if line[..span.start].ends_with(':') {
                " "
            } else {
                ""
            };
            return replaced(text, replace, &format!("{space}{value}"));
        }
        at += line.len();
    }
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        end
    };
    format!("{text}{gap}{key}: {value}{end}")
}

/// The span of the value in a line `key: value # comment`, without quotes.
fn value_of(line: &str, key: &str) -> Option<Range<usize>> {
    let names = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
    let name = names.iter().find(|name| line.starts_with(name.as_str()))?;
    let rest = line[name.len()..].trim_start_matches(' ');
    let rest = rest.strip_prefix(':')?;
    if !rest.is_empty() && !rest.starts_with([' ', '\t', '\r', '\n']) {
        return None;
    }
    let value = rest.trim_start_matches([' ', '\t']);
    let start = line.len() - value.len();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    if let Some(quote) = quote {
        let length = value[1..].find(quote)?;
        return Some(start + 1..start + 1 + length);
    }
    let plain = value.split(" #").next().unwrap_or_default();
    let plain = if plain.starts_with('#') {
        ""
    } else {
        plain.trim_end()
    };
    // `null` and `~` are values too, and are replaced.
    if plain.is_empty() {
        let colon = line.len() - rest.len();
        return Some(colon..colon);
    }
    Some(start..start + plain.len())
}

fn set_json(text: &str, key: &str, value: &str) -> Option<String> {
    let quoted = Value::from(value).to_string();
    if let Some(span) = json_value(text, key) {
        return Some(replaced(text, span, &quoted));
    }
    let open = text.find('{')? + 1;
    let rest = &text[open..];
    let space = &rest[..rest.len() - rest.trim_start().len()];
    let comma = if rest.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    let name = Value::from(key).to_string();
    let field = format!("{space}{name}: {quoted}{comma}");
    Some(replaced(text, open..open, &field))
}

/// The span of the value of a key of the outermost object, if it is a string or null.
fn json_value(text: &str, key: &str) -> Option<Range<usize>> {
    let name = Value::from(key).to_string();
    let (mut depth, mut at) = (0_u32, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = string_end(text, at)?;
                let after = text.get(end..)?.trim_start();
                if depth == 1 && text.get(at..end) == Some(&name) && after.starts_with(':') {
                    let value = after[1..].trim_start();
                    let start = text.len() - value.len();
                    let end = if value.starts_with('"') {
                        string_end(text, start)?
                    } else {
                        start + value.strip_prefix("null").map(|_| 4)?
                    };
                    return Some(start..end);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The end of the JSON string that begins at `start`.
fn string_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn replaced(text: &str, span: Range<usize>, with: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(span, with);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "containerRuntimeEndpoint";
    const NEW: &str = "unix:///run/criscope/criscope.sock";

    fn changed(text: &str, expected: &str) {
        let result = set(text, KEY, NEW).expect(text);
        assert_eq!(result, expected.replace("NEW", NEW));
        assert_eq!(get(&result, KEY).expect("parsed").as_deref(), Some(NEW));
        assert_eq!(set(&result, KEY, NEW).as_deref(), Ok(result.as_str()));
    }

    #[test]
    fn only_the_value_of_a_yaml_line_changes() {
        changed(
            "# first\nkind: A # b\ncontainerRuntimeEndpoint:   \"unix:///a\"   # why\nz: [1, 2]\n",
            "# first\nkind: A # b\ncontainerRuntimeEndpoint:   \"NEW\"   # why\nz: [1, 2]\n",
        );
        changed(
            "---\n'containerRuntimeEndpoint' : unix:///a\r\nb: |\n  containerRuntimeEndpoint: x\n",
            "---\n'containerRuntimeEndpoint' : NEW\r\nb: |\n  containerRuntimeEndpoint: x\n",
        );
        changed(
            "containerRuntimeEndpoint: \"\"\na: 1",
            "containerRuntimeEndpoint: \"NEW\"\na: 1",
        );
        changed(
            "containerRuntimeEndpoint:\na: 1\n",
            "containerRuntimeEndpoint: NEW\na: 1\n",
        );
        changed(
            "containerRuntimeEndpoint: # none\na: 1\n",
            "containerRuntimeEndpoint: NEW # none\na: 1\n",
        );
        changed(
            "containerRuntimeEndpoint: null\n",
            "containerRuntimeEndpoint: NEW\n",
        );
    }

    #[test]
    fn an_absent_key_is_added_at_the_end() {
        changed(
            "a:\n  containerRuntimeEndpoint: x\n",
            "a:\n  containerRuntimeEndpoint: x\ncontainerRuntimeEndpoint: NEW\n",
        );
        changed("a: 1", "a: 1\ncontainerRuntimeEndpoint: NEW\n");
        changed("a: 1\r\n", "a: 1\r\ncontainerRuntimeEndpoint: NEW\r\n");
        changed("# empty\n", "# empty\ncontainerRuntimeEndpoint: NEW\n");
    }

    #[test]
    fn nested_fields_are_not_the_value() {
        for text in [
            "a:\n  containerRuntimeEndpoint: unix:///x\ncontainerRuntimeEndpointOld: y\n",
            "containerRuntimeEndpoint: \"\"\n",
        ] {
            assert_eq!(get(text, KEY), Ok(None), "{text}");
        }
        assert!(get("{ not json", KEY).is_err());
    }

    #[test]
    fn json_keeps_its_layout() {
        changed(
            "{\n  \"a\": {\"containerRuntimeEndpoint\": \"x\"},\n  \"containerRuntimeEndpoint\" : \"unix:///a\"\n}",
            "{\n  \"a\": {\"containerRuntimeEndpoint\": \"x\"},\n  \"containerRuntimeEndpoint\" : \"NEW\"\n}",
        );
        changed(
            "{\n\t\"a\": \"}\\\"\"\n}\n",
            "{\n\t\"containerRuntimeEndpoint\": \"NEW\",\n\t\"a\": \"}\\\"\"\n}\n",
        );
        changed("{}", "{\"containerRuntimeEndpoint\": \"NEW\"}");
    }

    #[test]
    fn what_would_change_more_is_refused() {
        for text in [
            "a: &x unix:///a\ncontainerRuntimeEndpoint: &y unix:///b\nc: *y\n",
            "containerRuntimeEndpoint: >-\n  unix:///a\n",
            "{containerRuntimeEndpoint: unix:///a}",
            "- a\n",
        ] {
            assert!(
                matches!(set(text, KEY, NEW), Err(TextEditError::Refused(_))),
                "{text}"
            );
        }
        for text in ["a: [", "a: 1\n---\nb: 2\n"] {
            assert!(
                matches!(set(text, KEY, NEW), Err(TextEditError::Unreadable(_))),
                "{text}"
            );
        }
    }
}
