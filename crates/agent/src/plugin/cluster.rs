//! The agents of a cluster, asked through its API server with the user's own rights.

use std::error::Error;
use std::time::Duration;

use criscope_pages::source::PageReply;
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

use crate::{AGENT_PORT, AUDIENCE, NODE_HEADER, READER_ACCOUNT, STORIES_PREFIX, TOKEN_HEADER};

/// Lifetime of a token in seconds: the shortest that API servers issue.
const TOKEN_SECONDS: i64 = 600;

/// Timeout of one node. The command that draws the answers waits 5 s.
const NODE_TIMEOUT: Duration = Duration::from_secs(4);

/// Upper bound of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Largest reply of a node, in bytes.
const MAX_REPLY_LEN: usize = 16 << 20;

/// The labels of agents.
pub const SELECTOR: &str = "app.kubernetes.io/name=criscope,app.kubernetes.io/component=agent";

/// The reason why a cluster cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The API server cannot be reached.
    #[error("cannot reach the API server {server}: {cause}")]
    Unreachable {
        /// The address in the kubeconfig.
        server: String,
        /// The innermost reason.
        cause: String,
    },
    /// The credentials of the kubeconfig cannot be used.
    #[error("cannot log in: {0}")]
    Login(String),
    /// The API server does not know the user.
    #[error("the API server {0} does not accept the credentials: {1}")]
    Unauthorized(String, String),
    /// The agents cannot be listed.
    #[error("cannot list the agents of criscope in namespace {0}: {1}")]
    List(String, String),
    /// The namespace has no agents.
    #[error("no agent of criscope runs in namespace {0}")]
    NoAgents(String),
    /// The node has no agent.
    #[error("no agent of criscope runs on node {0}")]
    NoAgent(String),
    /// No token for agents.
    #[error("cannot get a token for the service account {0}/{READER_ACCOUNT}: {1}")]
    Token(String, String),
    /// The pod cannot be read.
    #[error("cannot get pod {0}: {1}")]
    Pod(String, String),
    /// The pod has not been scheduled.
    #[error("pod {0} is on no node yet: no criscope knows it")]
    Unscheduled(String),
}

impl ClusterError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => Some(
                "does `kubectl get nodes` work? Choose another cluster with --context or --kubeconfig",
            ),
            Self::Login(_) | Self::Unauthorized(..) => {
                Some("does `kubectl auth whoami` work? The token or certificate may have expired")
            }
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
pub struct NodeAgent {
    /// The name of the node.
    pub node: String,
    /// The name of the agent's pod.
    pub pod: String,
    /// Set if the containers of the pod are ready.
    pub ready: bool,
    /// The image of the agent.
    pub image: Option<String>,
    /// The Secrets for pulling the image.
    pub pull_secrets: Vec<String>,
}

/// The reason why a node did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// No answer within four seconds.
    #[error("no answer within {} s", NODE_TIMEOUT.as_secs())]
    Timeout,
    /// The API server refused the request, or could not reach the agent.
    #[error("{0}")]
    ApiServer(String),
    /// The agent refused the request.
    #[error("the agent answered with {0}: {1}")]
    Agent(StatusCode, String),
}

/// The part that is shown of a `Status` of the API server.
#[derive(Debug, Deserialize)]
struct StatusMessage {
    message: String,
}

/// The agents of a cluster.
pub struct Cluster {
    client: kube::Client,
    namespace: String,
    agents: Vec<NodeAgent>,
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
    /// If the user has no right to do so, or there are no agents.
    pub async fn new(
        client: kube::Client,
        server: &str,
        namespace: &str,
    ) -> Result<Self, ClusterError> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let listed = pods.list(&ListParams::default().labels(SELECTOR)).await;
        let listed = listed.map_err(|error| first_error(&error, server, namespace))?;
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
                expiration_seconds: Some(TOKEN_SECONDS),
                bound_object_ref: None,
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(READER_ACCOUNT, &PostParams::default(), &request)
            .await
            .map_err(|error| ClusterError::Token(namespace.to_owned(), said(&error)))?;
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            agents,
            token: answer.status.map(|status| status.token).unwrap_or_default(),
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
    pub fn agents(&self) -> &[NodeAgent] {
        &self.agents
    }

    /// The agent of a node.
    ///
    /// # Errors
    /// If there is none.
    pub fn agent_of(&self, node: &str) -> Result<&NodeAgent, ClusterError> {
        let found = self.agents.iter().find(|agent| agent.node == node);
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
        let path = format!("{namespace}/{name}");
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let found = pods.get_opt(name).await;
        match found {
            Err(error) => Err(ClusterError::Pod(path, said(&error))),
            Ok(None) => Ok(None),
            Ok(Some(pod)) => match pod.spec.and_then(|spec| spec.node_name) {
                Some(node) => Ok(Some(node)),
                None => Err(ClusterError::Unscheduled(path)),
            },
        }
    }

    /// Asks a node for a page of its daemon.
    ///
    /// # Errors
    /// If the daemon does not answer. An answer with any status is no error.
    pub async fn ask(&self, agent: &NodeAgent, page: &str) -> Result<PageReply, NodeError> {
        let asked = timeout(NODE_TIMEOUT, self.proxied(agent, page)).await;
        asked.unwrap_or(Err(NodeError::Timeout))
    }

    /// Asks all nodes concurrently. Returns the replies by name of the node. A node that does not answer delays no other.
    pub async fn ask_all(&self, page: &str) -> Vec<(&NodeAgent, Result<PageReply, NodeError>)> {
        let asked = self.agents.iter();
        let asked: Vec<_> = asked
            .map(|agent| async move { (agent, self.ask(agent, page).await) })
            .collect();
        let asked = stream::iter(asked).buffer_unordered(MAX_CONCURRENT_REQUESTS);
        let mut replies: Vec<_> = asked.collect().await;
        replies.sort_by_key(|(agent, _)| *agent);
        replies
    }

    async fn proxied(&self, agent: &NodeAgent, page: &str) -> Result<PageReply, NodeError> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/https:{}:{AGENT_PORT}/proxy{STORIES_PREFIX}{page}",
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
        let body = Limited::new(body, MAX_REPLY_LEN).collect().await;
        let body = body.map_err(|error| broken(&error))?.to_bytes();
        if head.headers.get(NODE_HEADER).is_none() {
            let message =
                serde_json::from_slice::<StatusMessage>(&body).map(|status| status.message);
            let message =
                message.unwrap_or_else(|_| format!("the API server answered with {}", head.status));
            return Err(NodeError::ApiServer(message));
        }
        match head.status {
            StatusCode::OK | StatusCode::NOT_FOUND => Ok(PageReply {
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

/// What went wrong with the first request: the way to the API server, the credentials, or the right.
fn first_error(error: &kube::Error, server: &str, namespace: &str) -> ClusterError {
    let server = server.trim_end_matches('/').to_owned();
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            ClusterError::Unauthorized(server, status.message.clone())
        }
        kube::Error::Auth(error) => ClusterError::Login(innermost(error)),
        kube::Error::Service(error) => match error.downcast_ref::<kube::client::AuthError>() {
            Some(error) => ClusterError::Login(innermost(error)),
            None => ClusterError::Unreachable {
                server,
                cause: innermost(&**error),
            },
        },
        kube::Error::HyperError(error) => ClusterError::Unreachable {
            server,
            cause: innermost(error),
        },
        other => ClusterError::List(namespace.to_owned(), said(other)),
    }
}

/// The reason at the end of a chain of errors: those before it only name the layers.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn agent(pod: &Pod) -> Option<NodeAgent> {
    let status = pod.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let spec = pod.spec.as_ref()?;
    let secrets = spec.image_pull_secrets.iter().flatten();
    Some(NodeAgent {
        node: spec.node_name.clone()?,
        image: spec
            .containers
            .first()
            .and_then(|container| container.image.clone()),
        pull_secrets: secrets.map(|secret| secret.name.clone()).collect(),
        pod: pod.metadata.name.clone()?,
        ready: conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
    })
}

fn broken(error: &dyn ToString) -> NodeError {
    NodeError::ApiServer(error.to_string())
}

/// The API server's message in an error, without the form around it.
pub(super) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
