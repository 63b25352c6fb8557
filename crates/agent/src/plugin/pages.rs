//! The pages that the commands of criscope read, answered by a cluster instead of one daemon, over a private socket.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use criscope::lifecycle::view::{PodList, UnknownPod, sort_pods};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;

use super::cluster::{Cluster, NodeAgent, NodeError, NodeReply};

/// The cluster, and the nodes that did not answer.
#[derive(Debug)]
pub struct ClusterPages {
    cluster: Cluster,
    /// The agent to ask; `None` for all agents.
    node: Option<NodeAgent>,
    /// Nodes that did not answer the last request, with the reason.
    silent: Mutex<Vec<String>>,
}

impl ClusterPages {
    /// Pages of a node, or of all nodes.
    pub fn new(cluster: Cluster, node: Option<NodeAgent>) -> Self {
        Self {
            cluster,
            node,
            silent: Mutex::default(),
        }
    }

    /// The nodes that did not answer the last request, with the reason, one line each.
    pub fn silent(&self) -> Vec<String> {
        self.silent
            .lock()
            .map(|silent| silent.clone())
            .unwrap_or_default()
    }

    /// Answers on this socket from now on.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn serve(self: &Arc<Self>, socket: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        let pages = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let pages = Arc::clone(&pages);
                let answer = service_fn(move |request: Request<Incoming>| {
                    let pages = Arc::clone(&pages);
                    async move { Ok::<_, Infallible>(pages.answer(&request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok(())
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let page = request.uri().path_and_query();
        let page = page.map_or("/", |page| page.as_str());
        let (reply, silent) = match &self.node {
            Some(agent) => match self.cluster.ask(agent, page).await {
                Ok(reply) => (reply, Vec::new()),
                Err(error) => (away(), vec![line(agent, &error)]),
            },
            None => self.ask_all(page).await,
        };
        if let Ok(mut last) = self.silent.lock() {
            *last = silent;
        }
        let mut response = Response::new(Full::new(reply.body));
        *response.status_mut() = reply.status;
        response
    }

    async fn ask_all(&self, page: &str) -> (NodeReply, Vec<String>) {
        let mut known = Vec::new();
        let mut silent = Vec::new();
        for (agent, reply) in self.cluster.ask_all(page).await {
            match reply {
                Ok(reply) => known.push((agent, reply)),
                Err(error) => silent.push(line(agent, &error)),
            }
        }
        let reply = match page.split('?').next() {
            Some("/debug/pods") => merged(&known),
            _ => first(known),
        };
        (reply.unwrap_or_else(away), silent)
    }
}

fn line(agent: &NodeAgent, error: &NodeError) -> String {
    format!("node {} did not answer: {error}", agent.node)
}

fn away() -> NodeReply {
    NodeReply {
        status: StatusCode::BAD_GATEWAY,
        body: Bytes::new(),
    }
}

/// The pods of all nodes that answered, each with its node, in the order that a single node uses.
fn merged(known: &[(&NodeAgent, NodeReply)]) -> Option<NodeReply> {
    let mut all: Option<PodList> = None;
    for (agent, reply) in known {
        let Ok(mut pods) = serde_json::from_slice::<PodList>(&reply.body) else {
            continue;
        };
        for pod in &mut pods.pods {
            pod.node = Some(agent.node.clone());
        }
        match &mut all {
            None => all = Some(pods),
            Some(all) => {
                // Clocks differ. Ages count from the latest clock, so that none is negative.
                all.now_unix_us = all.now_unix_us.max(pods.now_unix_us);
                all.pods.append(&mut pods.pods);
                all.known += pods.known;
                all.forgotten += pods.forgotten;
            }
        }
    }
    let mut all = all?;
    sort_pods(&mut all.pods, false);
    Some(NodeReply {
        status: StatusCode::OK,
        body: serde_json::to_vec(&all).ok()?.into(),
    })
}

/// The reply of the node that knows the pod, else an error that no node does.
fn first(known: Vec<(&NodeAgent, NodeReply)>) -> Option<NodeReply> {
    let mut unknown: Option<UnknownPod> = None;
    for (_, reply) in known {
        if reply.status == StatusCode::OK {
            return Some(reply);
        }
        if let Ok(mut answer) = serde_json::from_slice::<UnknownPod>(&reply.body) {
            // Notes on the state of one node say nothing about the others.
            answer.notes.clear();
            match &mut unknown {
                None => unknown = Some(answer),
                Some(unknown) => {
                    unknown.known += answer.known;
                    unknown.near.append(&mut answer.near);
                }
            }
        }
    }
    let mut unknown = unknown?;
    unknown.near.truncate(5);
    Some(NodeReply {
        status: StatusCode::NOT_FOUND,
        body: serde_json::to_vec(&unknown).ok()?.into(),
    })
}
