//! The address of the running criscope, for the commands that read from it.

use std::fs::File;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use nix::unistd::geteuid;
use tower::ServiceExt as _;

use super::http::{UNIX_SOCKET_PREFIX, get, send};
use super::{CommandFailure, DEFAULT_CONFIG_FILE, output};
use crate::app::captured::pages;
use crate::config::{AdminSettings, Config, ConfigErrors, FlagOverrides};
use crate::cri::visible::visible;
use crate::lifecycle::capture::{BundleError, CaptureBundle, CaptureManifest, CaptureOrigin};
use crate::pages::source::{PageError, PageReply, PageSource};
use crate::units::rfc3339;

/// The default address.
const DEFAULT_ADMIN_ADDRESS: &str = "127.0.0.1:9478";

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

fn configured(file: &Path) -> Result<Result<String, PageError>, ConfigErrors> {
    let loaded = Config::load(Some(file), &FlagOverrides::default())?;
    Ok(at(&loaded.config.admin).ok_or_else(|| PageError::Off(file.to_owned())))
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
async fn ask_capture(capture: &Router, file: &str, path: &str) -> Result<PageReply, PageError> {
    let request = Request::get(path).body(Body::empty());
    let request = request.map_err(|error| PageError::broken(file, error))?;
    let response = match capture.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| PageError::broken(file, error))?;
    Ok(PageReply {
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

impl PageSource for AdminEndpoint {
    fn address(&self) -> &str {
        &self.address
    }

    async fn get(&self, path: &str) -> Result<PageReply, PageError> {
        match &self.capture {
            Some(capture) => ask_capture(capture, &self.address, path).await,
            None => get(&self.address, path).await,
        }
    }
}

impl AdminEndpoint {
    /// Returns whether it is a criscope that runs on this machine, and no capture.
    pub(super) fn is_of_this_node(&self) -> bool {
        let is_socket = self.address.starts_with(UNIX_SOCKET_PREFIX);
        let host = self.address.rsplit_once(':').map(|(host, _)| host);
        let is_loopback = host.is_some_and(|host| {
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        });
        self.capture.is_none() && (is_socket || is_loopback)
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
    ) -> Result<Bytes, PageError> {
        let answer = send(&self.address, method, path, body.into()).await?;
        let text = match answer.status {
            status if status.is_success() => return Ok(answer.body),
            StatusCode::NOT_FOUND => return Err(self.no_page(path)),
            StatusCode::METHOD_NOT_ALLOWED if geteuid().is_root() => {
                "changes are made over the socket of admin.socket only, and this is a port: leave out --admin".to_owned()
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                "changes are made over the socket of admin.socket only: run this as root".to_owned()
            }
            _ => String::from_utf8_lossy(&answer.body).trim().to_owned(),
        };
        let address = self.address.clone();
        Err(PageError::Refused { address, text })
    }
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
}
