//! How the runtimes are.

use std::fmt::Write as _;

use serde::Serialize;

use super::Sources;
use super::page::Escaped;
use crate::story::units;
use crate::upstream::Upstream;

/// A runtime, as its probe knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Backend {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it answers.
    pub up: bool,
    /// For how long that has been so, in milliseconds; absent before it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<f64>,
    /// Its own name and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The conditions of its last good Status.
    pub conditions: Vec<Condition>,
    /// How often it came back.
    pub reconnects: u64,
}

/// A condition such as `NetworkReady`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Condition {
    /// Its name.
    pub kind: String,
    /// Whether it holds.
    pub status: bool,
    /// One word, as the runtime gives it.
    pub reason: String,
}

/// All runtimes, in the order of the configuration.
pub(super) fn backends(sources: &Sources) -> Vec<Backend> {
    sources.upstreams.iter().map(|it| of(it)).collect()
}

fn of(upstream: &Upstream) -> Backend {
    let state = upstream.health().state();
    let conditions = state.conditions.into_iter().map(|it| Condition {
        kind: it.kind,
        status: it.status,
        reason: it.reason,
    });
    Backend {
        name: upstream.name().to_string(),
        up: state.up,
        since_ms: state.since.map(|at| at.elapsed().as_secs_f64() * 1e3),
        runtime: state
            .runtime
            .map(|(name, version)| format!("{name} {version}")),
        reason: state.reason,
        conditions: conditions.collect(),
        reconnects: upstream.health().reconnects(),
    }
}

/// One entry per runtime, for the facts at the top of a page.
pub(super) fn html(backends: &[Backend]) -> String {
    let mut html = String::new();
    for backend in backends {
        let _ = write!(
            html,
            "<div><dt>Backend {}</dt><dd>{}</dd></div>",
            Escaped(&backend.name),
            standing(backend)
        );
    }
    html
}

fn standing(backend: &Backend) -> String {
    let since = backend
        .since_ms
        .map(|ms| format!(" for {}", units::duration(ms)))
        .unwrap_or_default();
    let mut html = match (backend.up, backend.reason.is_empty()) {
        (true, _) => format!(
            "<span class=\"good\">✓ up</span> <small>{}{since}</small>",
            Escaped(backend.runtime.as_deref().unwrap_or_default())
        ),
        (false, true) => "<span class=\"open\">… not asked yet</span>".to_owned(),
        (false, false) => format!(
            "<span class=\"bad\">✗ down</span> <small>{since}: {}</small>",
            Escaped(&backend.reason)
        ),
    };
    for it in backend.conditions.iter().filter(|it| !it.status) {
        let _ = write!(
            html,
            " <span class=\"warn\">✗ {}</span> <small>{}</small>",
            Escaped(&it.kind),
            Escaped(&it.reason)
        );
    }
    if backend.reconnects > 0 {
        let _ = write!(
            html,
            " <small>came back {} times</small>",
            backend.reconnects
        );
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_down_and_not_known_differ_in_words() {
        let mut backend = Backend {
            name: "a".to_owned(),
            up: true,
            since_ms: Some(3_600_000.0),
            runtime: Some("containerd 2.0.1".to_owned()),
            ..Backend::default()
        };
        assert!(standing(&backend).contains("✓ up</span> <small>containerd 2.0.1 for 1h 00m"));
        backend.conditions.push(Condition {
            kind: "NetworkReady".to_owned(),
            status: false,
            reason: "NoCni".to_owned(),
        });
        assert!(standing(&backend).contains("✗ NetworkReady</span> <small>NoCni"));
        backend.up = false;
        assert!(standing(&backend).contains("not asked yet"));
        backend.reason = "<refused>".to_owned();
        assert!(standing(&backend).contains("✗ down</span> <small> for 1h 00m: &lt;refused&gt;"));
    }
}
