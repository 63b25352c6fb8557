//! The agents of a cluster, asked through its API server with the user's own rights.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use crate::{AUDIENCE, NODE_HEADER, PORT, READER, STORIES, TOKEN_HEADER};

/// How long a token is valid, in seconds: the shortest that API servers issue.
const VALID: i64 = 600;

/// Timeout of one node. The command that draws the answers waits five seconds.
const PATIENCE: Duration = Duration::from_secs(4);

/// Most requests at once.
const AT_ONCE: usize = 64;

/// The largest answer of a node, in bytes.
const ENOUGH: usize = 16 << 20;

/// The labels of agents.
pub const SELECTOR: &str = "app.kubernetes.io/name=criscope,app.kubernetes.io/component=agent";

/// Why a cluster cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The kubeconfig is not usable, or the API server is away.
    #[error("{0}")]
    Kube(#[from] kube::Error),
    /// The agents cannot be listed.
    #[error("cannot list the agents of criscope in namespace {0}: {1}")]
    List(String, String),
    /// There are none.
    #[error("no agent of criscope runs in namespace {0}")]
    NoAgents(String),
    /// There is none on that node.
    #[error("no agent of criscope runs on node {0}")]
    NoAgent(String),
    /// No token for agents.
    #[error("cannot get a token for the service account {0}/{READER}: {1}")]
    Token(String, String),
    /// The pod cannot be read.
    #[error("cannot get pod {0}: {1}")]
    Pod(String, String),
    /// It has not been scheduled.
    #[error("pod {0} is on no node yet: no criscope knows it")]
    Unscheduled(String),
}

impl ClusterError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoAgents(_) => Some("is it installed? Name its namespace with --agent-namespace"),
            Self::List(..) | Self::Token(..) => Some(
                "a RoleBinding to the Role criscope-user in that namespace gives the rights, see deploy/kubernetes",
            ),
            Self::NoAgent(_) => {
                Some("does the DaemonSet tolerate the taints of the node, and is its pod ready?")
            }
            _ => None,
        }
    }
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agent {
    /// Its node.
    pub node: String,
    /// The name of its pod.
    pub pod: String,
    /// Whether its containers are ready.
    pub ready: bool,
    /// Its image.
    pub image: Option<String>,
    /// The Secrets with which that is pulled.
    pub pull_secrets: Vec<String>,
}

/// An answer of a node.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: StatusCode,
    /// JSON.
    pub body: Bytes,
}

/// Why a node did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Not within four seconds.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
    /// Refused by the API server, or it could not reach the agent.
    #[error("{0}")]
    ApiServer(String),
    /// Refused by the agent.
    #[error("the agent answered with {0}: {1}")]
    Agent(StatusCode, String),
}

/// The part of a `Status` of the API server that is shown.
#[derive(Debug, Deserialize)]
struct Message {
    message: String,
}

/// See the module.
pub struct Cluster {
    client: kube::Client,
    namespace: String,
    agents: Vec<Agent>,
    token: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let agents = &self.agents;
        f.debug_struct("Cluster")
            .field("agents", agents)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Finds the agents in this namespace, and gets a token for them.
    ///
    /// # Errors
    /// If the user may not, or there are none.
    pub async fn new(client: kube::Client, namespace: &str) -> Result<Self, ClusterError> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let listed = pods.list(&ListParams::default().labels(SELECTOR)).await;
        let listed =
            listed.map_err(|error| ClusterError::List(namespace.to_owned(), said(&error)))?;
        let mut agents: Vec<_> = listed.items.iter().filter_map(agent).collect();
        if agents.is_empty() {
            return Err(ClusterError::NoAgents(namespace.to_owned()));
        }
        // While an agent is replaced there are two on its node: the ready one, or any.
        agents.sort_by(|a, b| (&a.node, !a.ready, &a.pod).cmp(&(&b.node, !b.ready, &b.pod)));
        agents.dedup_by(|a, b| a.node == b.node);
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![AUDIENCE.to_owned()],
                expiration_seconds: Some(VALID),
                bound_object_ref: None,
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(READER, &PostParams::default(), &request)
            .await
            .map_err(|error| ClusterError::Token(namespace.to_owned(), said(&error)))?;
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            agents,
            token: answer.status.map(|it| it.token).unwrap_or_default(),
        })
    }

    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The namespace of the agents.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The agents, one per node, by name of the node.
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// The agent of a node.
    ///
    /// # Errors
    /// If there is none.
    pub fn agent_of(&self, node: &str) -> Result<&Agent, ClusterError> {
        let found = self.agents.iter().find(|it| it.node == node);
        found.ok_or_else(|| ClusterError::NoAgent(node.to_owned()))
    }

    /// The node of a pod; `None` if the API server does not have the pod.
    ///
    /// # Errors
    /// If it cannot be asked, or the pod is on no node.
    pub async fn node_of(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, ClusterError> {
        let path = || format!("{namespace}/{name}");
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let found = pods.get_opt(name).await;
        let found = found.map_err(|error| ClusterError::Pod(path(), said(&error)))?;
        let Some(pod) = found else { return Ok(None) };
        let node = pod.spec.and_then(|it| it.node_name);
        node.map(Some)
            .ok_or_else(|| ClusterError::Unscheduled(path()))
    }

    /// Asks a node for a page of its daemon.
    ///
    /// # Errors
    /// If there is no answer of the daemon; any status of it is one.
    pub async fn ask(&self, agent: &Agent, page: &str) -> Result<Reply, NodeError> {
        let asked = timeout(PATIENCE, self.proxied(agent, page)).await;
        asked.unwrap_or(Err(NodeError::Timeout))
    }

    /// Asks all nodes side by side; the answers by name of the node. One that does not answer holds no other up.
    pub async fn ask_all(&self, page: &str) -> Vec<(&Agent, Result<Reply, NodeError>)> {
        let asked = self.agents.iter();
        let asked: Vec<_> = asked
            .map(|agent| async move { (agent, self.ask(agent, page).await) })
            .collect();
        let asked = stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut replies: Vec<_> = asked.collect().await;
        replies.sort_by_key(|(agent, _)| *agent);
        replies
    }

    async fn proxied(&self, agent: &Agent, page: &str) -> Result<Reply, NodeError> {
        let broken = |error: &dyn ToString| NodeError::ApiServer(error.to_string());
        let path = format!(
            "/api/v1/namespaces/{}/pods/https:{}:{PORT}/proxy{STORIES}{page}",
            self.namespace, agent.pod
        );
        let request = Request::get(path).header(TOKEN_HEADER, &self.token);
        let request = request
            .body(Body::empty())
            .map_err(|error| broken(&error))?;
        let response = self.client.send(request).await;
        let (head, body) = response
            .map_err(|error| broken(&said(&error)))?
            .into_parts();
        let body = Limited::new(body, ENOUGH).collect().await;
        let body = body.map_err(|error| broken(&error))?.to_bytes();
        if head.headers.get(NODE_HEADER).is_none() {
            let message = serde_json::from_slice::<Message>(&body).map(|it| it.message);
            let message =
                message.unwrap_or_else(|_| format!("the API server answered with {}", head.status));
            return Err(NodeError::ApiServer(message));
        }
        match head.status {
            StatusCode::OK | StatusCode::NOT_FOUND => Ok(Reply {
                status: head.status,
                body,
            }),
            status => {
                let text = String::from_utf8_lossy(&body).trim().to_owned();
                Err(NodeError::Agent(status, text))
            }
        }
    }
}

fn agent(pod: &Pod) -> Option<Agent> {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|it| it.conditions.as_deref())
        .unwrap_or_default();
    let spec = pod.spec.as_ref()?;
    let secrets = spec.image_pull_secrets.iter().flatten();
    Some(Agent {
        node: spec.node_name.clone()?,
        image: spec.containers.first().and_then(|it| it.image.clone()),
        pull_secrets: secrets.map(|it| it.name.clone()).collect(),
        pod: pod.metadata.name.clone()?,
        ready: conditions
            .iter()
            .any(|it| it.type_ == "Ready" && it.status == "True"),
    })
}

/// What the API server said, without the form around it.
pub(super) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
