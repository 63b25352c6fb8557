//! From a document and flags to a [`Config`]: reads every key, puts the flags on top and checks what only shows when
//! several values are seen together.

mod backends;
mod runtime;
mod streaming;

use std::collections::HashMap;
use std::path::Path;

use super::document::{Given, Reader, path_of};
use super::error::{Place, Problem};
use super::schema::{self as keys, Key};
use super::value::{Kind, Raw, fits};
use super::{
    Admin, Config, IdentityLimits, Log, MethodSampling, Otlp, Overrides, Recorder, Sampler,
    Sampling, Server, Story, Telemetry,
};

use self::backends::{Named, NamedKind, backends, check_endpoints, routing};
pub(super) use self::runtime::{handler, implied_handler, runtime};
pub(super) use self::streaming::streaming;

/// Name of the backend that `--upstream` makes.
pub(super) const UPSTREAM: &str = "upstream";

/// Name of the backend that is there if none is configured.
pub(super) const BUILTIN: &str = "builtin";

/// Reads everything. What is wrong is in `reader.errors`; then the result is of no use.
pub(super) fn config(reader: &mut Reader<'_>, flags: &Overrides) -> Config {
    let mut server = server(reader);
    let mut named = backends(reader);
    if let Some(listen) = flag(reader, "--listen", flags.listen.as_deref(), &keys::LISTEN) {
        server.listen = listen;
    }
    let mut admin = admin(reader, &server.listen);
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
            kind: NamedKind::Upstream(endpoint.map(|value| Given {
                value,
                place: Place::Flag("--upstream"),
            })),
        });
    }
    if named.is_empty() {
        named.push(Named {
            name: BUILTIN.to_owned(),
            kind: NamedKind::Builtin,
        });
    }
    let runtime = runtime(reader);
    let builtin = named.iter().any(Named::is_builtin);
    check_endpoints(reader, &named, &server.listen);
    let routing = routing(reader, &named, flags.upstream.is_some());
    Config {
        story: story(reader, &server.listen),
        sampler: sampler(reader),
        receiver: receiver(reader),
        recorder: recorder(reader),
        streaming: streaming(reader),
        server,
        admin,
        backends: named.into_iter().filter_map(Named::complete).collect(),
        routing,
        telemetry: telemetry(reader),
        runtime: builtin.then(|| Box::new(runtime)),
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

pub(super) fn admin(reader: &mut Reader<'_>, listen: &Path) -> Admin {
    let scope = reader.section(keys::ADMIN_LISTEN.section);
    let socket = reader.given(&scope, &keys::ADMIN_SOCKET);
    Admin {
        listen: reader.value(&scope, &keys::ADMIN_LISTEN),
        debug: reader.value(&scope, &keys::ADMIN_DEBUG),
        socket: match socket {
            Some(given) => given.value,
            // Derived from a path that leaves no room for the longer ending, it is left out.
            None => Some(listen.with_extension("admin.sock")).filter(|path| fits(path)),
        },
        allowed_hosts: reader.value(&scope, &keys::ADMIN_ALLOWED_HOSTS),
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
