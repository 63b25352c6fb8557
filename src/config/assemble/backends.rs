//! Backends and which of them serves what.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::UPSTREAM;
use crate::config::document::{Given, Reader, Scope, path_of};
use crate::config::error::{Hint, Place, Problem};
use crate::config::schema::{self as keys, Key, KindOfBackend};
use crate::config::suggest::nearest;
use crate::config::value::{Kind, lexical};
use crate::config::{Backend, BackendKind, Routing, Rule};

/// A backend by its name, which other keys may use even if the rest of it is wrong.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) kind: NamedKind,
}

pub(super) enum NamedKind {
    Upstream(Option<Given<PathBuf>>),
    Builtin,
}

impl Named {
    pub(super) fn is_builtin(&self) -> bool {
        matches!(self.kind, NamedKind::Builtin)
    }

    fn endpoint(&self) -> Option<&Given<PathBuf>> {
        match &self.kind {
            NamedKind::Upstream(endpoint) => endpoint.as_ref(),
            NamedKind::Builtin => None,
        }
    }

    pub(super) fn complete(self) -> Option<Backend> {
        let kind = match self.kind {
            NamedKind::Builtin => BackendKind::Builtin,
            NamedKind::Upstream(endpoint) => BackendKind::Upstream {
                endpoint: endpoint?.value,
            },
        };
        Some(Backend {
            name: self.name,
            kind,
        })
    }
}

pub(super) fn backends(reader: &mut Reader<'_>) -> Vec<Named> {
    let tables = reader.tables("backends");
    let mut named: Vec<Named> = Vec::new();
    for (name, scope) in tables {
        let kind = backend_kind(reader, &scope, &named);
        named.push(Named { name, kind });
    }
    named
}

fn backend_kind<'d>(reader: &mut Reader<'d>, scope: &Scope<'d>, others: &[Named]) -> NamedKind {
    let kind = reader.required(scope, &keys::BACKEND_KIND);
    let builtin = kind.filter(|kind| kind.value == KindOfBackend::Builtin);
    let Some(Given { place, .. }) = builtin else {
        // Also if its kind is wrong: an upstream is what most are.
        let endpoint = reader.required(scope, &keys::BACKEND_ENDPOINT);
        return NamedKind::Upstream(endpoint);
    };
    if let Some(other) = others.iter().find(|other| other.is_builtin()) {
        let key = path_of(scope, &keys::BACKEND_KIND);
        reader.fail(place, key, Problem::SecondBuiltin(other.name.clone()));
    }
    if reader.given(scope, &keys::BACKEND_ENDPOINT).is_some() {
        let place = reader.place_of(scope, &keys::BACKEND_ENDPOINT);
        let key = path_of(scope, &keys::BACKEND_ENDPOINT);
        reader.fail(place, key, Problem::NoEndpoint);
    }
    NamedKind::Builtin
}

pub(super) fn check_endpoints(reader: &mut Reader<'_>, named: &[Named], listen: &Path) {
    let listen = lexical(listen);
    let mut seen: HashMap<PathBuf, &str> = HashMap::new();
    for backend in named {
        let Some(Given { value, place }) = backend.endpoint() else {
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

pub(super) fn routing(reader: &mut Reader<'_>, named: &[Named], flag: bool) -> Routing {
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
