//! Scenarios from real nodes, and the sentence that each must begin with: files in `tests`, one or a few lines per case.

pub(super) mod sentences;
mod texts;

use super::documented_faults;
use crate::tests::scenario;
use crate::tests::script::pod;
use crate::view::CauseGroup;
use criscope_cri::status::Code;

#[test]
fn scenarios() {
    scenario::play_folder("src/diagnosis/tests");
}

#[test]
fn long_errors_are_cut() {
    let error = "é".repeat(1000);
    let text = texts::first_line(pod("web").run(0, 100).fails(Code::Internal, &error), 1000);
    assert!(text.len() < 400 && text.contains(" ... é"), "{text}");
}

#[test]
fn every_fault_has_a_group() {
    for (name, _) in documented_faults() {
        let group = CauseGroup::from_cause(name);
        assert!(
            group.is_some_and(|group| group != CauseGroup::Other),
            "{name}"
        );
    }
}
