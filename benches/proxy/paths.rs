//! The ways from the client to a runtime: directly, and through each of the proxies that are compared.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Error, IoContext, Result};
use crate::process::{Process, find};

/// What stands between the client and the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Nothing.
    Direct,
    /// A process that moves bytes and knows nothing of them.
    Socat,
    /// An HTTP/2 proxy in C.
    Nginx,
    /// criscope as it comes, with metrics, recorder, admin endpoint, log and trace export on. Polls are sampled out.
    Criscope,
    /// The same, and every poll becomes a span that is exported.
    CriscopeAllTraced,
}

impl Kind {
    /// For tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Socat => "socat",
            Self::Nginx => "nginx",
            Self::Criscope => "criscope",
            Self::CriscopeAllTraced => "criscope, every poll traced",
        }
    }
}

/// The programs behind the paths.
pub(crate) struct Proxies {
    pub(crate) socat: PathBuf,
    pub(crate) nginx: PathBuf,
    /// `None` leaves criscope out.
    pub(crate) criscope: Option<PathBuf>,
    /// Where criscope's spans go, `http://host:port`.
    pub(crate) otlp: String,
}

impl Proxies {
    /// Looks for the programs.
    ///
    /// # Errors
    /// When one is missing.
    pub(crate) fn find(criscope: Option<PathBuf>, otlp: String) -> Result<Self> {
        if let Some(file) = criscope.as_ref().filter(|file| !file.is_file()) {
            return Err(Error::Setup(format!(
                "{} is not there: cargo build --release",
                file.display()
            )));
        }
        Ok(Self {
            socat: find("socat", "socat")?,
            nginx: find("nginx", "nginx-light")?,
            criscope,
            otlp,
        })
    }

    /// Every kind of path that can be measured, `Direct` first.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = vec![Kind::Direct, Kind::Socat, Kind::Nginx];
        if self.criscope.is_some() {
            kinds.extend([Kind::Criscope, Kind::CriscopeAllTraced]);
        }
        kinds
    }

    /// Starts what `kind` needs in front of `upstream`, with its files in `folder`, and waits until it serves.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) async fn start(&self, kind: Kind, upstream: &Path, folder: &Path) -> Result<Route> {
        let folder = folder.join(format!("{kind:?}").to_lowercase());
        fs::create_dir_all(&folder).during(|| format!("making {}", folder.display()))?;
        let socket = folder.join("listen.sock");
        let mut admin = None;
        let process = match kind {
            Kind::Direct => None,
            Kind::Socat => Some(self.start_socat(&socket, upstream, &folder)?),
            Kind::Nginx => Some(self.start_nginx(&socket, upstream, &folder)?),
            Kind::Criscope | Kind::CriscopeAllTraced => {
                let address = free_port()?;
                admin = Some(address);
                let polls = if kind == Kind::Criscope { "0.0" } else { "1.0" };
                Some(self.start_criscope(&socket, upstream, &folder, address, polls)?)
            }
        };
        let mut route = Route {
            kind,
            socket: process
                .as_ref()
                .map_or_else(|| upstream.to_owned(), |_| socket),
            process,
            admin,
        };
        if let Some(process) = &mut route.process {
            process.wait_for_socket(&route.socket).await?;
        }
        Ok(route)
    }

    /// A process for each connection, as is its way. The larger buffer serves the long list; the queue has to hold all
    /// connections that are opened at once.
    fn start_socat(&self, socket: &Path, upstream: &Path, folder: &Path) -> Result<Process> {
        Process::start(
            "socat",
            &self.socat,
            [
                "-b65536".to_owned(),
                format!("UNIX-LISTEN:{},fork,backlog=128", socket.display()),
                format!("UNIX-CONNECT:{}", upstream.display()),
            ],
            &[],
            folder.join("log"),
        )
    }

    fn start_nginx(&self, socket: &Path, upstream: &Path, folder: &Path) -> Result<Process> {
        let config = folder.join("nginx.conf");
        fs::write(&config, nginx_settings(socket, upstream, folder))
            .during(|| format!("writing {}", config.display()))?;
        Process::start(
            "nginx",
            &self.nginx,
            [
                "-p".as_ref(),
                folder.as_os_str(),
                "-e".as_ref(),
                "stderr".as_ref(),
                "-c".as_ref(),
                config.as_os_str(),
            ],
            &[],
            folder.join("log"),
        )
    }

    fn start_criscope(
        &self,
        socket: &Path,
        upstream: &Path,
        folder: &Path,
        admin: SocketAddr,
        polls: &str,
    ) -> Result<Process> {
        let Some(criscope) = &self.criscope else {
            return Err(Error::Setup("no criscope was given".to_owned()));
        };
        let config = folder.join("criscope.toml");
        fs::write(&config, criscope_settings(socket, upstream, admin, polls))
            .during(|| format!("writing {}", config.display()))?;
        Process::start(
            "criscope",
            criscope,
            ["serve".as_ref(), "--config".as_ref(), config.as_os_str()],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", self.otlp.clone())],
            folder.join("log"),
        )
    }
}

/// nginx at its best here: no access log, connections that are kept for ever on both sides, and one worker, which on
/// two cores is quicker than two.
fn nginx_settings(socket: &Path, upstream: &Path, folder: &Path) -> String {
    let (socket, upstream, folder) = (socket.display(), upstream.display(), folder.display());
    let user = if nix::unistd::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    format!(
        "daemon off;
{user}
worker_processes 1;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  upstream runtime {{
    server unix:{upstream};
    keepalive 64;
    keepalive_requests 1000000000;
    keepalive_time 24h;
    keepalive_timeout 24h;
  }}
  server {{
    listen unix:{socket} http2;
    keepalive_requests 1000000000;
    keepalive_time 24h;
    keepalive_timeout 24h;
    location / {{
      grpc_pass grpc://runtime;
      grpc_buffer_size 64k;
      grpc_read_timeout 1h;
      grpc_send_timeout 1h;
    }}
  }}
}}
"
    )
}

/// Everything at its default, except where it listens, and `polls`, the share of polls that become spans.
fn criscope_settings(socket: &Path, upstream: &Path, admin: SocketAddr, polls: &str) -> String {
    let (socket, upstream) = (socket.display(), upstream.display());
    format!(
        r#"[server]
listen = "unix://{socket}"
[admin]
listen = "{admin}"
[backends.upstream]
kind = "upstream"
endpoint = "unix://{upstream}"
[routing]
default = "upstream"
[telemetry]
sampling.polls = {polls}
"#
    )
}

/// A port that was free a moment ago.
fn free_port() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .during(|| "looking for a free port".to_owned())
}

/// A path that is ready to be measured. Dropping it ends its process.
pub(crate) struct Route {
    /// What it is.
    pub(crate) kind: Kind,
    /// Where the client connects.
    pub(crate) socket: PathBuf,
    /// What stands between; `None` on the direct path.
    pub(crate) process: Option<Process>,
    admin: Option<SocketAddr>,
}

impl Route {
    /// The process of a path through a proxy.
    ///
    /// # Errors
    /// On the direct path, which has none.
    pub(crate) fn process(&self) -> Result<&Process> {
        self.process
            .as_ref()
            .ok_or_else(|| Error::Setup(format!("{} has no process", self.kind.name())))
    }

    /// Scrapes criscope's metrics and gives the number of series.
    ///
    /// # Errors
    /// When the path has no admin endpoint or it does not answer with metrics.
    pub(crate) async fn scrape(&self) -> Result<usize> {
        let address = self
            .admin
            .ok_or_else(|| Error::Setup(format!("{} has no metrics", self.kind.name())))?;
        let doing = || format!("reading http://{address}/metrics");
        let mut stream = TcpStream::connect(address).await.during(doing)?;
        let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.during(doing)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.during(doing)?;
        let series = answer
            .lines()
            .filter(|line| line.starts_with("criscope_"))
            .count();
        if series == 0 {
            return Err(self
                .process()?
                .problem(format!("shows no metrics on {address}")));
        }
        Ok(series)
    }
}
