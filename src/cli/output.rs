//! Terminal output: lines with ok, note, warn or fail. Coloured only on a terminal, and not if `NO_COLOR` is set (`anstream`
//! knows the conventions).

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cri::visible::visible;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FindingLevel {
    Ok,
    /// Worth knowing; nothing has to be done now.
    Note,
    Warn,
    Fail,
}

impl FindingLevel {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => AnsiColor::Green.on_default(),
            Self::Note => AnsiColor::Cyan.on_default(),
            Self::Warn => AnsiColor::Yellow.on_default().bold(),
            Self::Fail => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// One line of a report, and a recommendation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ReportFinding {
    pub(super) level: FindingLevel,
    /// The subject of the check.
    pub(super) topic: String,
    /// The result.
    pub(super) text: String,
    /// The recommendation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl ReportFinding {
    pub(super) fn new(level: FindingLevel, topic: &str, text: impl Into<String>) -> Self {
        Self {
            level,
            topic: topic.to_owned(),
            text: text.into(),
            hint: None,
        }
    }

    pub(super) fn ok(topic: &str, text: impl Into<String>) -> Self {
        Self::new(FindingLevel::Ok, topic, text)
    }

    pub(super) fn warn(topic: &str, text: impl Into<String>) -> Self {
        Self::new(FindingLevel::Warn, topic, text)
    }

    pub(super) fn fail(topic: &str, text: impl Into<String>) -> Self {
        Self::new(FindingLevel::Fail, topic, text)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Writes it with colours; `anstream` strips them where they are unwanted.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let style = self.level.style();
        writeln!(
            out,
            "{style}{:<4}{style:#}  {:<8}  {}",
            self.level.word(),
            self.topic,
            visible(&self.text)
        )?;
        if let Some(hint) = &self.hint {
            let style = Style::new().dimmed();
            writeln!(out, "{:16}{style}-> {}{style:#}", "", visible(hint))?;
        }
        Ok(())
    }
}

/// Prints a recommendation for an error on standard error.
pub(super) fn hint(what: impl Display) {
    let style = Style::new().dimmed();
    // Standard error may be closed.
    let _ = writeln!(anstream::stderr(), "{style}hint: {what}{style:#}");
}

/// Prints an error on standard error.
pub(super) fn error(what: impl Display) {
    let style = FindingLevel::Fail.style();
    // Standard error may be closed.
    let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {what}");
}

#[cfg(test)]
mod tests {
    use anstream::{AutoStream, ColorChoice};

    use super::*;

    fn written(choice: ColorChoice, finding: &ReportFinding) -> String {
        let mut out = AutoStream::new(Vec::new(), choice);
        finding.write(&mut out).expect("written");
        String::from_utf8(out.into_inner()).expect("text")
    }

    #[test]
    fn a_line_is_the_same_with_and_without_colour() {
        let finding = ReportFinding::fail("upstream", "no socket").hint("start it");
        assert_eq!(
            written(ColorChoice::Never, &finding),
            "fail  upstream  no socket\n                -> start it\n"
        );
        assert!(written(ColorChoice::AlwaysAnsi, &finding).contains("\u{1b}[31m"));
    }

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        let finding = ReportFinding::ok("status", "a\u{1b}[2J\nb");
        let line = written(ColorChoice::AlwaysAnsi, &finding);
        assert!(line.ends_with("a [2J b\n"), "{line:?}");
    }

    #[test]
    fn json_leaves_out_what_is_not_there() {
        let json = serde_json::to_string(&ReportFinding::warn("kubelet", "x")).expect("json");
        assert_eq!(json, r#"{"level":"warn","topic":"kubelet","text":"x"}"#);
    }
}
