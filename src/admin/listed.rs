//! A pod as the runtime lists it, whose start criscope has not seen.

use maud::{Markup, html};

use super::starts;
use super::table::{card, fact, number, text, wide};
use crate::lifecycle::view::{ListedContainerView, ListedPodView, exit_reason_in_words};
use crate::units;
use crate::units::times::UnixMicros;

/// A card with the pod and its containers; nothing without a list.
pub(super) fn html(listed: Option<&ListedPodView>, now: UnixMicros) -> Markup {
    let Some(listed) = listed else {
        return html! {};
    };
    let columns = html! {
        (text("Container")) (text("State")) (number("For")) (number("Restarts")) (number("Exit code")) (text("Reason"))
    };
    let rows = html! { @for run in &listed.containers { (row(run, now)) } };
    let created = units::rfc3339(listed.created_unix_us);
    let content = html! {
        dl.facts {
            (fact("State", starts::state(listed.state)))
            (fact("Sandbox made", html! { time datetime=(created) { (created) } }))
            (fact("Pod uid", html! { small { code { (listed.uid) } } }))
            (fact("Sandbox", html! { small { code { (listed.sandbox_id) } } }))
        }
        @if listed.containers.is_empty() { p.none { "It has no container." } }
        @else { (wide("Containers", "Containers as the runtime lists them", &columns, &rows)) }
    };
    card("listed", "As the runtime lists it", &html! {}, &content)
}

fn row(run: &ListedContainerView, now: UnixMicros) -> Markup {
    let class = match (&*run.state, run.exit_code) {
        ("running", _) | ("exited", Some(0)) => "good",
        ("exited" | "unknown", _) => "bad",
        _ => "",
    };
    let since = run.ended_unix_us.unwrap_or(run.created_unix_us);
    html! {
        tr {
            th.name scope="row" { (run.name) }
            td class=(class) { (run.state) }
            td.n { (units::ago(now.since(since))) }
            td.n { (run.restarts) }
            td.n { @if let Some(code) = run.exit_code { (code) } }
            td { (exit_reason_in_words(run.exit_reason.as_deref().unwrap_or_default())) }
        }
    }
}
