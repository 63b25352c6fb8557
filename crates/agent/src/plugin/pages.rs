//! The pages that commands show, answered by a cluster instead of one daemon.

use std::sync::Mutex;

use bytes::Bytes;
use criscope_pages::source::{PageError, PageReply, PageSource};
use criscope_pages::view::{NodeVerdict, PodList, UnknownPod, sort_pods};
use http::StatusCode;

use super::cluster::{Cluster, NodeAgent, NodeError};

/// The cluster, and the nodes that did not answer.
#[derive(Debug)]
pub struct ClusterPages {
    cluster: Cluster,
    /// The agent to ask; `None` for all agents.
    node: Option<NodeAgent>,
    /// Number of pods of a list that is limited to the slowest.
    limit: Option<usize>,
    /// Nodes that did not answer the last request, with the reason.
    silent: Mutex<Vec<String>>,
}

impl ClusterPages {
    /// Pages of a node, or of all nodes. A list has at most `limit` pods, the slowest first.
    pub fn new(cluster: Cluster, node: Option<NodeAgent>, limit: Option<usize>) -> Self {
        Self {
            cluster,
            node,
            limit,
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

    async fn ask_all(&self, page: &str) -> (PageReply, Vec<String>) {
        let mut known = Vec::new();
        let mut silent = Vec::new();
        for (agent, reply) in self.cluster.ask_all(page).await {
            match reply {
                Ok(reply) => known.push((agent, reply)),
                Err(error) => silent.push(line(agent, &error)),
            }
        }
        let reply = match page.split('?').next() {
            Some("/debug/pods") => merged(&known, self.limit),
            _ => first(known),
        };
        (reply.unwrap_or_else(away), silent)
    }
}

impl PageSource for ClusterPages {
    fn address(&self) -> &str {
        self.node
            .as_ref()
            .map_or("the cluster", |agent| &agent.node)
    }

    async fn get(&self, page: &str) -> Result<PageReply, PageError> {
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
        Ok(reply)
    }
}

fn line(agent: &NodeAgent, error: &NodeError) -> String {
    format!("node {} did not answer: {error}", agent.node)
}

fn away() -> PageReply {
    PageReply {
        status: StatusCode::BAD_GATEWAY,
        body: Bytes::new(),
    }
}

/// The pods of all nodes that answered, each with its node, in the order that a single node uses.
fn merged(known: &[(&NodeAgent, PageReply)], limit: Option<usize>) -> Option<PageReply> {
    let mut all: Option<PodList> = None;
    let mut verdict = NodeVerdict::default();
    for (agent, reply) in known {
        let Ok(mut pods) = serde_json::from_slice::<PodList>(&reply.body) else {
            continue;
        };
        for pod in &mut pods.pods {
            pod.node = Some(agent.node.clone());
        }
        for trouble in &mut pods.verdict.node {
            trouble.text = format!("node {}: {}", agent.node, trouble.text);
        }
        verdict.join(std::mem::take(&mut pods.verdict));
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
    sort_pods(&mut all.pods, limit.is_some());
    all.pods.truncate(limit.unwrap_or(usize::MAX));
    all.verdict = verdict;
    Some(PageReply {
        status: StatusCode::OK,
        body: serde_json::to_vec(&all).ok()?.into(),
    })
}

/// The reply of the node that knows the pod, else an error that no node does.
fn first(known: Vec<(&NodeAgent, PageReply)>) -> Option<PageReply> {
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
    Some(PageReply {
        status: StatusCode::NOT_FOUND,
        body: serde_json::to_vec(&unknown).ok()?.into(),
    })
}
