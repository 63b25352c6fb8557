//! Reads the command of a systemd unit from its fragments, environment and environment files (systemd.service(5), systemd.exec(5)), with the
//! place of every setting, so that the right one can be changed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::root::FilesystemRoot;

/// The command of a unit, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitCommand {
    /// The words, variables replaced.
    pub(super) words: Vec<CommandWord>,
    /// The value of the last `ExecStart=`, as written.
    pub(super) raw: String,
    /// Variables by name.
    variables: BTreeMap<String, EnvironmentVariable>,
}

/// A word of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandWord {
    pub(super) text: String,
    /// The variable it comes from; `None` if it is written in `ExecStart=`.
    pub(super) variable: Option<String>,
}

/// A variable and the place of its assignment that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EnvironmentVariable {
    value: String,
    pub(super) place: VariablePlace,
}

/// Where a variable is assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VariablePlace {
    /// `Environment=` of a fragment: the assignment as written, with its quotes.
    Unit(String),
    /// `EnvironmentFile=`.
    File(PathBuf),
}

impl UnitCommand {
    /// Reads a unit: its main fragment, then its drop-ins in order.
    ///
    /// # Errors
    /// If a fragment or an environment file cannot be read.
    pub(super) fn read(root: &FilesystemRoot, fragments: &[PathBuf]) -> io::Result<Self> {
        let mut service = ServiceSection::default();
        for fragment in fragments {
            if let Some(text) = root.text(fragment)? {
                service.add(&text);
            }
        }
        let mut variables = service.variables();
        for file in &service.files {
            for (name, value) in assignments(&root.text(file)?.unwrap_or_default()) {
                let place = VariablePlace::File(file.clone());
                variables.insert(name, EnvironmentVariable { value, place });
            }
        }
        let words = expand(&service.exec, &variables);
        Ok(Self {
            words,
            raw: service.exec,
            variables,
        })
    }

    /// The words as text.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.words.iter().map(|word| word.text.clone()).collect()
    }

    /// The place of the variable that a word comes from; `None` for a word of `ExecStart=` itself.
    pub(super) fn place(&self, word: usize) -> Option<(&str, &VariablePlace)> {
        let name = self.words.get(word)?.variable.as_deref()?;
        Some((name, &self.variables.get(name)?.place))
    }
}

#[derive(Debug, Default)]
struct ServiceSection {
    exec: String,
    /// Assignments of `Environment=` as written.
    environment: Vec<String>,
    files: Vec<PathBuf>,
}

impl ServiceSection {
    fn add(&mut self, text: &str) {
        let mut inside = false;
        for line in logical_lines(text) {
            if line.starts_with('[') {
                inside = line == "[Service]";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| inside) else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                "ExecStart" => value.clone_into(&mut self.exec),
                "Environment" if value.is_empty() => self.environment.clear(),
                "Environment" => self.environment.extend(raw_words(value)),
                "EnvironmentFile" if value.is_empty() => self.files.clear(),
                "EnvironmentFile" => {
                    let path = value.strip_prefix('-').unwrap_or(value);
                    self.files.push(Path::new(path).to_owned());
                }
                _ => {}
            }
        }
    }

    fn variables(&self) -> BTreeMap<String, EnvironmentVariable> {
        let assigned = self.environment.iter().filter_map(|raw| {
            let text = unquoted(raw).replace("%%", "%");
            let (name, value) = text.split_once('=')?;
            let variable = EnvironmentVariable {
                value: value.to_owned(),
                place: VariablePlace::Unit(raw.clone()),
            };
            Some((name.to_owned(), variable))
        });
        assigned.collect()
    }
}

/// Lines without comments; lines that end with a backslash are joined with the next.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut joined = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        // Also between joined lines.
        if trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(part) = trimmed.strip_suffix('\\') {
            joined.push_str(part);
            joined.push(' ');
            continue;
        }
        joined.push_str(trimmed);
        let line = std::mem::take(&mut joined);
        if !line.trim().is_empty() {
            lines.push(line.trim().to_owned());
        }
    }
    lines
}

/// Words with their quotes.
fn raw_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', _) => {
                word.push(c);
                word.extend(chars.next());
                continue;
            }
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (c, None) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A word without its quotes and escapes.
fn unquoted(word: &str) -> String {
    let mut text = String::new();
    let mut quote = None;
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => text.extend(chars.next()),
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            _ => text.push(c),
        }
    }
    text
}

/// The assignments of an environment file.
fn assignments(text: &str) -> Vec<(String, String)> {
    let assigned = logical_lines(text).into_iter().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), unquoted(value.trim())))
    });
    assigned.collect()
}

fn expand(exec: &str, variables: &BTreeMap<String, EnvironmentVariable>) -> Vec<CommandWord> {
    let mut words = Vec::new();
    for raw in raw_words(exec) {
        let text = unquoted(&raw).replace("%%", "%");
        // A variable alone is split into words; ${NAME} is not.
        let alone = text.strip_prefix('$').filter(|name| is_name(name));
        if let Some(name) = alone {
            let value = variables.get(name).map(|variable| &variable.value);
            for word in value.map(|value| raw_words(value)).unwrap_or_default() {
                words.push(CommandWord {
                    text: unquoted(&word),
                    variable: Some(name.to_owned()),
                });
            }
            continue;
        }
        words.push(braces(&text, variables));
    }
    words
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Replaces each `${NAME}`.
fn braces(text: &str, variables: &BTreeMap<String, EnvironmentVariable>) -> CommandWord {
    let mut result = String::new();
    let mut variable = None;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}').filter(|(name, _)| is_name(name)) else {
            break;
        };
        result.push_str(before);
        if let Some(found) = variables.get(name) {
            result.push_str(&found.value);
        }
        variable = Some(name.to_owned());
        rest = after;
    }
    result.push_str(rest);
    CommandWord {
        text: result.replace("$$", "$"),
        variable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)], fragments: &[&str]) -> UnitCommand {
        let directory = tempfile::tempdir().expect("a directory");
        let root = FilesystemRoot::at(directory.path());
        for (path, text) in files {
            let path = root.path(path);
            std::fs::create_dir_all(path.parent().expect("one")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let fragments: Vec<_> = fragments.iter().map(PathBuf::from).collect();
        UnitCommand::read(&root, &fragments).expect("read")
    }

    #[test]
    fn later_fragments_and_environment_files_win() {
        let unit = "[Unit]\nExecStart=no\n[Service]\nExecStart=/usr/bin/kubelet\nEnvironment=A=1\n";
        let drop_in = "# comment\n[Service]\n\
            Environment=\"A=--a=1 --b='x y'\" C=c%%\n\
            EnvironmentFile=-/etc/none\nEnvironmentFile=/etc/env\n\
            ExecStart=\nExecStart=/usr/bin/kubelet $A \\\n  $D $EMPTY --c=${C} --e=$$HOME\n";
        let env = "# D=no\nD=\"--d=1 \\\n  --d=2\"\n";
        let command = read(
            &[("/u", unit), ("/d", drop_in), ("/etc/env", env)],
            &["/u", "/d"],
        );
        assert_eq!(
            command.arguments(),
            [
                "/usr/bin/kubelet",
                "--a=1",
                "--b=x y",
                "--d=1",
                "--d=2",
                "--c=c%",
                "--e=$HOME"
            ]
        );
        assert_eq!(
            command.raw,
            "/usr/bin/kubelet $A  $D $EMPTY --c=${C} --e=$$HOME"
        );
        assert_eq!(command.place(0), None);
        let raw = "\"A=--a=1 --b='x y'\"".to_owned();
        assert_eq!(command.place(1), Some(("A", &VariablePlace::Unit(raw))));
        let file = VariablePlace::File("/etc/env".into());
        assert_eq!(command.place(4), Some(("D", &file)));
    }

    #[test]
    fn an_empty_assignment_resets() {
        let unit = "[Service]\nEnvironment=A=1\nEnvironmentFile=/e\nEnvironment=\nEnvironmentFile=\n\
            ExecStart=k $A\n";
        let command = read(&[("/u", unit), ("/e", "A=2\n")], &["/u"]);
        assert_eq!(command.arguments(), ["k"]);
    }
}
