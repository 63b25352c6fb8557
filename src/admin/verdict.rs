//! The sentence that a page opens with: whether anything is the matter.

use maud::{Markup, Render, html};

use crate::lifecycle::view::{NodeVerdict, PodState, VerdictLevel, VerdictPart};

/// The first sentence of a page, and its severity.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    level: VerdictLevel,
    text: Markup,
}

impl Verdict {
    /// A verdict in these words.
    pub(super) fn new(level: VerdictLevel, text: impl Render) -> Self {
        Self {
            level,
            text: text.render(),
        }
    }

    /// Nothing is the matter.
    pub(super) fn good(text: impl Render) -> Self {
        Self::new(VerdictLevel::Good, text)
    }

    /// Something does not work.
    pub(super) fn bad(text: impl Render) -> Self {
        Self::new(VerdictLevel::Bad, text)
    }

    /// Something works, but not as it should.
    pub(super) fn warning(text: impl Render) -> Self {
        Self::new(VerdictLevel::Warning, text)
    }

    /// Nothing is known.
    pub(super) fn empty(text: impl Render) -> Self {
        Self::new(VerdictLevel::Empty, text)
    }

    /// The verdict over the node, with a link to the pods that each part is about.
    pub(super) fn over_node(verdict: &NodeVerdict) -> Self {
        let parts = verdict.parts();
        Self::new(
            verdict.level(),
            html! { @for part in &parts { (linked(part)) } },
        )
    }
}

impl Render for Verdict {
    fn render(&self) -> Markup {
        html! {
            p.verdict.(class(self.level)) {
                span.sign aria-hidden="true" { (sign(self.level)) " " } (self.text)
            }
        }
    }
}

/// Severity of the state of a pod.
pub(super) const fn level_of_state(state: PodState) -> VerdictLevel {
    match state {
        PodState::Failing | PodState::Failed => VerdictLevel::Bad,
        PodState::CrashLoop | PodState::Stopped => VerdictLevel::Warning,
        PodState::Starting | PodState::Stopping => VerdictLevel::Busy,
        PodState::Ok => VerdictLevel::Good,
        PodState::Completed | PodState::Gone => VerdictLevel::Empty,
    }
}

/// The class in `style.css`.
pub(super) const fn class(level: VerdictLevel) -> &'static str {
    match level {
        VerdictLevel::Bad => "bad",
        VerdictLevel::Warning => "warn",
        VerdictLevel::Busy => "open",
        VerdictLevel::Good => "good",
        VerdictLevel::Empty => "plain",
    }
}

const fn sign(level: VerdictLevel) -> &'static str {
    match level {
        VerdictLevel::Bad => "✗",
        VerdictLevel::Warning => "!",
        VerdictLevel::Busy => "…",
        VerdictLevel::Good => "✓",
        VerdictLevel::Empty => "–",
    }
}

fn linked(part: &VerdictPart) -> Markup {
    let Some(query) = query(part) else {
        return html! { (part.text) };
    };
    let class = part.level.filter(|_| part.trouble.is_some()).map(class);
    html! { a class=[class] href={ "/debug/pods?" (query) } { (part.text) } }
}

/// The filter of the list that shows what a part is about.
fn query(part: &VerdictPart) -> Option<String> {
    let cause = part.cause.map(|cause| format!("cause={}", cause.name()));
    cause.or_else(|| Some(format!("state={}", part.trouble?.name())))
}

/// The text with an upper case letter at its begin and a full stop at its end.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let stop = if text.ends_with('.') { "" } else { "." };
    first.chain(letters).chain(stop.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;

    #[test]
    fn each_part_leads_to_its_pods() {
        let html = Verdict::over_node(&examples::pods().verdict)
            .render()
            .into_string();
        assert!(html.starts_with("<p class=\"verdict bad\">"), "{html}");
        assert!(
            html.contains("<a class=\"bad\" href=\"/debug/pods?state=cannot_start\">"),
            "{html}"
        );
        assert!(
            html.contains("<a class=\"warn\" href=\"/debug/pods?state=crash_loop\">"),
            "{html}"
        );
    }

    #[test]
    fn a_quiet_node_is_told_to_be_fine() {
        let quiet = NodeVerdict::new([], Vec::new());
        let html = Verdict::over_node(&quiet).render().into_string();
        assert!(html.contains("class=\"verdict plain\""), "{html}");
    }
}
