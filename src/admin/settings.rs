//! `[admin]`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::settings::value::{
    BooleanValue, FilePath, GroupNameOrId, HostName, ListOf, ListenAddress, OptionalSocketPath,
    OptionalValue, TracePageUrl, fits,
};
use crate::settings::{ConfigProblem, SettingsReader, lexical, settings};

settings! {
    /// The HTTP endpoint for metrics, health and the live pages.
    pub struct AdminSettings in "admin" (listen_on: &Path) {
        /// TCP address of the endpoint, which is read-only. It has no authentication, and its pages show pod and image
        /// names to every user of the node: keep it on loopback unless a scraper needs more.
        listen: Option<SocketAddr> = Some(SocketAddr::from(([127, 0, 0, 1], 9478))), ListenAddress;
        /// Serves the live page and the pages under `/debug` on `admin.listen` too. These pages show names of pods,
        /// images and commands. The socket always serves them.
        debug: bool = true, BooleanValue;
        /// A unix socket with the same endpoint for root only (mode 0600, checked with the credentials of the peer). The
        /// log level can be changed here only. `criscope pods`, `explain` and `calls` use it when they may.
        socket: Option<PathBuf> = beside(listen_on), OptionalSocketPath,
            or "the path of `server.listen` with the ending `.admin.sock`" like "\"unix:///run/criscope/criscope.admin.sock\"";
        /// A unix socket for an agent in a pod, such as criscope-agent: metrics, health and the pages of pods, calls and image
        /// pulls, read-only (mode 0660). The pod mounts the directory of the socket, so no other socket may be in it.
        agent_socket: Option<PathBuf> = None, OptionalSocketPath;
        /// The group that may connect to `admin.agent_socket`. A directory that is created for the socket is for this group.
        agent_group: u32 = 65532, GroupNameOrId;
        /// Host names that clients such as Prometheus use to reach `admin.listen`, in addition to IP addresses,
        /// `localhost` and the host name of the node; `.example.com` allows every name below it. Requests for other
        /// hosts are refused with 421, which protects the endpoint against DNS rebinding.
        allowed_hosts: Vec<String> = Vec::new(), ListOf { of: HostName, words: "an array of host names" };
        /// The page of a trace in Grafana, Jaeger or another viewer, with `{trace_id}` in the place of its id. Pages of pods
        /// link to it. It helps if traces are exported (`telemetry.otlp`).
        trace_url: Option<String> = None, OptionalValue(TracePageUrl),
            or "no links" like "\"https://jaeger.example/trace/{trace_id}\"";
    }
}

settings! {
    /// Metrics and health for clients beyond this node: `/metrics`, `/livez` and `/readyz`, and nothing else.
    pub struct MetricsEndpointSettings in "metrics" {
        /// TCP address of the endpoint, such as `0.0.0.0:9481`. It refuses all clients while `metrics.web_config` cannot be used.
        listen: Option<SocketAddr> = None, ListenAddress;
        /// TLS, client certificates, passwords and tokens: a
        /// [web configuration file](https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md) as
        /// exporters of Prometheus have ([ALERTS.md](ALERTS.md#beyond-the-node)). It is read for each connection.
        web_config: PathBuf = PathBuf::from("/etc/criscope/web.yaml"), FilePath;
    }
}

impl AdminSettings {
    /// Reads the section, and refuses a socket for agents in the directory of another socket.
    pub(crate) fn checked(reader: &mut SettingsReader<'_>, listen: &Path) -> Self {
        let scope = reader.section("admin");
        let admin = Self::read_at(reader, &scope, listen);
        if let Some(key) = admin.beside_agents(listen) {
            let problem = format!(
                "{key} is in its directory, which pods mount; give it a directory of its own"
            );
            reader.fail_at(
                &scope,
                &Self::agent_socket,
                ConfigProblem::Conflict(problem),
            );
        }
        admin
    }

    /// The key of a socket in or below the directory of the socket for agents.
    fn beside_agents(&self, listen: &Path) -> Option<&'static str> {
        let directory = lexical(self.agent_socket.as_deref()?.parent()?);
        let others = [
            ("server.listen", Some(listen)),
            ("admin.socket", self.socket.as_deref()),
        ];
        let mut beside = others
            .into_iter()
            .filter(|(_, path)| path.is_some_and(|path| lexical(path).starts_with(&directory)));
        beside.next().map(|(key, _)| key)
    }
}

/// No socket if the longer ending makes the path too long for one.
fn beside(listen: &Path) -> Option<PathBuf> {
    Some(listen.with_extension("admin.sock")).filter(|path| fits(path))
}
