//! The subset of Go templates used by containerd's network templates: `{{.Field}}`, `{{range .List}}` and `{{range $i, $x
//! := .List}}` with `{{.}}`, `{{$x}}` and `{{if $i}}` in it, and `{{end}}`. Anything else is an error that names it: a
//! partially filled template would only be noticed when pods fail.

use std::collections::BTreeMap;

/// The values of a template's fields.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) texts: BTreeMap<&'static str, String>,
    pub(crate) lists: BTreeMap<&'static str, Vec<String>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Action(String),
}

/// Maximum nesting of ranges and conditions.
const MAX_NESTED: usize = 8;
/// Maximum size of the output, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// The action that ends a list of nodes.
const END: &str = "end";

#[derive(Debug)]
enum Node {
    Text(String),
    Value(String),
    Range {
        list: String,
        index: Option<String>,
        item: Option<String>,
        body: Vec<Node>,
    },
    If {
        condition: String,
        body: Vec<Node>,
    },
}

/// The variables of a range, those of outer ranges first.
type Scope = Vec<(String, Variable)>;

#[derive(Clone, Debug)]
enum Variable {
    Number(usize),
    Text(String),
}

/// Fills in a template. The error names the unsupported part.
pub(crate) fn fill(template: &str, values: &Values) -> Result<String, String> {
    let mut tokens = tokens(template)?.into_iter();
    let (nodes, ended) = nodes(&mut tokens, 0)?;
    if ended {
        return Err("{{end}} ends nothing".to_owned());
    }
    let mut text = String::new();
    write(&nodes, values, &mut Vec::new(), &mut text)?;
    Ok(text)
}

/// Splits at `{{` and `}}`; `{{-` and `-}}` trim white space before and after.
fn tokens(template: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let (mut rest, mut trim) = (template, false);
    loop {
        let start = rest.find("{{");
        let mut text = &rest[..start.unwrap_or(rest.len())];
        if trim {
            text = text.trim_start();
        }
        let Some(start) = start else {
            all.push(Token::Text(text.to_owned()));
            return Ok(all);
        };
        let after = &rest[start + 2..];
        let end = after.find("}}").ok_or_else(|| "{{ without }}".to_owned())?;
        let mut action = &after[..end];
        if let Some(inner) = action.strip_prefix("- ") {
            (action, text) = (inner, text.trim_end());
        }
        trim = action.ends_with(" -");
        action = action.strip_suffix(" -").unwrap_or(action).trim();
        all.push(Token::Text(text.to_owned()));
        if !action.starts_with("/*") {
            all.push(Token::Action(action.to_owned()));
        }
        rest = &after[end + 2..];
    }
}

/// Parses up to the `end` of this list, or the end of the template.
fn nodes(
    tokens: &mut impl Iterator<Item = Token>,
    depth: usize,
) -> Result<(Vec<Node>, bool), String> {
    if depth > MAX_NESTED {
        return Err(format!(
            "more than {MAX_NESTED} lists and conditions in each other"
        ));
    }
    let mut all = Vec::new();
    while let Some(token) = tokens.next() {
        let action = match token {
            Token::Text(text) => {
                all.push(Node::Text(text));
                continue;
            }
            Token::Action(action) if action == END => return Ok((all, true)),
            Token::Action(action) => action,
        };
        let (verb, rest) = action.split_once(' ').unwrap_or((action.as_str(), ""));
        if !["range", "if"].contains(&verb) {
            all.push(Node::Value(action));
            continue;
        }
        let (body, ended) = nodes(tokens, depth + 1)?;
        if !ended {
            return Err(format!("{{{{{action}}}}} without {{{{end}}}}"));
        }
        all.push(match verb {
            "range" => range(rest.trim(), body),
            _ => Node::If {
                condition: rest.trim().to_owned(),
                body,
            },
        });
    }
    Ok((all, false))
}

/// Parses `.List`, `$item := .List` or `$index, $item := .List`.
fn range(text: &str, body: Vec<Node>) -> Node {
    let (names, list) = match text.split_once(":=") {
        Some((names, list)) => (names.trim(), list.trim()),
        None => ("", text),
    };
    let (index, item) = match names.split_once(',') {
        Some((index, item)) => (Some(index.trim()), Some(item.trim())),
        None => (None, Some(names).filter(|name| !name.is_empty())),
    };
    Node::Range {
        list: list.to_owned(),
        index: index.map(str::to_owned),
        item: item.map(str::to_owned),
        body,
    }
}

fn write(
    nodes: &[Node],
    values: &Values,
    scope: &mut Scope,
    out: &mut String,
) -> Result<(), String> {
    for node in nodes {
        if out.len() > MAX_TEXT {
            return Err(format!("it makes more than {MAX_TEXT} bytes"));
        }
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Value(name) => match value(name, values, scope)? {
                Variable::Text(text) => out.push_str(&text),
                Variable::Number(number) => out.push_str(&number.to_string()),
            },
            Node::If { condition, body } => {
                let is_set = match value(condition, values, scope)? {
                    Variable::Text(text) => !text.is_empty(),
                    Variable::Number(number) => number != 0,
                };
                if is_set {
                    write(body, values, scope, out)?;
                }
            }
            Node::Range {
                list,
                index,
                item,
                body,
            } => {
                let name = list.strip_prefix('.').unwrap_or(list);
                let items = values.lists.get(name);
                let items = items.ok_or_else(|| format!("{list} is not a list"))?;
                for (number, text) in items.iter().enumerate() {
                    let outer = scope.len();
                    let text = Variable::Text(text.clone());
                    scope.push((".".to_owned(), text.clone()));
                    scope.extend(index.clone().map(|name| (name, Variable::Number(number))));
                    scope.extend(item.clone().map(|name| (name, text)));
                    write(body, values, scope, out)?;
                    scope.truncate(outer);
                }
            }
        }
    }
    Ok(())
}

fn value(name: &str, values: &Values, scope: &Scope) -> Result<Variable, String> {
    let inner = scope.iter().rev().find(|(known, _)| known == name);
    if let Some((_, value)) = inner {
        return Ok(value.clone());
    }
    let field = name
        .strip_prefix('.')
        .and_then(|name| values.texts.get(name));
    let field = field.ok_or_else(|| format!("{{{{{name}}}}} is not understood"))?;
    Ok(Variable::Text(field.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values {
            texts: BTreeMap::from([("PodCIDR", "10.1.0.0/24".to_owned())]),
            lists: BTreeMap::from([
                (
                    "PodCIDRRanges",
                    vec!["10.1.0.0/24".into(), "fd00::/64".into()],
                ),
                ("Routes", vec!["0.0.0.0/0".to_owned()]),
            ]),
        }
    }

    #[test]
    fn templates_for_containerd_are_supported() {
        for (template, expected) in [
            (
                r#"{"subnet":"{{.PodCIDR}}"}"#,
                r#"{"subnet":"10.1.0.0/24"}"#,
            ),
            (
                r#"[{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}]"#,
                r#"[[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]"#,
            ),
            ("{{range .Routes}}{{.}};{{end}}", "0.0.0.0/0;"),
            ("{{range $r := .Routes}}{{ $r }}{{end}}", "0.0.0.0/0"),
            (
                "a \n {{- /* why */ -}}  {{ .PodCIDR -}} \n b",
                "a10.1.0.0/24b",
            ),
            ("{{if .PodCIDR}}yes{{end}}", "yes"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(
                fill(template, &values()).as_deref(),
                Ok(expected),
                "{template}"
            );
        }
    }

    #[test]
    fn unsupported_actions_are_named() {
        for (template, expected) in [
            ("{{.Node}}", "{{.Node}} is not understood"),
            ("{{len .Routes}}", "{{len .Routes}} is not understood"),
            (
                "{{if .PodCIDR}}a{{else}}b{{end}}",
                "{{else}} is not understood",
            ),
            ("{{range .Nothing}}{{end}}", ".Nothing is not a list"),
            ("{{range .Routes}}", "{{range .Routes}} without {{end}}"),
            ("{{end}}", "{{end}} ends nothing"),
            ("{{.PodCIDR", "{{ without }}"),
        ] {
            assert_eq!(
                fill(template, &values()),
                Err(expected.to_owned()),
                "{template}"
            );
        }
    }
}
