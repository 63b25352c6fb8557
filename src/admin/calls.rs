//! Every call in flight: its method, pod, progress and the rest of its deadline.

use maud::{Markup, html};

use super::PageSources;
use super::links;
use super::table::{number, text, wide_flowing};
use super::verdict::Verdict;
use super::waterfall::gauge;
use crate::call::CallRecord;
use crate::lifecycle::view::CallView;
use crate::units;

/// All calls in flight, oldest first.
pub(super) fn rows(sources: &PageSources) -> Vec<CallView> {
    let calls = sources.in_flight.calls();
    let records = calls.iter().map(|call| CallRecord::in_flight(call));
    records
        .map(|record| CallView::from_record(&record))
        .collect()
}

/// `/debug/calls`
pub(super) fn page(rows: &[CallView]) -> (Verdict, Markup) {
    let body = html! {
        section.card {
            (table(rows))
            @if rows.is_empty() {
                p.none {
                    "A call is listed while it runs. To see one, create a pod, or run " code { "criscope smoke" } ". The last calls are in the "
                    a href="/debug/flight" { "flight recorder" } "."
                }
            }
        }
    };
    (verdict(rows), body)
}

/// The verdict over the calls in flight. It names the oldest.
fn verdict(rows: &[CallView]) -> Verdict {
    let stuck: Vec<_> = rows.iter().filter(|call| call.stuck.is_some()).collect();
    match (&stuck[..], rows) {
        (_, []) => Verdict::good("No call is in flight."),
        ([], [only]) => Verdict::good(format!(
            "1 call is in flight, {}, and not stuck.",
            so_far(only)
        )),
        ([], [oldest, ..]) => Verdict::good(format!(
            "{} calls are in flight, none is stuck; the oldest is {}.",
            rows.len(),
            so_far(oldest)
        )),
        ([only], _) => Verdict::warning(format!(
            "1 of {} calls in flight is stuck: {}.",
            rows.len(),
            so_far(only)
        )),
        ([oldest, ..], _) => Verdict::warning(format!(
            "{} of {} calls in flight are stuck; the oldest is {}.",
            stuck.len(),
            rows.len(),
            so_far(oldest)
        )),
    }
}

/// `RunPodSandbox of shop/web, 2m 10s so far of its 4m 00s`.
fn so_far(call: &CallView) -> String {
    let mut text = call.method.clone();
    if let Some(pod) = call.pod_path() {
        text.extend([" of ", &pod]);
    }
    text.push_str(&format!(", {} so far", units::duration(call.duration_ms)));
    if let Some(whole) = call.deadline_ms {
        text.push_str(&format!(" of its {}", units::duration(whole)));
    }
    text
}

/// The calls as a table.
pub(super) fn table(rows: &[CallView]) -> Markup {
    if rows.is_empty() {
        return html! { p.none { "No call is in flight." } };
    }
    let columns = html! {
        (text("Call")) (number("Age")) (text("Deadline")) (text("Pod, container or image")) (text("Phase"))
        (text("Caller"))
    };
    let rows = html! { @for call in rows { (row(call)) } };
    wide_flowing("Calls in flight, oldest first", &columns, &rows)
}

fn row(call: &CallView) -> Markup {
    let container = call.container.as_deref().or(call.image.as_deref());
    let container = container.or_else(|| call.container_id.as_deref().map(short));
    let stuck = call.stuck.is_some();
    html! {
        tr class=[stuck.then_some("stuck")] {
            th.call scope="row" { (call.method) @if stuck { " " span.warn { "stuck" } } }
            td.n { (units::duration(call.duration_ms)) }
            td.nw { (deadline(call)) }
            td.name {
                @match (&call.namespace, &call.pod, &call.sandbox_id) {
                    (Some(namespace), Some(pod), _) => (links::pod(namespace, pod)),
                    (_, _, Some(id)) => code { (short(id)) },
                    _ => {},
                }
                " " span.sub { (container.unwrap_or_default()) }
            }
            td {
                (call.phase.as_deref().unwrap_or_default())
                " " span.sub.nw { (call.backend.as_deref().unwrap_or_default()) }
            }
            td.nw {
                @match (&call.client_comm, call.client_pid) {
                    (Some(comm), Some(pid)) => { (comm) " (" (pid) ")" },
                    _ => (call.client),
                }
            }
        }
    }
}

/// The used share of the deadline, as a number and as a bar.
fn deadline(row: &CallView) -> Markup {
    let (Some(share), Some(whole)) = (row.share(), row.deadline_ms) else {
        return html! { span.muted { "none" } };
    };
    let words = format!("{share} % of {}", units::duration(whole));
    html! {
        @if row.duration_ms > whole { span.late { (words) ": passed" } } @else { (words) }
        (gauge(share, &words))
    }
}

/// The first characters of an id, enough to identify it.
pub(super) fn short(id: &str) -> &str {
    &id[..id.floor_char_boundary(13)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> CallView {
        CallView {
            method: "RunPodSandbox".to_owned(),
            phase: Some("waiting".to_owned()),
            duration_ms: 150_000.0,
            deadline_ms: Some(240_000.0),
            namespace: Some("shop".to_owned()),
            pod: Some("<web>".to_owned()),
            ..CallView::default()
        }
    }

    #[test]
    fn a_stuck_call_says_so_in_words_and_with_its_share() {
        let mut row = row();
        assert!(
            !table(std::slice::from_ref(&row))
                .into_string()
                .contains("stuck")
        );
        row.stuck = Some(50);
        let html = table(&[row]).into_string();
        assert!(html.contains("<tr class=\"stuck\">") && html.contains(">stuck</span>"));
        assert!(html.contains("62 % of 4m 00s") && html.contains("width=\"62%\""));
        assert!(
            html.contains("<a href=\"/debug/pods/shop/%3Cweb%3E\">"),
            "{html}"
        );
    }

    #[test]
    fn a_deadline_may_have_passed_or_not_exist() {
        let mut late = row();
        late.deadline_ms = Some(149_000.0);
        let html = table(&[late]).into_string();
        assert!(html.contains("100 % of 2m 29s: passed"), "{html}");
        let mut endless = row();
        endless.deadline_ms = None;
        assert!(table(&[endless]).into_string().contains("none</span>"));
    }
}
