//! Closed lists of reasons, for questions that calls leave open. A table has every reason that the kubelet or a runtime can have, with
//! the source that does it and what would show it; the words of a list are made from the table. docs/SENTENCES.md prints the tables, and
//! `tests/by-hand/kubelet-reasons.py` looks for their sources in a new version of Kubernetes.

mod kept;
mod kills;
mod steps;

pub(super) use self::kept::KeptPod;
pub(super) use self::kills::UnseenKill;
pub(super) use self::steps::{
    ShorterGrace, StepBeforeCreate, StepBeforePull, StepBeforeSandbox, StepBeforeSync,
    UnusableSandbox,
};

/// A closed list of reasons.
pub(super) trait ClosedList: Copy + PartialEq + 'static {
    /// Every reason.
    const ALL: &'static [Self];

    /// The reason in a list, as after "after" or "for".
    fn words(self) -> &'static str;
}

/// The list as the documents show it: words, source and evidence of each reason.
#[cfg(test)]
pub(super) type DocumentedReason = (&'static str, &'static str, &'static str);

macro_rules! closed_list {
    ($(#[$doc:meta])* $list:ident: $($(#[$note:meta])* $reason:ident = $words:literal, by $source:literal, shown by $evidence:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $list {$($(#[$note])* #[doc = $words] $reason),*}

        impl $crate::diagnosis::reasons::ClosedList for $list {
            const ALL: &'static [Self] = &[$(Self::$reason),*];

            fn words(self) -> &'static str {
                match self {$(Self::$reason => $words),*}
            }
        }

        #[cfg(test)]
        impl $list {
            pub(in $crate::diagnosis) const DOCUMENTED: &'static [$crate::diagnosis::reasons::DocumentedReason] =
                &[$(($words, $source, $evidence)),*];
        }
    };
}
use closed_list;

/// `a`, `a or b, unknown which`.
pub(super) fn one_of(reasons: &[impl AsRef<str>]) -> String {
    let which = if reasons.len() > 1 {
        ", unknown which"
    } else {
        ""
    };
    either(reasons) + which
}

/// The words of these reasons.
pub(super) fn words<R: ClosedList>(reasons: &[R]) -> Vec<&'static str> {
    reasons.iter().map(|reason| reason.words()).collect()
}

/// `a`, `a or b`, `a, b or c`.
fn either(words: &[impl AsRef<str>]) -> String {
    let Some((last, others)) = words.split_last() else {
        return String::new();
    };
    let mut text = String::new();
    for (number, word) in others.iter().enumerate() {
        text += if number == 0 { "" } else { ", " };
        text += word.as_ref();
    }
    text += if others.is_empty() { "" } else { " or " };
    text + last.as_ref()
}
