//! From a document and flags to a [`Config`]: reads every key, puts the flags on top and checks what only shows when
//! several values are seen together.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::document::{Given, Reader, Scope, path_of};
use super::error::{Hint, Place, Problem};
use super::schema::{self as keys, Key, KindOfBackend};
use super::suggest::nearest;
use super::value::{Kind, Raw, lexical};
use super::{
    Admin, Backend, BackendKind, Config, IdentityLimits, Log, MethodSampling, Otlp, Overrides,
    Recorder, Routing, Rule, Sampler, Sampling, Server, Story, Telemetry,
};

/// Name of the backend that `--upstream` makes.
pub(super) const UPSTREAM: &str = "upstream";

/// Reads everything. What is wrong is in `reader.errors`; then the result is of no use.
pub(super) fn config(reader: &mut Reader<'_>, flags: &Overrides) -> Config {
    let mut server = server(reader);
    let mut admin = admin(reader);
    let mut named = backends(reader);
    if let Some(listen) = flag(reader, "--listen", flags.listen.as_deref(), &keys::LISTEN) {
        server.listen = listen;
    }
    if let Some(listen) = flag(
        reader,
        "--admin",
        flags.admin.as_deref(),
        &keys::ADMIN_LISTEN,
    ) {
        admin.listen = listen;
    }
    if flags.upstream.is_some() {
        let endpoint = flag(
            reader,
            "--upstream",
            flags.upstream.as_deref(),
            &keys::BACKEND_ENDPOINT,
        );
        named.retain(|backend| backend.name != UPSTREAM);
        named.push(Named {
            name: UPSTREAM.to_owned(),
            endpoint: endpoint.map(|value| Given {
                value,
                place: Place::Flag("--upstream"),
            }),
        });
    }
    check_endpoints(reader, &named, &server.listen);
    let routing = routing(reader, &named, flags.upstream.is_some());
    Config {
        story: story(reader, &server.listen),
        sampler: sampler(reader),
        receiver: receiver(reader),
        recorder: recorder(reader),
        server,
        admin,
        backends: named.into_iter().filter_map(Named::complete).collect(),
        routing,
        telemetry: telemetry(reader),
    }
}

/// A flag is read like the key it stands for.
fn flag<K: Kind, D>(
    reader: &mut Reader<'_>,
    name: &'static str,
    text: Option<&str>,
    key: &Key<K, D>,
) -> Option<K::Value> {
    match key.kind.read(&Raw::Text(text?)) {
        Ok(value) => Some(value),
        Err(error) => {
            reader.fail(Place::Flag(name), "", error.into());
            None
        }
    }
}

pub(super) fn server(reader: &mut Reader<'_>) -> Server {
    let scope = reader.section(keys::LISTEN.section);
    Server {
        listen: reader.value(&scope, &keys::LISTEN),
        mode: reader.value(&scope, &keys::MODE),
        owner: reader.given(&scope, &keys::OWNER).map(|owner| owner.value),
        max_message_bytes: reader.value(&scope, &keys::MAX_MESSAGE_BYTES),
        drain_timeout: reader.value(&scope, &keys::DRAIN_TIMEOUT),
    }
}

pub(super) fn admin(reader: &mut Reader<'_>) -> Admin {
    let scope = reader.section(keys::ADMIN_LISTEN.section);
    Admin {
        listen: reader.value(&scope, &keys::ADMIN_LISTEN),
        debug: reader.value(&scope, &keys::ADMIN_DEBUG),
    }
}

pub(super) fn telemetry(reader: &mut Reader<'_>) -> Telemetry {
    let log = reader.section(keys::LOG_LEVEL.section);
    let otlp = reader.section(keys::OTLP_ENDPOINT.section);
    let sampling = reader.section(keys::SAMPLE_SLOW.section);
    let identity = reader.section(keys::IDENTITY_SANDBOXES.section);
    Telemetry {
        log: Log {
            format: reader.value(&log, &keys::LOG_FORMAT),
            level: reader.value(&log, &keys::LOG_LEVEL),
        },
        otlp: Otlp {
            endpoint: reader
                .given(&otlp, &keys::OTLP_ENDPOINT)
                .map(|endpoint| endpoint.value),
            timeout: reader.value(&otlp, &keys::OTLP_TIMEOUT),
        },
        sampling: Sampling {
            mutating: reader.value(&sampling, &keys::SAMPLE_MUTATING),
            polls: reader.value(&sampling, &keys::SAMPLE_POLLS),
            slow: reader.value(&sampling, &keys::SAMPLE_SLOW),
            episodes: reader.value(&sampling, &keys::SAMPLE_EPISODES),
            on_unsampled_parent: reader.value(&sampling, &keys::ON_UNSAMPLED_PARENT),
            methods: methods(reader),
        },
        identity: IdentityLimits {
            sandboxes: reader.value(&identity, &keys::IDENTITY_SANDBOXES),
            containers: reader.value(&identity, &keys::IDENTITY_CONTAINERS),
        },
    }
}

fn methods(reader: &mut Reader<'_>) -> Vec<MethodSampling> {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    let mut rows = Vec::new();
    for row in reader.rows("telemetry.sampling", "methods") {
        let method = reader.required(&row, &keys::METHOD_NAME);
        let ratio = reader.given(&row, &keys::METHOD_RATIO);
        let slow = reader.given(&row, &keys::METHOD_SLOW);
        let Some(Given { value, place }) = method else {
            continue;
        };
        let method = value.name();
        if let Some(&line) = lines.get(method) {
            let key = path_of(&row, &keys::METHOD_NAME);
            reader.fail(place, key, Problem::DuplicateMethod { method, line });
            continue;
        }
        if let Place::Line { line, .. } = place {
            lines.insert(method, line);
        }
        rows.push(MethodSampling {
            method: value,
            ratio: ratio.map(|ratio| ratio.value),
            slow: slow.map(|slow| slow.value),
        });
    }
    rows
}

pub(super) fn story(reader: &mut Reader<'_>, listen: &Path) -> Story {
    let scope = reader.section(keys::STORY_QUIET.section);
    let state_dir = reader.given(&scope, &keys::STATE_DIR);
    Story {
        state_dir: state_dir.map_or_else(|| listen.with_extension("state"), |dir| dir.value),
        episodes: reader.value(&scope, &keys::STORY_EPISODES),
        quiet: reader.value(&scope, &keys::STORY_QUIET),
        give_up: reader.value(&scope, &keys::STORY_GIVE_UP),
    }
}

pub(super) fn sampler(reader: &mut Reader<'_>) -> Sampler {
    let scope = reader.section(keys::SAMPLER_ENABLED.section);
    Sampler {
        enabled: reader.value(&scope, &keys::SAMPLER_ENABLED),
        after: reader.value(&scope, &keys::SAMPLER_AFTER),
        period: reader.value(&scope, &keys::SAMPLER_PERIOD),
    }
}

pub(super) fn receiver(reader: &mut Reader<'_>) -> Option<std::net::SocketAddr> {
    let scope = reader.section(keys::RECEIVER_LISTEN.section);
    reader.value(&scope, &keys::RECEIVER_LISTEN)
}

pub(super) fn recorder(reader: &mut Reader<'_>) -> Recorder {
    let scope = reader.section(keys::RECORDER_CALLS.section);
    Recorder {
        calls: reader.value(&scope, &keys::RECORDER_CALLS),
        polls: reader.value(&scope, &keys::RECORDER_POLLS),
        dumps: reader.value(&scope, &keys::RECORDER_DUMPS),
        max_dump_bytes: reader.value(&scope, &keys::RECORDER_DUMP_BYTES),
    }
}

/// A backend by its name, which other keys may use even if the rest of it is wrong.
struct Named {
    name: String,
    endpoint: Option<Given<PathBuf>>,
}

impl Named {
    fn complete(self) -> Option<Backend> {
        Some(Backend {
            name: self.name,
            kind: BackendKind::Upstream {
                endpoint: self.endpoint?.value,
            },
        })
    }
}

fn backends(reader: &mut Reader<'_>) -> Vec<Named> {
    let tables = reader.tables("backends");
    tables
        .into_iter()
        .map(|(name, scope)| Named {
            endpoint: backend_endpoint(reader, &scope),
            name,
        })
        .collect()
}

fn backend_endpoint<'d>(reader: &mut Reader<'d>, scope: &Scope<'d>) -> Option<Given<PathBuf>> {
    let kind = reader.required(scope, &keys::BACKEND_KIND);
    if let Some(Given { value, place }) = kind
        && value == KindOfBackend::Builtin
    {
        let key = path_of(scope, &keys::BACKEND_KIND);
        reader.fail(place, key, Problem::NoBuiltin);
        return None;
    }
    reader.required(scope, &keys::BACKEND_ENDPOINT)
}

fn check_endpoints(reader: &mut Reader<'_>, named: &[Named], listen: &Path) {
    let listen = lexical(listen);
    let mut seen: HashMap<PathBuf, &str> = HashMap::new();
    for backend in named {
        let Some(Given { value, place }) = &backend.endpoint else {
            continue;
        };
        let key = match place {
            Place::Flag(_) => String::new(),
            _ => format!("backends.{}.endpoint", backend.name),
        };
        let path = lexical(value);
        if path == listen {
            reader.fail(place.clone(), &key, Problem::Circle(value.clone()));
        }
        if let Some(other) = seen.get(&path) {
            let problem = Problem::SharedEndpoint {
                path: value.clone(),
                other: (*other).to_owned(),
            };
            reader.fail(place.clone(), &key, problem);
        } else {
            seen.insert(path, &backend.name);
        }
    }
}

fn routing(reader: &mut Reader<'_>, named: &[Named], flag: bool) -> Routing {
    let scope = reader.section(keys::ROUTING_DEFAULT.section);
    let default = match known_backend(reader, &scope, &keys::ROUTING_DEFAULT, named) {
        Some(name) => name,
        None => implied_default(reader, &scope, named, flag),
    };
    let images = known_backend(reader, &scope, &keys::ROUTING_IMAGES, named);
    Routing {
        images: images.unwrap_or_else(|| default.clone()),
        default,
        rules: rules(reader, named),
    }
}

/// The default if `routing.default` does not give one that is right.
fn implied_default<'d>(
    reader: &mut Reader<'d>,
    scope: &Scope<'d>,
    named: &[Named],
    flag: bool,
) -> String {
    let given = scope
        .table
        .is_some_and(|table| table.contains_key(keys::ROUTING_DEFAULT.name));
    match named {
        [] if reader.is_empty() => reader.fail(Place::Nowhere, "", Problem::NothingGiven),
        [] => reader.fail(reader.whole_file(), "", Problem::NoBackend),
        [only] => return only.name.clone(),
        // Given and wrong: that has been said.
        _ if given => {}
        _ if flag => {
            let others = named.iter().filter(|backend| backend.name != UPSTREAM);
            let problem = Problem::UpstreamConflict {
                others: quoted_names(others),
            };
            reader.fail(Place::Flag("--upstream"), "", problem);
        }
        _ => {
            let place = reader.place(&scope.span);
            let key = path_of(scope, &keys::ROUTING_DEFAULT);
            reader.fail(place, key, Problem::NoDefault(quoted_names(named.iter())));
        }
    }
    String::new()
}

fn quoted_names<'n>(named: impl Iterator<Item = &'n Named>) -> String {
    let names: Vec<_> = named.map(|backend| format!("{:?}", backend.name)).collect();
    names.join(", ")
}

/// The value of a key that names a backend, if that backend is there.
fn known_backend<'d, K: Kind<Value = String>, D>(
    reader: &mut Reader<'d>,
    scope: &Scope<'d>,
    key: &Key<K, D>,
    named: &[Named],
) -> Option<String> {
    let Given { value: name, place } = reader.given(scope, key)?;
    if named.iter().any(|backend| backend.name == name) {
        return Some(name);
    }
    let names = || named.iter().map(|backend| backend.name.as_str());
    let hint = match nearest(&name, names()) {
        Some(near) => Hint::Nearest(near.to_owned()),
        None => Hint::Known(names().map(str::to_owned).collect()),
    };
    reader.fail(
        place,
        path_of(scope, key),
        Problem::UnknownBackend { name, hint },
    );
    None
}

fn rules(reader: &mut Reader<'_>, named: &[Named]) -> Vec<Rule> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut rules = Vec::new();
    for row in reader.rows("routing", "rules") {
        let handler = reader.required(&row, &keys::RULE_HANDLER);
        let backend = match &row.table {
            Some(table) if table.contains_key(keys::RULE_BACKEND.name) => {
                known_backend(reader, &row, &keys::RULE_BACKEND, named)
            }
            _ => reader
                .required(&row, &keys::RULE_BACKEND)
                .map(|backend| backend.value),
        };
        let Some(handler) = handler else { continue };
        if let Some(&line) = lines.get(&handler.value) {
            let key = path_of(&row, &keys::RULE_HANDLER);
            let problem = Problem::DuplicateRule {
                handler: handler.value,
                line,
            };
            reader.fail(handler.place, key, problem);
            continue;
        }
        if let Place::Line { line, .. } = handler.place {
            lines.insert(handler.value.clone(), line);
        }
        if let Some(backend) = backend {
            rules.push(Rule {
                runtime_handler: handler.value,
                backend,
            });
        }
    }
    rules
}
