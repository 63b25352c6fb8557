//! Reading a configuration from where it is.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::document::{Reader, Text, parse};
use super::error::{ConfigError, ConfigErrors, Place, Problem};
use super::{Config, assemble, shape};

/// What the command line says on top of the file, as it was written there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: replaces `server.listen`.
    pub listen: Option<String>,
    /// `--upstream`: adds the backend `upstream`, or replaces its endpoint.
    pub upstream: Option<String>,
    /// `--admin`: replaces `admin.listen`.
    pub admin: Option<String>,
}

/// A configuration and where it came from, so that it can be read again.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// The file; `None` if there is none, `-` for standard input.
    pub path: Option<PathBuf>,
    /// The flags.
    pub overrides: Overrides,
}

impl Loaded {
    /// Reads the same file with the same flags again; with no file the result is the same.
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
    /// Reads a file (`-` is standard input) and puts the flags on top.
    ///
    /// # Errors
    /// Everything that is wrong with both, each with its place and key. If the text is not TOML, only that.
    pub fn load(path: Option<&Path>, flags: &Overrides) -> Result<Loaded, ConfigErrors> {
        let config = match path {
            None => finish(Reader::empty(), flags)?,
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

    /// Reads a text; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_text(name: &str, text: &str, flags: &Overrides) -> Result<Self, ConfigErrors> {
        let text = Text { name, text };
        let table = parse(text)?;
        let mut reader = Reader::new(text, &table);
        shape::check(&mut reader, &table);
        finish(reader, flags)
    }
}

fn finish(mut reader: Reader<'_>, flags: &Overrides) -> Result<Config, ConfigErrors> {
    let config = assemble::config(&mut reader, flags);
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
