//! The admin endpoint of the daemon: pages over TCP, metrics for other machines, and the sockets of root and of agents.

use std::net::TcpListener;

use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::build::ProcessParts;
use super::{ROOT_ONLY_MODE, ServeError};
use crate::admin;
use crate::config::Config;
use crate::proxy::listener::BoundSocket;
use crate::telemetry::logging::LogHandle;
use crate::tls::CertificateMetrics;

/// The sockets of the admin endpoint; each is `None` if it is off.
pub(super) struct AdminSockets {
    pages: Option<TcpListener>,
    metrics: Option<TcpListener>,
    root: Option<BoundSocket>,
    agents: Option<BoundSocket>,
}

impl AdminSockets {
    pub(super) fn bind(config: &Config) -> Result<Self, ServeError> {
        let pages = config.admin.listen.map(admin::bind).transpose()?;
        let metrics = config.metrics.listen.map(admin::bind).transpose()?;
        let root = config.admin.socket.as_deref();
        let root = root.map(|path| BoundSocket::bind(path, ROOT_ONLY_MODE, None));
        let agents = config.admin.agent_socket.as_deref();
        let agents = agents.map(|path| BoundSocket::bind_for_group(path, config.admin.agent_group));
        Ok(Self {
            pages,
            metrics,
            root: root.transpose()?,
            agents: agents.transpose()?,
        })
    }

    /// Serves until `stop`. Returns a guard that removes the files of the unix sockets.
    pub(super) fn serve(
        self,
        built: &ProcessParts,
        config: &Config,
        log: &LogHandle,
        certificates: CertificateMetrics,
        side: &Runtime,
        stop: &CancellationToken,
    ) -> impl Sized + use<> {
        let sources = built.sources(config, log.clone());
        if let Some(listener) = self.pages {
            let settings = config.admin.clone();
            let pages = admin::serve(listener, sources.clone(), settings, stop.clone());
            side.spawn(pages);
        }
        if let Some(listener) = self.metrics {
            let settings = config.metrics.clone();
            side.spawn(admin::remote::serve(
                listener,
                sources.clone(),
                settings,
                certificates,
                stop.clone(),
            ));
        }
        let mut files = Vec::new();
        if let Some((listener, file)) = self.root.map(BoundSocket::into_parts) {
            let socket = admin::serve_socket(listener, sources.clone(), stop.clone());
            side.spawn(socket);
            files.push(file);
        }
        if let Some((listener, file)) = self.agents.map(BoundSocket::into_parts) {
            side.spawn(admin::serve_agents(listener, sources, stop.clone()));
            files.push(file);
        }
        files
    }
}
