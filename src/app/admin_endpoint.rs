//! The admin endpoint of the daemon: pages over TCP, metrics for other machines, and the sockets of root and of agents.

use std::io;
use std::net::TcpListener;

use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::build::ProcessParts;
use super::{ROOT_ONLY_MODE, ServeError};
use crate::admin;
use crate::config::Config;
use crate::proxy::listener::{BoundSocket, SocketFile};
use crate::telemetry::logging::LogHandle;
use crate::tls::CertificateMetrics;

/// The sockets of the admin endpoint; each is `None` if it is off.
pub(super) struct AdminSockets {
    pages: Option<TcpListener>,
    metrics: Option<TcpListener>,
    root: Option<BoundSocket>,
    agents: Option<BoundSocket>,
}

/// The tasks that serve the endpoint, and the files of its unix sockets, which are removed when this is dropped.
#[derive(Default)]
pub(super) struct AdminTasks {
    serving: Vec<JoinHandle<io::Result<()>>>,
    files: Vec<SocketFile>,
}

impl AdminTasks {
    /// Waits until the addresses are free, after `stop`.
    pub(super) async fn ended(&mut self) {
        join_all(self.serving.drain(..)).await;
        self.files.clear();
    }
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

    /// Serves until `stop`.
    pub(super) fn serve(
        self,
        built: &ProcessParts,
        config: &Config,
        log: &LogHandle,
        certificates: CertificateMetrics,
        side: &Runtime,
        stop: &CancellationToken,
    ) -> AdminTasks {
        let sources = built.sources(config, log.clone());
        let mut tasks = AdminTasks::default();
        if let Some(listener) = self.pages {
            let settings = config.admin.clone();
            let pages = admin::serve(listener, sources.clone(), settings, stop.clone());
            tasks.serving.push(side.spawn(pages));
        }
        if let Some(listener) = self.metrics {
            let settings = config.metrics.clone();
            tasks.serving.push(side.spawn(admin::remote::serve(
                listener,
                sources.clone(),
                settings,
                certificates,
                stop.clone(),
            )));
        }
        if let Some((listener, file)) = self.root.map(BoundSocket::into_parts) {
            let socket = admin::serve_socket(listener, sources.clone(), stop.clone());
            tasks.serving.push(side.spawn(socket));
            tasks.files.extend(file);
        }
        if let Some((listener, file)) = self.agents.map(BoundSocket::into_parts) {
            let agents = admin::serve_agents(listener, sources, stop.clone());
            tasks.serving.push(side.spawn(agents));
            tasks.files.extend(file);
        }
        tasks
    }
}
