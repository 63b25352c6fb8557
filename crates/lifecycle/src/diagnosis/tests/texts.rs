//! Error texts as runtimes, plugins and registries write them, in `texts/*.txt`: the first line on a call that failed with them.
//!
//! ```text
//! CALL => OPERATION
//! in TEMPLATE
//!     CODE TEXT
//!         REASON
//! ```
//!
//! The first line says the operation and the reason, or the innermost cause of the text where no reason is given. TEMPLATE has `{}`
//! where the texts below it stand. The reason of a network's failure begins with the verb of its CNI plugin, as in `fails: ...`.

use std::fs;
use std::path::Path;

use super::sentences::{note, note_step};
use crate::diagnosis::Diagnoser;
use crate::diagnosis::words::failure::MAX_MESSAGE_BYTES;
use crate::episode_call::EpisodeCall;
use crate::tests::scenario::calls;
use crate::tests::scenario::words::Words;
use crate::tests::script::{at, pod, store};
use criscope_cri::error_chain;

/// The part of a file that has been read: what the next texts belong to.
#[derive(Default)]
struct Section {
    call: String,
    operation: String,
    template: Option<String>,
}

impl Section {
    fn read(line: &str) -> Self {
        let (call, operation) = line.split_once(" => ").expect("CALL => OPERATION");
        Self {
            call: call.to_owned(),
            operation: operation.to_owned(),
            template: None,
        }
    }

    /// What is said of the call five seconds after it failed with this code and text, and what should be said.
    fn check(&self, failure: &str, class: Option<&str>) -> Option<String> {
        let (code, text) = failure.split_once(' ').expect("CODE TEXT");
        let text = text.replace("\\n", "\n");
        let text = match &self.template {
            Some(template) => template.replace("{}", &text),
            None => text,
        };
        let (verb, words) = self.call.split_once(' ').expect("VERB OBJECT");
        let mut words = Words::new(words, 0).expect("words");
        let call = calls::read(&pod("web"), verb, &mut words).expect("a call");
        let failed = call
            .expect("a call")
            .fails(calls::code(code).expect("a code"), &text);
        // Without a class, the text alone says why.
        let reason = class.map_or_else(
            || {
                error_chain::shortened(&error_chain::innermost(&text), MAX_MESSAGE_BYTES)
                    .into_owned()
            },
            str::to_owned,
        );
        // The verb of a CNI plugin is a part of the reason.
        let joint = match (self.operation.contains("the CNI plugin "), class) {
            (true, Some(_)) => " ",
            (true, None) => " fails: ",
            (false, _) => ": ",
        };
        let wanted = format!("{}{joint}{reason} (5 s ago)", self.operation);
        let said = first_line(failed, 5500);
        (said != wanted).then(|| format!("{failure}\n  wanted: {wanted}\n  said:   {said}"))
    }
}

/// The first line at this time on a pod with this call only.
pub(super) fn first_line(call: EpisodeCall, now: u64) -> String {
    let mut store = store();
    store.apply(call);
    let episodes: Vec<_> = store.episodes().collect();
    let pods = Diagnoser::new(&episodes, store.node(), at(now));
    let verdict = pods.newest_verdict().expect("a cause");
    note(&verdict.diagnosis);
    let step = pods.step_of_newest(&verdict.diagnosis);
    step.iter().for_each(note_step);
    verdict.diagnosis.to_string()
}

#[test]
fn texts_of_failed_calls_have_the_class_that_they_prove() {
    check_texts();
}

/// Checks the first line of each text. Panics with the lines that differ from the expected ones.
pub(super) fn check_texts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/tests/texts");
    let (mut checked, mut failures) = (0, Vec::new());
    for entry in fs::read_dir(folder).expect("a folder of this crate") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("UTF-8");
        let mut section = Section::default();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        let mut lines = lines.filter(|line| !line.is_empty()).peekable();
        while let Some(line) = lines.next() {
            let Some(failure) = line.strip_prefix("    ") else {
                match line.strip_prefix("in ") {
                    Some(template) => section.template = Some(template.to_owned()),
                    None => section = Section::read(line),
                }
                continue;
            };
            let class = lines.next_if(|line| line.starts_with("        "));
            failures.extend(section.check(failure, class.map(str::trim)));
            checked += 1;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked > 200, "{checked}");
}
