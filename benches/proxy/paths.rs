//! The paths from the client to a runtime: directly, and through each of the compared proxies.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use criscope_testkit::bench::admin::{free_port, scrape};
use serde::Serialize;

use crate::error::{Error, IoContext, Result};
use crate::process::{Process, find};

/// The proxy of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// No proxy.
    Direct,
    /// socat: copies bytes without parsing them.
    Socat,
    /// nginx: an HTTP/2 proxy in C.
    Nginx,
    /// criscope with its defaults: metrics, recorder, admin endpoint, log and trace export are on. Polls are not sampled.
    Criscope,
    /// The same, but every poll becomes a span and is exported.
    CriscopeAllTraced,
}

impl Kind {
    /// The name in tables.
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
    pub(crate) criscope: PathBuf,
    /// The OTLP endpoint for criscope's spans, `http://host:port`.
    pub(crate) otlp: String,
}

impl Proxies {
    /// Finds the programs.
    ///
    /// # Errors
    /// If one is missing.
    pub(crate) fn find(criscope: PathBuf, otlp: String) -> Result<Self> {
        if !criscope.is_file() {
            return Err(Error::Setup(format!(
                "{} does not exist: cargo build --release",
                criscope.display()
            )));
        }
        Ok(Self {
            socat: find("socat", "socat")?,
            nginx: find("nginx", "nginx-light")?,
            criscope,
            otlp,
        })
    }

    /// Starts the proxy of `kind` in front of `upstream`, with its files in `folder`, and waits until it serves.
    ///
    /// # Errors
    /// If it does not start.
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
                Some(self.start_criscope(kind, &socket, upstream, &folder, address)?)
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

    /// socat forks a process for each connection. The larger buffer is for the long list; the backlog must hold all
    /// connections that are opened at once.
    fn start_socat(&self, socket: &Path, upstream: &Path, folder: &Path) -> Result<Process> {
        let mut command = Command::new(&self.socat);
        command
            .arg("-b65536")
            .arg(format!("UNIX-LISTEN:{},fork,backlog=128", socket.display()))
            .arg(format!("UNIX-CONNECT:{}", upstream.display()));
        Process::spawn_bound("socat", &command, folder.join("log"))
    }

    fn start_nginx(&self, socket: &Path, upstream: &Path, folder: &Path) -> Result<Process> {
        let config = folder.join("nginx.conf");
        fs::write(&config, nginx_settings(socket, upstream, folder))
            .during(|| format!("writing {}", config.display()))?;
        let mut command = Command::new(&self.nginx);
        command.arg("-p").arg(folder);
        command.args(["-e", "stderr", "-c"]).arg(config);
        Process::spawn_bound("nginx", &command, folder.join("log"))
    }

    fn start_criscope(
        &self,
        kind: Kind,
        socket: &Path,
        upstream: &Path,
        folder: &Path,
        admin: SocketAddr,
    ) -> Result<Process> {
        let mut command = Command::new(&self.criscope);
        command
            .args(["serve", "--listen"])
            .arg(format!("unix://{}", socket.display()))
            .arg("--upstream")
            .arg(format!("unix://{}", upstream.display()))
            .args(["--admin", &admin.to_string()])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.otlp);
        if kind == Kind::CriscopeAllTraced {
            let config = folder.join("criscope.toml");
            fs::write(&config, TRACE_POLLS).during(|| format!("writing {}", config.display()))?;
            command.arg("--config").arg(config);
        }
        Process::spawn_bound("criscope", &command, folder.join("log"))
    }
}

/// nginx in its best configuration for this load: no access log, persistent connections on both sides, and one worker,
/// because a second one gained nothing on two cores.
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

/// All defaults, except that every poll becomes a span; by default only failed and slow ones do.
const TRACE_POLLS: &str = "[telemetry.sampling]\npolls = 1.0\n";

/// A path that is ready to be measured. Dropping it ends its process.
pub(crate) struct Route {
    /// The kind.
    pub(crate) kind: Kind,
    /// The socket for the client.
    pub(crate) socket: PathBuf,
    /// The process of the proxy; `None` on the direct path.
    pub(crate) process: Option<Process>,
    admin: Option<SocketAddr>,
}

impl Route {
    /// The process of the proxy.
    ///
    /// # Errors
    /// On the direct path, which has none.
    pub(crate) fn process(&self) -> Result<&Process> {
        self.process
            .as_ref()
            .ok_or_else(|| Error::Setup(format!("{} has no process", self.kind.name())))
    }

    /// Scrapes criscope's metrics and returns the number of series; 0 if there are none.
    ///
    /// # Errors
    /// If the path has no admin endpoint.
    pub(crate) async fn scrape(&self) -> Result<usize> {
        let address = self
            .admin
            .ok_or_else(|| Error::Setup(format!("{} has no metrics", self.kind.name())))?;
        let answer = scrape(address, "/metrics").await.unwrap_or_default();
        let of_criscope = |line: &&str| line.starts_with("criscope_");
        Ok(answer.lines().filter(of_criscope).count())
    }
}
