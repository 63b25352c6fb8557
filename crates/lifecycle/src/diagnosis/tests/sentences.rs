//! Every sentence of a first line, in docs/SENTENCES.md, and its grammar. The sentences are those of the scenarios. A kind of cause or
//! remark that no scenario shows fails the test, so that the document is complete. `UPDATE_DOCS=1 cargo test -p criscope-lifecycle --lib
//! sentences` writes it.

mod grammar;
mod kinds;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::iter;
use std::path::Path;

use self::kinds::{Kind, PARTS, kinds_of, remark_kind, step_kind};
use super::texts;
use crate::diagnosis::fault;
use crate::diagnosis::next_step::{NextStep, PodPath};
use crate::diagnosis::reasons::{
    DocumentedReason, KeptPod, ShorterGrace, StepBeforeCreate, StepBeforePull, StepBeforeSandbox,
    StepBeforeSync, UnseenKill, UnusableSandbox,
};
use crate::diagnosis::remarks::{Diagnosis, Remark};
use crate::node::NodePrograms;
use crate::tests::scenario;
use crate::tests::script::pod;

/// Longest sentence that stands beside the shortest one of its kind, in bytes.
const MAX_LONG_EXAMPLE: usize = 320;
/// Longest first line. Lists of reasons and two faults fit.
const MAX_FIRST_LINE: usize = 600;

/// Longest next step, in bytes, with names of usual length.
const MAX_STEP: usize = 130;

/// The closed lists, each with its question.
const CLOSED_LISTS: [(&str, &[DocumentedReason]); 8] = [
    (
        "Why the kubelet kills a container of a pod that goes on",
        UnseenKill::DOCUMENTED,
    ),
    (
        "Where the kubelet may be before it syncs a pod",
        StepBeforeSync::DOCUMENTED,
    ),
    (
        "What it may wait for or lack before RunPodSandbox",
        StepBeforeSandbox::DOCUMENTED,
    ),
    (
        "What it may wait for or lack before CreateContainer",
        StepBeforeCreate::DOCUMENTED,
    ),
    (
        "Why an absent image is not pulled",
        StepBeforePull::DOCUMENTED,
    ),
    (
        "Why a sandbox is replaced: the one before",
        UnusableSandbox::DOCUMENTED,
    ),
    (
        "Why a pod is stopped with less than its grace period",
        ShorterGrace::DOCUMENTED,
    ),
    (
        "Why a pod still exists after the kubelet has stopped it",
        KeptPod::DOCUMENTED,
    ),
];

/// What was said in the scenarios.
#[derive(Debug, Default)]
struct SaidSentences {
    causes: BTreeMap<Vec<Kind>, BTreeSet<String>>,
    remarks: BTreeMap<Kind, BTreeSet<String>>,
    /// The texts of programs, by the kind of cause.
    raw_messages: BTreeMap<Kind, BTreeSet<String>>,
    /// Of pods that a runtime lists and no call has named.
    listed: BTreeSet<String>,
    first_lines: BTreeSet<String>,
    next_steps: BTreeMap<Kind, BTreeSet<String>>,
}

thread_local! {
    /// What is said in the scenarios that this thread plays, if it is to be kept.
    static SAID: RefCell<Option<SaidSentences>> = const { RefCell::new(None) };
}

/// Keeps what a diagnosis says.
pub(crate) fn note(diagnosis: &Diagnosis<'_>) {
    SAID.with_borrow_mut(|said| {
        let Some(said) = said else { return };
        said.first_lines.insert(diagnosis.to_string());
        if let Some(message) = diagnosis.raw_message(&NodePrograms::default()) {
            let kind = kinds_of(&diagnosis.cause)[0];
            let messages = said.raw_messages.entry(kind).or_default();
            messages.insert(message.to_string());
        }
        let others = diagnosis.remarks.iter().filter_map(|remark| match remark {
            Remark::Also(cause) | Remark::SecondFault(cause) => Some(cause),
            _ => None,
        });
        for cause in iter::once(&diagnosis.cause).chain(others) {
            let sentences = said.causes.entry(kinds_of(cause)).or_default();
            sentences.insert(cause.to_string());
        }
        for remark in &diagnosis.remarks {
            if matches!(remark, Remark::Also(_) | Remark::SecondFault(_)) {
                continue;
            }
            let sentences = said.remarks.entry(remark_kind(remark)).or_default();
            sentences.insert(remark.to_string());
        }
    });
}

/// Keeps the sentence on a pod that a runtime lists and no call has named.
pub(crate) fn note_listed(headline: &str) {
    SAID.with_borrow_mut(|said| {
        let Some(said) = said else { return };
        said.first_lines.insert(headline.to_owned());
        said.listed.insert(headline.to_owned());
    });
}

/// Keeps a next step.
pub(crate) fn note_step(step: &NextStep) {
    SAID.with_borrow_mut(|said| {
        let Some(said) = said else { return };
        let texts = said.next_steps.entry(step_kind(step)).or_default();
        texts.insert(step.to_string());
    });
}

/// Plays all scenarios and texts.
fn said_sentences() -> SaidSentences {
    SAID.set(Some(SaidSentences::default()));
    scenario::play_folder("src/diagnosis/tests");
    texts::check_texts();
    // Pods before their first call have no episode, and so no scenario.
    note_step(&NextStep::FindWait {
        pod: PodPath::from_pod(&pod("web").0),
        unit: "kubelet".to_owned(),
        uid: "0b2c7a52-6f0e-4d55-9d0f-3c1f3f9f9e57".to_owned(),
    });
    SAID.take().expect("sentences")
}

/// The shortest sentence, and the longest that is not too long and says much more.
fn examples(sentences: &BTreeSet<String>) -> Vec<&str> {
    let shortest = sentences.iter().min_by_key(|text| text.len());
    let shortest = shortest.expect("a sentence");
    let short_enough = sentences
        .iter()
        .filter(|text| text.len() <= MAX_LONG_EXAMPLE);
    let longest = short_enough.max_by_key(|text| text.len());
    let longest = longest.filter(|text| 2 * text.len() >= 3 * shortest.len());
    [Some(shortest), longest]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect()
}

fn document(said: &SaidSentences) -> String {
    let mut text = String::from(
        "# Sentences\n\n\
         <!-- Made from the scenarios of the diagnosis. To rewrite: UPDATE_DOCS=1 cargo test -p criscope-lifecycle --lib sentences -->\n\n\
         Every kind of first line, with the shortest sentence of the scenarios and a long one. A first line is a cause, and remarks on it.\n\n\
         ## Causes\n",
    );
    let mut before = None;
    for (kinds, sentences) in &said.causes {
        let (cause, details) = kinds.split_first().expect("a cause");
        if before != Some(cause) {
            let _ = write!(text, "\n### {}\n\n", cause.name());
            before = Some(cause);
        }
        let details: Vec<_> = details.iter().map(Kind::name).collect();
        let details = match &details[..] {
            [] => String::new(),
            some => format!("*{}*: ", some.join(", ")),
        };
        for sentence in examples(sentences) {
            let _ = writeln!(text, "- {details}`{}`", sentence.replace('`', "'"));
        }
    }
    text += "\n## Remarks\n\nThey follow a cause, after `; `. A cause that matters less may follow as well.\n\n";
    for (kind, sentences) in &said.remarks {
        for sentence in examples(sentences) {
            let _ = writeln!(
                text,
                "- *{}*: `{}`",
                kind.name(),
                sentence.replace('`', "'")
            );
        }
    }
    text += "\n## Next steps\n\nOne step below the first line. Commands stand between backticks; terminals leave them out.\n\n";
    for (kind, steps) in &said.next_steps {
        for step in examples(steps) {
            let _ = writeln!(text, "- *{}*: {step}", kind.name());
        }
    }
    text += "\n## Raw messages\n\nThe text of the program that failed, beside the first line. It names the program, as `runtime` if its name is unknown.\n\n";
    for (kind, messages) in &said.raw_messages {
        for message in examples(messages) {
            let _ = writeln!(text, "- *{}*: `{}`", kind.name(), message.replace('`', "'"));
        }
    }
    text += "\n## Pods whose start was not seen\n\nA runtime lists them, and no call has named them.\n\n";
    for sentence in &said.listed {
        let _ = writeln!(text, "- `{sentence}`");
    }
    text += "\n## Classes of errors\n\nThe words say what an error text proves, with the names, paths and addresses that it has. The text itself follows on the second line.\n\n";
    for (name, words) in fault::documented() {
        let words = words.unwrap_or("(the text alone)");
        let _ = writeln!(text, "- *{name}*: `{words}`");
    }
    text += "\n## Closed lists\n\n\
             Where the calls leave several reasons, a sentence lists all that they leave. Sources are those of Kubernetes 1.36, below `pkg/kubelet`.\n";
    for (question, reasons) in CLOSED_LISTS {
        let _ = write!(
            text,
            "\n### {question}\n\n| reason | source | shown by |\n|---|---|---|\n"
        );
        for (words, source, evidence) in reasons {
            let _ = writeln!(text, "| {words} | `{source}` | {evidence} |");
        }
    }
    text
}

#[test]
fn every_kind_of_sentence_is_documented_and_grammatical() {
    let said = said_sentences();
    let shown: BTreeSet<Kind> = said.causes.keys().flatten().copied().collect();
    let shown: BTreeSet<Kind> = shown
        .into_iter()
        .chain(said.remarks.keys().copied())
        .chain(said.next_steps.keys().copied())
        .collect();
    let missing: Vec<_> = Kind::all().filter(|kind| !shown.contains(kind)).collect();
    assert!(
        missing.is_empty(),
        "no scenario shows {missing:?} of {PARTS:?}"
    );

    let mistakes: Vec<_> = said
        .first_lines
        .iter()
        .filter_map(|line| Some(format!("{}: {line}", grammar::mistake(line)?)))
        .collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let mistakes: Vec<_> = said
        .first_lines
        .iter()
        .filter_map(|line| Some(format!("{}: {line}", grammar::voice_mistake(line)?)))
        .collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let longest = said.first_lines.iter().max_by_key(|line| line.len());
    let longest = longest.expect("a first line");
    assert!(longest.len() <= MAX_FIRST_LINE, "{longest}");

    let steps = said.next_steps.values().flatten();
    let long: Vec<_> = steps.filter(|step| step.len() > MAX_STEP).collect();
    assert!(long.is_empty(), "{long:#?}");

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SENTENCES.md");
    let wanted = document(&said);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/SENTENCES.md");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/SENTENCES.md: run UPDATE_DOCS=1 cargo test -p criscope-lifecycle --lib sentences"
    );
}
