//! `[backends.NAME]`

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::settings::value::{
    BooleanValue, KeywordChoice, OptionalValue, SocketPath, UnparsedValue, ValueKind,
};
use crate::settings::{ConfigProblem, SettingsReader, ValuePlace, lexical, settings};

/// Name of the backend that `--upstream` adds.
pub(crate) const UPSTREAM: &str = "upstream";

/// Name of the backend if none is configured.
const BUILTIN: &str = "builtin";

/// Kinds of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// Another CRI runtime behind a unix socket.
    Upstream,
    /// The built-in runtime. At most one backend is.
    Builtin,
}

settings! {
    /// The runtimes that serve calls. Without any backend and without `--upstream` there is one, the built-in runtime
    /// under the name `builtin`. NAME is a label in metrics and logs: 1 to 32 of `a-z`, `0-9` and `-`.
    pub struct BackendSettings in "backends.NAME" named name {
        /// `upstream` is another CRI runtime behind a socket. `builtin` is the built-in runtime, which `[runtime]`
        /// configures; at most one backend has this kind.
        kind: BackendKind = BackendKind::Upstream,
            KeywordChoice(&[("upstream", BackendKind::Upstream), ("builtin", BackendKind::Builtin)]),
            or required like "\"upstream\"";
        /// The socket of the runtime. It need not exist when criscope starts. The built-in runtime has none.
        endpoint: Option<PathBuf> = None, OptionalValue(SocketPath),
            or "required for an upstream" like "\"unix:///run/containerd/containerd.sock\"";
        /// Answer RuntimeConfig with the cgroup driver where the runtime does not implement it, as containerd before 2.0: a kubelet
        /// from 1.38 on does not start without. The driver is that of the kubelet's running pods, else that of containerd's
        /// configuration; where neither tells it, the runtime's error passes.
        answer_runtime_config: bool = true, BooleanValue;
        /// Let a RunPodSandbox or CreateContainer of the kubelet go on after the kubelet's deadline, for up to 15 minutes, and give its
        /// answer to the kubelet's retry if that is the same request. Without it the retry fails with "failed to reserve name"
        /// while the runtime is busy with the first call. The built-in runtime always does so.
        join_retries: bool = false, BooleanValue;
    }
}

impl BackendSettings {
    /// Another runtime.
    pub fn upstream(name: &str, endpoint: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            kind: BackendKind::Upstream,
            endpoint: Some(endpoint),
            answer_runtime_config: true,
            join_retries: false,
        }
    }

    fn builtin() -> Self {
        Self {
            name: BUILTIN.to_owned(),
            kind: BackendKind::Builtin,
            endpoint: None,
            answer_runtime_config: true,
            join_retries: false,
        }
    }

    /// Returns whether it is the built-in runtime.
    pub fn is_builtin(&self) -> bool {
        self.kind == BackendKind::Builtin
    }
}

/// Reads all backends; `upstream` is the flag of that name, `listen` the socket of the server.
pub(crate) fn read(
    reader: &mut SettingsReader<'_>,
    upstream: Option<&str>,
    listen: &Path,
) -> Vec<BackendSettings> {
    let mut backends: Vec<BackendSettings> = Vec::new();
    let mut places = HashMap::new();
    for (name, scope) in reader.tables("backends") {
        let backend = BackendSettings::read_at(reader, &scope, name);
        let key = &BackendSettings::endpoint;
        if !backend.is_builtin() {
            reader.require(&scope, key);
        } else {
            if let Some(other) = backends.iter().find(|other| other.is_builtin()) {
                let problem = format!(
                    "backend {:?} is the built-in runtime already, and there is only one",
                    other.name
                );
                reader.fail_at(
                    &scope,
                    &BackendSettings::kind,
                    ConfigProblem::Conflict(problem),
                );
            }
            if backend.endpoint.is_some() {
                let problem =
                    "the built-in runtime has no endpoint; remove it, or use kind = \"upstream\"";
                reader.fail_at(&scope, key, ConfigProblem::Conflict(problem.to_owned()));
            }
        }
        if let Some(given) = reader.given(&scope, key) {
            places.insert(backend.name.clone(), (given.place, scope.path_of(key)));
        }
        backends.push(backend);
    }
    if let Some(text) = upstream {
        let place = ValuePlace::Flag("--upstream");
        backends.retain(|backend| backend.name != UPSTREAM);
        match SocketPath.read(&UnparsedValue::Text(text)) {
            Ok(endpoint) => backends.push(BackendSettings::upstream(UPSTREAM, endpoint)),
            Err(error) => {
                reader.fail(place.clone(), "", error.into());
                backends.push(BackendSettings::upstream(UPSTREAM, PathBuf::new()));
            }
        }
        places.insert(UPSTREAM.to_owned(), (place, String::new()));
    }
    if backends.is_empty() {
        backends.push(BackendSettings::builtin());
    }
    check_endpoints(reader, &backends, &places, &lexical(listen));
    backends
}

/// The server's own socket would forward calls to itself, and a socket that two backends share would list every pod twice.
fn check_endpoints(
    reader: &mut SettingsReader<'_>,
    backends: &[BackendSettings],
    places: &HashMap<String, (ValuePlace, String)>,
    listen: &Path,
) {
    let mut seen: HashMap<PathBuf, &str> = HashMap::new();
    for BackendSettings { name, endpoint, .. } in backends {
        let (Some(endpoint), Some((place, key))) = (endpoint, places.get(name)) else {
            continue;
        };
        let path = lexical(endpoint);
        let shown = endpoint.display();
        if path == listen {
            let problem =
                format!("{shown} is the socket criscope itself listens on; calls would loop");
            reader.fail(place.clone(), key, ConfigProblem::Conflict(problem));
        }
        let other = *seen.entry(path).or_insert(name);
        if other != name {
            let problem = format!(
                "{shown} is already the endpoint of backend {other:?}; every pod would be listed twice"
            );
            reader.fail(place.clone(), key, ConfigProblem::Conflict(problem));
        }
    }
}
