//! What stands in for an API server: the endpoints that agent and plugin use, over TLS, with the checks of a real one.

mod events;
mod hold;
mod leases;
mod objects;
mod pods;
pub(crate) mod proxy;
mod reviews;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::events::v1::Event;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use self::leases::Leases;
use crate::rbac::{Action, Rbac, User};
use crate::support::{parse, read};

/// The audience of the API server itself.
const OWN: &str = "https://kubernetes.default.svc";

/// Bindings that an administrator would make: alice may use the plugin and view pods in shop, Prometheus may scrape.
pub(crate) const BOUND: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: criscope-users, namespace: criscope}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: criscope-user}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view}
rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: criscope-metrics}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: criscope-rollout, namespace: criscope-node}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: criscope-rollout}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: criscope-capturers, namespace: criscope-node}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: criscope-capturer}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
";

/// A token: whose, and for which audiences.
type Token = (User, Vec<String>);

#[derive(Debug)]
pub(crate) struct State {
    rbac: Rbac,
    tokens: Mutex<HashMap<String, Token>>,
    pub(crate) events: Mutex<BTreeMap<String, Event>>,
    pub(crate) leases: Mutex<Leases>,
    pub(crate) daemon_set: Mutex<Value>,
    /// Nodes by name.
    pub(crate) nodes: Mutex<BTreeMap<String, Value>>,
    /// Pods by namespace and name.
    pods: Mutex<BTreeMap<String, Value>>,
    /// What their containers printed.
    logs: Mutex<BTreeMap<String, String>>,
    /// What stands in for criscope on the nodes.
    pub(crate) criscope: Mutex<PathBuf>,
    /// Where agents listen, by name of their pod.
    agents: Mutex<HashMap<String, SocketAddr>>,
    /// Method, path and status of every request.
    pub(crate) log: Mutex<Vec<String>>,
    held: Mutex<Option<hold::HeldRequests>>,
}

#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) server: String,
    pub(crate) ca: PathBuf,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) state: Arc<State>,
}

impl Api {
    pub(crate) async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let dir = tempfile::tempdir().expect("a directory");
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, made.cert.pem()).expect("written");
        let own = || vec![OWN.to_owned()];
        let account = |namespace, name| (User::account(namespace, name), own());
        let tokens = HashMap::from([
            ("agent".to_owned(), account("criscope", "criscope-agent")),
            (
                "installer".to_owned(),
                account("criscope-node", "criscope-installer"),
            ),
            (
                "uninstaller".to_owned(),
                account("criscope-node", "criscope-uninstaller"),
            ),
            ("prometheus".to_owned(), account("monitoring", "prometheus")),
            ("alice".to_owned(), (User::named("alice"), own())),
            ("bob".to_owned(), (User::named("bob"), own())),
        ]);
        let state = Arc::new(State {
            rbac: Rbac::of(&[
                &read("base/agent/rbac.yaml"),
                &read("base/install/rbac.yaml"),
                BOUND,
            ]),
            tokens: Mutex::new(tokens),
            events: Mutex::default(),
            leases: Mutex::default(),
            daemon_set: Mutex::default(),
            nodes: Mutex::default(),
            pods: Mutex::default(),
            logs: Mutex::default(),
            criscope: Mutex::default(),
            agents: Mutex::default(),
            log: Mutex::default(),
            held: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let server = format!("https://{}", listener.local_addr().expect("bound"));
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&served));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let answer = service_fn(move |request| {
                        let state = Arc::clone(&state);
                        // A request is carried out even if its client has gone.
                        let answer = tokio::spawn(async move { state.answer(request).await });
                        async move { Ok::<_, Infallible>(answer.await.expect("no panic")) }
                    });
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
        Self {
            server,
            ca,
            dir,
            state,
        }
    }

    /// A kubeconfig with this token.
    pub(crate) fn kubeconfig(&self, token: &str) -> PathBuf {
        crate::support::kubeconfig(self.dir.path(), &self.server, &self.ca, token)
    }

    /// Adds a pod that runs on a node; it is an agent if it has an address.
    pub(crate) fn add_pod(
        &self,
        namespace: &str,
        name: &str,
        node: Option<&str>,
        agent: Option<SocketAddr>,
    ) {
        let labels = match agent {
            Some(_) => {
                json!({"app.kubernetes.io/name": "criscope", "app.kubernetes.io/component": "agent"})
            }
            None => json!({}),
        };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "criscope:test"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.state
            .pods
            .lock()
            .expect("pods")
            .insert(format!("{namespace}/{name}"), pod);
        if let Some(address) = agent {
            self.state
                .agents
                .lock()
                .expect("agents")
                .insert(name.to_owned(), address);
        }
    }

    /// How many requests of this beginning there were, such as `POST /apis/events`.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        let log = self.state.log.lock().expect("log");
        log.iter().filter(|it| it.starts_with(beginning)).count()
    }
}

/// The status of a request that fails, and why.
type Refusal = (StatusCode, String);

pub(super) type Reply = Result<(StatusCode, Value), Refusal>;

pub(super) fn status(code: StatusCode, message: &str) -> Value {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    })
}

impl State {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let line = format!("{} {}", request.method(), request.uri().path());
        self.wait_if_held(&line).await;
        let response = self.respond(request).await;
        let mut log = self.log.lock().expect("log");
        log.push(format!("{line} {}", response.status().as_u16()));
        response
    }

    async fn respond(self: &Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let query = head.uri.query().unwrap_or_default();
        let is_watch = query
            .split('&')
            .any(|part| part == "watch=true" || part == "watch=1");
        let target = Target::of(head.uri.path());
        let answer = match (self.user(&head.headers), &target) {
            (None, _) => Err((StatusCode::UNAUTHORIZED, "Unauthorized".to_owned())),
            (_, None) => Err(absent(&head)),
            (Some(user), Some(target)) => {
                let verb = if is_watch {
                    "watch"
                } else {
                    target.verb(&head.method)
                };
                match self.may(&user, verb, target) {
                    Ok(()) if is_watch && target.resource == "leases" => {
                        return self.watch_leases(query).await;
                    }
                    Ok(()) if target.resource == "pods/proxy" => {
                        return self.proxy(target.name, &head).await;
                    }
                    Ok(()) if target.resource == "pods/log" => {
                        return Response::new(self.log_of(target.namespace, target.name).into());
                    }
                    Ok(()) => self.object(target, &head, &body),
                    Err(refused) => Err(refused),
                }
            }
        };
        match answer {
            Ok((code, value)) => json_response(code, &value),
            Err((code, text)) => json_response(code, &status(code, &text)),
        }
    }

    fn user(&self, headers: &http::HeaderMap) -> Option<User> {
        let token = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let tokens = self.tokens.lock().expect("tokens");
        let (user, audiences) = tokens.get(token.strip_prefix("Bearer ")?)?;
        audiences.iter().any(|it| it == OWN).then(|| user.clone())
    }

    fn may(&self, user: &User, verb: &str, target: &Target<'_>) -> Result<(), Refusal> {
        let Target {
            group,
            namespace,
            resource,
            name,
        } = target;
        let action = Action::Resource {
            verb,
            group,
            resource,
            namespace,
            name,
        };
        if self.rbac.allows(user, action) {
            Ok(())
        } else {
            Err((
                StatusCode::FORBIDDEN,
                format!(
                    "{resource} {name:?} is forbidden: User {:?} cannot {verb} resource {resource:?} in API group {group:?} in the namespace {namespace:?}",
                    user.name
                ),
            ))
        }
    }

    fn object(
        self: &Arc<Self>,
        target: &Target<'_>,
        head: &http::request::Parts,
        body: &[u8],
    ) -> Reply {
        let value = || {
            serde_json::from_slice::<Value>(body)
                .map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))
        };
        let (namespace, name) = (target.namespace, target.name);
        match (&*target.resource, target.verb(&head.method)) {
            ("tokenreviews", "create") => {
                Ok((StatusCode::CREATED, self.review_token(parse(value()?))))
            }
            ("subjectaccessreviews", "create") => {
                Ok((StatusCode::CREATED, self.review_access(parse(value()?))))
            }
            ("events", "create") => self.create_event(namespace, parse(value()?)),
            ("events", "patch") => {
                assert_eq!(
                    head.headers[header::CONTENT_TYPE],
                    "application/merge-patch+json"
                );
                self.patch_event(namespace, name, &value()?)
            }
            ("serviceaccounts/token", "create") => {
                self.request_token(namespace, name, parse(value()?))
            }
            ("pods", "list") => {
                let query = head.uri.query().unwrap_or_default();
                Ok((StatusCode::OK, self.list_pods(namespace, query)))
            }
            ("pods", "create") => self.create_pod(namespace, value()?),
            ("pods", "delete") => self.delete_pod(namespace, name),
            ("pods", "get") => {
                let pods = self.pods.lock().expect("pods");
                let pod = pods.get(&format!("{namespace}/{name}"));
                let missing = || (StatusCode::NOT_FOUND, format!("pods {name:?} not found"));
                Ok((StatusCode::OK, pod.ok_or_else(missing)?.clone()))
            }
            (resource @ ("leases" | "nodes" | "daemonsets"), verb) => {
                let query = head.uri.query().unwrap_or_default();
                self.cluster_object((resource, verb), name, query, &value)
            }
            _ => Err(absent(head)),
        }
    }
}

/// What a request is about.
struct Target<'a> {
    group: &'a str,
    namespace: &'a str,
    /// With the subresource after a slash.
    resource: String,
    name: &'a str,
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let (group, rest) = match &parts[..] {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, "v1", rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let (resource, name) = match rest {
            [resource] => ((*resource).to_owned(), ""),
            [resource, name] => ((*resource).to_owned(), *name),
            [resource, name, subresource, ..] => (format!("{resource}/{subresource}"), *name),
            [] => return None,
        };
        Some(Self {
            group,
            namespace,
            resource,
            name,
        })
    }

    fn verb(&self, method: &Method) -> &'static str {
        match *method {
            Method::POST => "create",
            Method::PATCH => "patch",
            Method::PUT => "update",
            Method::DELETE => "delete",
            _ if self.name.is_empty() => "list",
            _ => "get",
        }
    }
}

fn absent(head: &http::request::Parts) -> Refusal {
    let text = format!("no {} {}", head.method, head.uri.path());
    (StatusCode::NOT_FOUND, text)
}

pub(super) fn json_response(code: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    response
        .body(Full::new(value.to_string().into()))
        .expect("a response")
}
