//! Parses `hosts.toml` as documented by containerd (`docs/hosts.md`), and finds certificates in Docker's older layout.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use crate::error::{At as _, Error, Result};
use crate::files::{if_present, listed};

/// The capabilities of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Capabilities {
    /// Serves content by digest.
    pub(super) pull: bool,
    /// Resolves tags; only for trusted hosts.
    pub(super) resolve: bool,
}

/// One host of `hosts.toml`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct HostEntry {
    /// `https://mirror.example/path`, `mirror.example`; empty for the registry itself.
    pub(super) address: String,
    pub(super) capabilities: Capabilities,
    pub(super) tls: TlsEntry,
    /// Sent with every request to this host, and nowhere else.
    pub(super) headers: Vec<(String, String)>,
    /// True if the path of the address replaces `/v2`.
    pub(super) override_path: bool,
}

/// TLS settings of a host.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct TlsEntry {
    /// Certificate authorities besides the system's.
    pub(super) ca: Vec<PathBuf>,
    /// Client certificates, and their keys if those are in other files.
    pub(super) client: Vec<(PathBuf, Option<PathBuf>)>,
    pub(super) skip_verify: bool,
    pub(super) dial_timeout: Option<Duration>,
}

impl Default for HostEntry {
    fn default() -> Self {
        Self {
            address: String::new(),
            capabilities: Capabilities {
                pull: true,
                resolve: true,
            },
            tls: TlsEntry::default(),
            headers: Vec::new(),
            override_path: false,
        }
    }
}

/// Returns the hosts of a registry in the order in which they are tried, the registry itself last.
pub(super) fn look_up(dirs: &[PathBuf], registry: &str) -> Result<Vec<HostEntry>> {
    for dir in dirs {
        if let Some(dir) = directory(dir, registry) {
            return read(&dir);
        }
    }
    Ok(vec![HostEntry::default()])
}

/// Finds the directory of a registry: `host_port_`, `host:port`, or `_default`.
fn directory(dir: &Path, registry: &str) -> Option<PathBuf> {
    let portless = registry
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map(|(host, port)| format!("{host}_{port}_"));
    let names = portless
        .into_iter()
        .chain([registry.to_owned(), "_default".to_owned()]);
    names.map(|name| dir.join(name)).find(|dir| dir.is_dir())
}

pub(super) fn read(dir: &Path) -> Result<Vec<HostEntry>> {
    let path = dir.join("hosts.toml");
    match if_present(fs::read_to_string(&path)).at(&path)? {
        Some(text) => parse(&text, dir).map_err(|reason| Error::Settings { path, reason }),
        None => Ok(vec![HostEntry {
            tls: certificates(dir)?,
            ..HostEntry::default()
        }]),
    }
}

/// Docker's older layout: `*.crt` are authorities, `*.cert` is a client certificate and `*.key` of the same name its key.
fn certificates(dir: &Path) -> Result<TlsEntry> {
    let mut tls = TlsEntry::default();
    for path in listed(dir).at(dir)? {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => tls.ca.push(path),
            Some("cert") => tls
                .client
                .push((path.clone(), Some(path.with_extension("key")))),
            _ => {}
        }
    }
    Ok(tls)
}

type ParseResult<T> = std::result::Result<T, String>;

pub(super) fn parse(text: &str, dir: &Path) -> ParseResult<Vec<HostEntry>> {
    let mut file: Table = text
        .parse()
        .map_err(|e: toml::de::Error| e.message().to_owned())?;
    let mut entries = Vec::new();
    if let Some(hosts) = file.remove("host") {
        let Value::Table(hosts) = hosts else {
            return Err("host must be a table".to_owned());
        };
        for (address, entry) in hosts {
            let Value::Table(entry) = entry else {
                return Err(format!("host.\"{address}\" must be a table"));
            };
            let entry =
                host(&entry, &address, dir).map_err(|e| format!("host.\"{address}\": {e}"))?;
            if entry.address.is_empty() {
                return Err("a host without an address".to_owned());
            }
            entries.push(entry);
        }
    }
    // Settings outside of all hosts are those of the registry itself, which is tried last.
    let server = match file.get("server") {
        None => String::new(),
        Some(Value::String(server)) => server.clone(),
        Some(_) => return Err("server must be a text".to_owned()),
    };
    entries.push(host(&file, &server, dir)?);
    Ok(entries)
}

fn host(table: &Table, address: &str, dir: &Path) -> ParseResult<HostEntry> {
    let mut entry = HostEntry {
        address: address.to_owned(),
        ..HostEntry::default()
    };
    for (key, value) in table {
        match key.as_str() {
            "capabilities" => entry.capabilities = capabilities(value)?,
            "ca" => entry.tls.ca = texts(value, key)?.iter().map(|ca| dir.join(ca)).collect(),
            "client" => entry.tls.client = client(value, dir)?,
            "skip_verify" => entry.tls.skip_verify = flag(value, key)?,
            "override_path" => entry.override_path = flag(value, key)?,
            "header" => entry.headers = headers(value)?,
            "dial_timeout" => {
                let timeout = value.as_str().and_then(duration);
                let timeout =
                    timeout.ok_or_else(|| "dial_timeout must be like \"10s\"".to_owned())?;
                entry.tls.dial_timeout = Some(timeout);
            }
            // As in containerd, unknown keys are ignored.
            _ => {}
        }
    }
    Ok(entry)
}

fn capabilities(value: &Value) -> ParseResult<Capabilities> {
    let all = texts(value, "capabilities")?;
    Ok(Capabilities {
        pull: all.iter().any(|c| c == "pull"),
        resolve: all.iter().any(|c| c == "resolve"),
    })
}

fn flag(value: &Value, key: &str) -> ParseResult<bool> {
    value
        .as_bool()
        .ok_or_else(|| format!("{key} must be true or false"))
}

/// Parses a string, or a list of strings.
fn texts(value: &Value, key: &str) -> ParseResult<Vec<String>> {
    let texts = match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(all) => all
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    texts.ok_or_else(|| format!("{key} must be a text or a list of texts"))
}

/// Parses a file, a list of files, or a list of pairs of a certificate and its key.
fn client(value: &Value, dir: &Path) -> ParseResult<Vec<(PathBuf, Option<PathBuf>)>> {
    let Value::Array(all) = value else {
        return Ok(texts(value, "client")?
            .iter()
            .map(|c| (dir.join(c), None))
            .collect());
    };
    all.iter()
        .map(|value| match texts(value, "client")?.as_slice() {
            [cert] => Ok((dir.join(cert), None)),
            [cert, key] if key.is_empty() => Ok((dir.join(cert), None)),
            [cert, key] => Ok((dir.join(cert), Some(dir.join(key)))),
            _ => Err("client must be pairs of a certificate and its key".to_owned()),
        })
        .collect()
}

fn headers(value: &Value) -> ParseResult<Vec<(String, String)>> {
    let Value::Table(table) = value else {
        return Err("header must be a table".to_owned());
    };
    let mut headers = Vec::new();
    for (name, values) in table {
        headers.extend(
            texts(values, "header")?
                .into_iter()
                .map(|value| (name.clone(), value)),
        );
    }
    Ok(headers)
}

/// Parses a duration in Go's format, with a single unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_documented_keys_are_parsed() {
        let text = r#"
            server = "https://docker.io"
            ca = "own.crt"
            [host."https://z.example"]
              capabilities = ["pull"]
              ca = ["a.crt", "/b.crt"]
              client = [["c.cert", "c.key"], ["d.pem", ""]]
              skip_verify = true
              dial_timeout = "1.5s"
              [host."https://z.example".header]
                x-one = "1"
                x-two = ["2", "3"]
            [host."http://a.example:5000/v2/mirror"]
              override_path = true
              client = "e.pem"
        "#;
        let entries = parse(text, Path::new("/etc/x")).expect("hosts");
        // In the order of the file.
        let addresses: Vec<_> = entries.iter().map(|e| e.address.as_str()).collect();
        assert_eq!(
            addresses,
            [
                "https://z.example",
                "http://a.example:5000/v2/mirror",
                "https://docker.io"
            ]
        );
        let first = &entries[0];
        assert_eq!(
            first.capabilities,
            Capabilities {
                pull: true,
                resolve: false
            }
        );
        assert_eq!(
            first.tls.ca,
            [Path::new("/etc/x/a.crt"), Path::new("/b.crt")]
        );
        assert_eq!(
            first.tls.client[0].1.as_deref(),
            Some(Path::new("/etc/x/c.key"))
        );
        assert_eq!(first.tls.dial_timeout, Some(Duration::from_millis(1500)));
        assert_eq!(first.headers.len(), 3);
        assert!(entries[1].override_path);
        assert_eq!(entries[2].tls.ca, [Path::new("/etc/x/own.crt")]);
    }

    #[test]
    fn errors_name_the_mistake() {
        for (text, word) in [
            ("host = 1", "host"),
            ("[host.\"a\"]\nskip_verify = 1", "skip_verify"),
            ("[host.\"a\"]\nclient = [[\"a\", \"b\", \"c\"]]", "client"),
            ("dial_timeout = \"soon\"", "dial_timeout"),
            ("ca = 7", "ca"),
            ("[host.\"\"]", "address"),
        ] {
            let error = parse(text, Path::new("/")).expect_err(text);
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_directory_of_a_registry_is_found() {
        let dir = tempfile::tempdir().expect("directory");
        let dirs = [dir.path().to_owned()];
        assert_eq!(
            look_up(&dirs, "a:5000").expect("none"),
            [HostEntry::default()]
        );
        let make = |name: &str, text: &str| {
            fs::create_dir(dir.path().join(name)).expect("directory");
            fs::write(dir.path().join(name).join("hosts.toml"), text).expect("write");
        };
        let first = |registry: &str| look_up(&dirs, registry).expect("hosts")[0].address.clone();
        make("_default", "[host.\"default\"]");
        assert_eq!(first("a:5000"), "default");
        make("a:5000", "[host.\"colon\"]");
        assert_eq!(first("a:5000"), "colon");
        make("a_5000_", "[host.\"underscore\"]");
        assert_eq!(first("a:5000"), "underscore");
        fs::create_dir(dir.path().join("b")).expect("directory");
        for name in ["x.crt", "y.cert", "y.key"] {
            fs::write(dir.path().join("b").join(name), "").expect("write");
        }
        let tls = look_up(&dirs, "b").expect("hosts").remove(0).tls;
        assert_eq!((tls.ca.len(), tls.client.len()), (1, 1));
    }
}
