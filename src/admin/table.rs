//! Parts that several pages share: tables, cards, facts.

use maud::{Markup, Render, html};

/// The heading of a column of text.
pub(super) fn text(name: &str) -> Markup {
    html! { th scope="col" { (name) } }
}

/// The heading of a column of numbers, which are aligned to the right.
pub(super) fn number(name: &str) -> Markup {
    html! { th.n scope="col" { (name) } }
}

/// A table; `rows` are its `tr` elements.
pub(super) fn table(columns: &Markup, rows: &Markup) -> Markup {
    drawn(None, None, columns, rows)
}

/// A table whose rows wrap like text on a narrow screen (`.flow` in `style.css`).
pub(super) fn flowing(columns: &Markup, rows: &Markup) -> Markup {
    drawn(Some("flow"), None, columns, rows)
}

/// A table that scrolls sideways within its card, with a label and a caption for screen readers.
pub(super) fn wide(label: &str, caption: &str, columns: &Markup, rows: &Markup) -> Markup {
    scrolling(label, &drawn(None, Some(caption), columns, rows))
}

/// A table that wraps and scrolls.
pub(super) fn wide_flowing(label: &str, columns: &Markup, rows: &Markup) -> Markup {
    scrolling(label, &drawn(Some("flow"), Some(label), columns, rows))
}

fn drawn(class: Option<&str>, caption: Option<&str>, columns: &Markup, rows: &Markup) -> Markup {
    html! {
        table class=[class] {
            @if let Some(caption) = caption { caption.vh { (caption) } }
            thead { tr { (columns) } }
            tbody { (rows) }
        }
    }
}

fn scrolling(label: &str, table: &Markup) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// A count; blank for zero, so that the others stand out.
pub(super) fn count(n: u64) -> Markup {
    html! { @if n > 0 { (n) } }
}

/// A section with a heading and a note next to it.
pub(super) fn card(id: &str, title: &str, note: &Markup, content: &Markup) -> Markup {
    html! {
        section.card aria-labelledby=(id) {
            header { h2 id=(id) { (title) } @if !note.0.is_empty() { p { (note) } } }
            (content)
        }
    }
}

/// One entry of a `dl` of facts.
pub(super) fn fact(name: &str, value: impl Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}
