//! Scenarios from real nodes, and the sentence that each must begin with: files in `tests`, one or a few lines per case.

mod texts;

use crate::tests::scenario;
use crate::tests::script::pod;
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
