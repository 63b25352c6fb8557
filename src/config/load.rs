//! Reads a configuration from a file or standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::Config;
use crate::settings::reader::{Flag, Text, parse};
use crate::settings::{ConfigError, ConfigErrors, Place, Problem, Reader, Schema, check_shape};

/// Command line flags that replace keys of the file, as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: replaces `server.listen`.
    pub listen: Option<String>,
    /// `--upstream`: adds the backend `upstream`, or replaces its endpoint.
    pub upstream: Option<String>,
    /// `--admin`: replaces `admin.listen`.
    pub admin: Option<String>,
}

/// A configuration and its source, so that it can be read again.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// The file; `None` if there is none, `-` for standard input.
    pub path: Option<PathBuf>,
    /// The flags.
    pub overrides: Overrides,
}

impl Overrides {
    /// The flags that replace one key each.
    fn keys(&self) -> Vec<Flag<'_>> {
        let flags = [
            ("server.listen", "--listen", &self.listen),
            ("admin.listen", "--admin", &self.admin),
        ];
        let flags = flags.into_iter().filter_map(|(key, name, text)| {
            let text = text.as_deref()?;
            Some(Flag { key, name, text })
        });
        flags.collect()
    }
}

impl Loaded {
    /// Reads the same file with the same flags again; without a file the result is the same.
    ///
    /// # Errors
    /// As [`Config::load`], and if the configuration came from standard input.
    pub fn reload(&self) -> Result<Self, ConfigErrors> {
        match &self.path {
            Some(path) if is_stdin(path) => {
                let problem = Problem::ReadOnce;
                Err(whole(&name_of(path), problem).into())
            }
            path => Config::load(path.as_deref(), &self.overrides),
        }
    }
}

impl Config {
    /// Reads a file (`-` is standard input); flags replace its keys.
    ///
    /// # Errors
    /// All errors, each with its position and key. If the text is not TOML, only syntax errors.
    pub fn load(path: Option<&Path>, flags: &Overrides) -> Result<Loaded, ConfigErrors> {
        let config = match path {
            None => finish(
                Reader::new(Text { name: "", text: "" }, None, flags.keys()),
                flags,
            )?,
            Some(path) => {
                let name = name_of(path);
                let text = read(path).map_err(|error| whole(&name, Problem::Unreadable(error)))?;
                Self::from_text(&name, &text, flags)?
            }
        };
        Ok(Loaded {
            config,
            path: path.map(Path::to_owned),
            overrides: flags.clone(),
        })
    }

    /// Reads a text; errors refer to it as `name`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_text(name: &str, text: &str, flags: &Overrides) -> Result<Self, ConfigErrors> {
        let text = Text { name, text };
        let table = parse(text)?;
        let mut reader = Reader::new(text, Some(&table), flags.keys());
        check_shape(&mut reader, &table, &Schema::of::<Self>());
        finish(reader, flags)
    }
}

fn finish(mut reader: Reader<'_>, flags: &Overrides) -> Result<Config, ConfigErrors> {
    let config = Config::read(&mut reader, flags.upstream.as_deref());
    ConfigErrors::from_list(reader.errors)?;
    Ok(config)
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn name_of(path: &Path) -> String {
    if is_stdin(path) {
        "<stdin>".to_owned()
    } else {
        path.display().to_string()
    }
}

fn read(path: &Path) -> io::Result<String> {
    if is_stdin(path) {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path)
}

fn whole(file: &str, problem: Problem) -> ConfigError {
    ConfigError {
        place: Place::File {
            file: file.to_owned(),
        },
        key: String::new(),
        problem,
    }
}
