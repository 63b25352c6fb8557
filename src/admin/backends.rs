//! The state of the backends in a few words.

use maud::{Markup, html};

use super::runtimes::BackendView;
use super::table::fact;
use crate::cri::subject::REQUIRED_CONDITIONS;
use crate::units;

/// One entry per backend, for the facts at the top of a page.
pub(super) fn html(backends: &[BackendView]) -> Markup {
    html! {
        @for backend in backends { (fact(&format!("Backend {}", backend.name), standing(backend))) }
    }
}

fn standing(backend: &BackendView) -> Markup {
    let since = backend
        .since_ms
        .map(|ms| format!(" for {}", units::duration(ms)));
    let since = since.unwrap_or_default();
    html! {
        @if backend.up {
            span.good { "✓ up" } " "
            small { @if let Some((name, version)) = &backend.runtime { (name) " " (version) } (since) }
        } @else if backend.reason.is_empty() {
            span.open { "… not probed yet" }
        } @else {
            span.bad { "✗ down" } " " small { (since) ": " (backend.reason) }
        }
        @for condition in backend.conditions.iter().filter(|condition| !condition.status) {
            @if REQUIRED_CONDITIONS.contains(&&*condition.kind) {
                " " span.warn { "✗ " (condition.kind) } " " small { (condition.reason) " " (condition.message) }
            } @else {
                " " small { (condition.kind) ": no. " (condition.reason) " " (condition.message) }
            }
        }
        @if backend.reconnects > 0 { " " small { "reconnected " (backend.reconnects) " times" } }
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtimes::ConditionView;
    use super::*;

    #[test]
    fn up_down_and_not_known_differ_in_words() {
        let mut backend = BackendView {
            name: "a".to_owned(),
            up: true,
            since_ms: Some(3_600_000.0),
            runtime: Some(("containerd".to_owned(), "2.0.1".to_owned())),
            ..BackendView::default()
        };
        let html = html(std::slice::from_ref(&backend)).into_string();
        assert!(html.contains("<dt>Backend a</dt>"), "{html}");
        assert!(
            standing(&backend)
                .into_string()
                .contains("✓ up</span> <small>containerd 2.0.1 for 1h 00m")
        );
        backend.conditions.push(ConditionView {
            kind: "NetworkReady".to_owned(),
            status: false,
            reason: "NoCni".to_owned(),
            message: "no network".to_owned(),
        });
        assert!(
            standing(&backend)
                .into_string()
                .contains("✗ NetworkReady</span> <small>NoCni no network")
        );
        backend.conditions = vec![ConditionView {
            kind: "ContainerdHasNoDeprecationWarnings".to_owned(),
            reason: "ContainerdHasDeprecationWarnings".to_owned(),
            ..ConditionView::default()
        }];
        let remark = standing(&backend).into_string();
        assert!(
            !remark.contains("warn") && remark.contains("no. ContainerdHasDeprecation"),
            "{remark}"
        );
        backend.up = false;
        assert!(standing(&backend).into_string().contains("not probed yet"));
        backend.reason = "<refused>".to_owned();
        assert!(
            standing(&backend)
                .into_string()
                .contains("✗ down</span> <small> for 1h 00m: &lt;refused&gt;")
        );
    }
}
