//! How the runtimes are, in a few words.

use std::fmt::Write as _;

use super::page::Escaped;
use super::runtimes::Standing;
use crate::units;

/// One entry per runtime, for the facts at the top of a page.
pub(super) fn html(backends: &[Standing]) -> String {
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

fn standing(backend: &Standing) -> String {
    let since = backend
        .since_ms
        .map(|ms| format!(" for {}", units::duration(ms)))
        .unwrap_or_default();
    let runtime = backend.runtime.as_ref();
    let runtime = runtime.map(|(name, version)| format!("{name} {version}"));
    let mut html = match (backend.up, backend.reason.is_empty()) {
        (true, _) => format!(
            "<span class=\"good\">✓ up</span> <small>{}{since}</small>",
            Escaped(runtime.unwrap_or_default())
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
    use super::super::runtimes::Condition;
    use super::*;

    #[test]
    fn up_down_and_not_known_differ_in_words() {
        let mut backend = Standing {
            name: "a".to_owned(),
            up: true,
            since_ms: Some(3_600_000.0),
            runtime: Some(("containerd".to_owned(), "2.0.1".to_owned())),
            ..Standing::default()
        };
        let html = html(std::slice::from_ref(&backend));
        assert!(html.contains("<dt>Backend a</dt>"), "{html}");
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
