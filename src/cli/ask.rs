//! The address of the running criscope, for the commands that read from it.

use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;

use super::http::{AdminRequestError, HttpResponse, UNIX_SOCKET_PREFIX, get, send};
use super::{CommandFailure, DEFAULT_CONFIG_FILE, output};
use crate::app::captured::pages;
use crate::config::{AdminSettings, Config, ConfigErrors, FlagOverrides};
use crate::cri::visible::visible;
use crate::lifecycle::capture::{BundleError, CaptureBundle, CaptureManifest, CaptureOrigin};
use crate::units::rfc3339;

/// The default address.
const DEFAULT_ADMIN_ADDRESS: &str = "127.0.0.1:9478";

/// Characters that stay unencoded in a path segment or a value (RFC 3986, unreserved).
const URL_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The address of the admin endpoint.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct AdminEndpointArgs {
    /// Address of the running criscope's admin endpoint, HOST:PORT or unix:///path [default: admin.socket of the
    /// configuration if it is accessible, else admin.listen, 127.0.0.1:9478]
    #[arg(long, value_name = "ADDR", env = "CRISCOPE_ADMIN", value_parser = address)]
    admin: Option<String>,
    /// Configuration file of the running criscope, to find its address [default: /etc/criscope/criscope.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl AdminEndpointArgs {
    /// The configuration, of the file that is named or usual.
    ///
    /// # Errors
    /// If it is wrong.
    pub(super) fn config(&self) -> Result<Config, CommandFailure> {
        let usual = Path::new(DEFAULT_CONFIG_FILE);
        let usual = usual.exists().then(|| usual.to_owned());
        match self.config.clone().or(usual) {
            Some(file) => Ok(Config::load(Some(&file), &FlagOverrides::default())?.config),
            None => Ok(Config::builtin()),
        }
    }

    /// The endpoint to read from.
    ///
    /// # Errors
    /// If the configuration is wrong, or has no endpoint.
    pub(super) fn endpoint(&self) -> Result<AdminEndpoint, CommandFailure> {
        let address = match (&self.admin, &self.config) {
            (Some(address), _) if !address.is_empty() => address.clone(),
            (_, Some(file)) => configured(file)??,
            _ => usual(Path::new(DEFAULT_CONFIG_FILE)),
        };
        Ok(AdminEndpoint {
            address,
            capture: None,
        })
    }
}

/// The value of `--admin` without `http://` and trailing slashes. An empty one, which the environment may have, counts as
/// unset.
fn address(text: &str) -> Result<String, String> {
    if text
        .strip_prefix(UNIX_SOCKET_PREFIX)
        .is_some_and(|path| path.starts_with('/'))
    {
        return Ok(text.to_owned());
    }
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.trim_end_matches('/');
    let is_one = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    });
    if is_one || text.is_empty() {
        Ok(address.to_owned())
    } else {
        Err(format!(
            "expected HOST:PORT, such as {DEFAULT_ADMIN_ADDRESS}"
        ))
    }
}

/// The address in the node's default configuration file. A file that is unreadable or invalid is ignored; other commands
/// report it.
fn usual(file: &Path) -> String {
    match file.exists().then(|| configured(file)) {
        Some(Ok(Ok(address))) => address,
        _ => at(&Config::builtin().admin).unwrap_or_else(|| DEFAULT_ADMIN_ADDRESS.to_owned()),
    }
}

fn configured(file: &Path) -> Result<Result<String, AdminRequestError>, ConfigErrors> {
    let loaded = Config::load(Some(file), &FlagOverrides::default())?;
    Ok(at(&loaded.config.admin).ok_or_else(|| AdminRequestError::Off(file.to_owned())))
}

/// The socket if it is accessible, else the port.
fn at(admin: &AdminSettings) -> Option<String> {
    let socket = admin.socket.as_deref();
    let socket = socket.filter(|path| UnixStream::connect(path).is_ok());
    match socket {
        Some(path) => Some(format!("{UNIX_SOCKET_PREFIX}{}", path.display())),
        None => admin.listen.map(|address| address.to_string()),
    }
}

/// Where a command reads from: the running criscope, or a capture.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct StateSourceArgs {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Read this capture instead of the running criscope (see criscope capture)
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl StateSourceArgs {
    /// The endpoint to read from.
    ///
    /// # Errors
    /// If the configuration is wrong, or has no endpoint, or the capture cannot be read.
    pub(super) fn endpoint(&self) -> Result<AdminEndpoint, CommandFailure> {
        let Some(file) = &self.from else {
            return self.admin.endpoint();
        };
        let bundle = open(file)?;
        Ok(AdminEndpoint {
            address: file.display().to_string(),
            capture: Some(pages(bundle)),
        })
    }
}

/// Reads a capture, and describes it on standard error.
///
/// # Errors
/// If it cannot be read.
pub(super) fn open(file: &Path) -> Result<CaptureBundle, CommandFailure> {
    let read = File::open(file).map_err(BundleError::from);
    let bundle = read.and_then(CaptureBundle::read).map_err(|source| {
        let file = file.to_owned();
        CommandFailure::Capture { file, source }
    })?;
    let CaptureManifest {
        host,
        made_unix_us,
        origin,
        pod,
        ..
    } = &bundle.manifest;
    let made = rfc3339(*made_unix_us);
    let whose = pod.as_ref().map(|pod| format!(" of pod {pod}"));
    let how = match origin {
        CaptureOrigin::Daemon => "",
        CaptureOrigin::Journal => ", from the journal alone: criscope was not running",
    };
    let text = format!(
        "capture{} of {host}, made {made}{how}",
        whose.unwrap_or_default()
    );
    output::hint(visible(&text));
    Ok(bundle)
}

/// A page of a capture.
async fn ask_capture(
    capture: &Router,
    file: &str,
    path: &str,
) -> Result<HttpResponse, AdminRequestError> {
    let request = Request::get(path).body(Body::empty());
    let request = request.map_err(|error| AdminRequestError::broken(file, error))?;
    let response = match capture.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| AdminRequestError::broken(file, error))?;
    Ok(HttpResponse {
        status,
        body: body.to_bytes(),
    })
}

/// An admin endpoint.
#[derive(Clone, Debug)]
pub(super) struct AdminEndpoint {
    address: String,
    /// The pages of a capture, which are asked instead.
    capture: Option<Router>,
}

impl AdminEndpoint {
    /// The address, for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The body of a page; as `Err` if the HTTP status is 404.
    async fn page(&self, path: &str) -> Result<Result<Bytes, Bytes>, AdminRequestError> {
        let answer = match &self.capture {
            Some(capture) => ask_capture(capture, &self.address, path).await?,
            None => get(&self.address, path).await?,
        };
        match answer.status {
            StatusCode::OK => Ok(Ok(answer.body)),
            StatusCode::NOT_FOUND => Ok(Err(answer.body)),
            status => Err(AdminRequestError::Status {
                address: self.address.clone(),
                path: path.to_owned(),
                status,
            }),
        }
    }

    /// The body of a page that always exists.
    ///
    /// # Errors
    /// If it could not be read.
    pub(super) async fn bytes(&self, path: &str) -> Result<Bytes, AdminRequestError> {
        self.page(path).await?.map_err(|_| self.no_page(path))
    }

    /// A page that always exists, parsed.
    ///
    /// # Errors
    /// If it could not be read or parsed.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<T, AdminRequestError> {
        self.parse(path, &self.bytes(path).await?)
    }

    /// A page that may not exist: its body, or the parsed body of the 404.
    ///
    /// # Errors
    /// If there is no response, or a 404 without a body of this type.
    pub(super) async fn or_else<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Result<Bytes, T>, AdminRequestError> {
        Ok(match self.page(path).await? {
            Ok(bytes) => Ok(bytes),
            // The router answers 404 without a body if there is no such page.
            Err(bytes) => Err(serde_json::from_slice(&bytes).map_err(|_| self.no_page(path))?),
        })
    }

    /// Asks for a change, which only root may do over the socket.
    ///
    /// # Errors
    /// If there is no response, or a refusal.
    pub(super) async fn change(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Bytes, AdminRequestError> {
        let answer = send(&self.address, method, path, body.into()).await?;
        let text = match answer.status {
            status if status.is_success() => return Ok(answer.body),
            StatusCode::NOT_FOUND => return Err(self.no_page(path)),
            StatusCode::METHOD_NOT_ALLOWED => {
                "changes are made over the socket of admin.socket only: run this as root".to_owned()
            }
            _ => String::from_utf8_lossy(&answer.body).trim().to_owned(),
        };
        let address = self.address.clone();
        Err(AdminRequestError::Refused { address, text })
    }

    /// Parses the body of a page.
    ///
    /// # Errors
    /// If it has another form.
    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        path: &str,
        bytes: &[u8],
    ) -> Result<T, AdminRequestError> {
        serde_json::from_slice(bytes).map_err(|source| AdminRequestError::Json {
            address: self.address.clone(),
            path: path.to_owned(),
            source,
        })
    }

    fn no_page(&self, path: &str) -> AdminRequestError {
        AdminRequestError::NoPage {
            address: self.address.clone(),
            path: path.to_owned(),
        }
    }
}

/// Percent-encodes a path segment or a query value.
pub(super) fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, URL_ESCAPES)
}

/// Runs a future to completion on this thread.
///
/// # Errors
/// Those of the future, or of creating the async runtime.
pub(super) fn block_on<T>(
    work: impl Future<Output = Result<T, CommandFailure>>,
) -> Result<T, CommandFailure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Writes a JSON response unchanged.
///
/// # Errors
/// If writing fails.
pub(super) fn print_json(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(args: &AdminEndpointArgs) -> String {
        args.endpoint().expect("an endpoint").address
    }

    fn config(text: &str) -> (tempfile::TempDir, AdminEndpointArgs) {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("criscope.toml");
        let text = format!(
            "[server]\nlisten = \"unix://{}\"\n{text}\n[backends.a]\nkind = \"upstream\"\nendpoint = \"unix:///run/a.sock\"\n",
            dir.path().join("a.sock").display()
        );
        std::fs::write(&file, text).expect("written");
        let args = AdminEndpointArgs {
            admin: None,
            config: Some(file),
        };
        (dir, args)
    }

    #[test]
    fn the_address_is_found() {
        let socket = |dir: &tempfile::TempDir| dir.path().join("a.admin.sock");
        let (dir, mut args) = config("[admin]\nlisten = \"127.0.0.1:7777\"\n");
        assert_eq!(found(&args), "127.0.0.1:7777");
        let file = args.config.clone().expect("a file");
        assert_eq!(usual(&file), "127.0.0.1:7777");
        let bound = std::os::unix::net::UnixListener::bind(socket(&dir)).expect("bound");
        assert_eq!(found(&args), format!("unix://{}", socket(&dir).display()));
        // As after a SIGKILL: the file remains, without a listener.
        drop(bound);
        crate::testing::until_stale(&socket(&dir));
        assert_eq!(found(&args), "127.0.0.1:7777");
        args.admin = Some(String::new());
        assert_eq!(found(&args), "127.0.0.1:7777", "an empty one is none");
        args.admin = Some("10.0.0.1:1".to_owned());
        assert_eq!(found(&args), "10.0.0.1:1", "the flag wins");
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, address_of) in [
            ("http://localhost:1234/", "localhost:1234"),
            ("127.0.0.1:9478", "127.0.0.1:9478"),
            ("[::1]:9478", "[::1]:9478"),
            ("unix:///run/a.sock", "unix:///run/a.sock"),
            ("", ""),
        ] {
            assert_eq!(address(text).as_deref(), Ok(address_of));
        }
        for bad in [
            "localhost",
            "a:b",
            ":9478",
            "https://a:1",
            "a:1/debug",
            "unix://a.sock",
            "a:70000",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn there_may_be_none() {
        let (_dir, args) = config("[admin]\nlisten = \"off\"\n");
        let error = args.endpoint().expect_err("off");
        assert!(error.to_string().contains("\"off\" in"), "{error}");
        let (_dir, args) = config("[admin]\nlistn = 1\n");
        assert!(matches!(args.endpoint(), Err(CommandFailure::Config(_))));
    }

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(encoded("a/b?c d").to_string(), "a%2Fb%3Fc%20d");
    }
}
