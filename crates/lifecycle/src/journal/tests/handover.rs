//! Two processes that write the same journal.

use super::*;

fn start(files: &JournalFiles, role: JournalRole) -> JournalWriter {
    JournalWriter::start(files.clone(), role, &Arc::default()).expect("thread")
}

fn others(newest: &JournalWriter) -> Vec<String> {
    let lines = newest.read_others().blocking_recv().expect("an answer");
    let lines = String::from_utf8(lines).expect("JSON");
    // A process that begins to write ends a line that may be incomplete.
    let lines = lines.lines().filter(|line| !line.is_empty());
    let lines = lines.map(|line| {
        let line: JournalLine<'_> = serde_json::from_str(line).expect("whole lines");
        let JournalLine::Call(call) = line else {
            panic!("a call");
        };
        call.target().to_owned()
    });
    lines.collect()
}

#[test]
fn each_line_is_written_once_and_read_once() {
    let state = state(MAX_FILE_LEN);
    state.write(&lines(&calls()));
    let (_, replayed) = state.replay();
    let newer_len = fs::metadata(state.files.newer()).expect("there").len();
    assert_eq!(replayed.newer_len, newer_len);
    let old = start(&state.files, JournalRole::HandingOver);
    let pull = |image: &str| read_calls(&format!("pull {image} 1s +1s"));
    // Between the replay and the start of the next writer.
    lines(&pull("old:1"))
        .iter()
        .for_each(|line| old.write(line));
    old.close();
    let newest = start(
        &state.files,
        JournalRole::Newest {
            replayed: newer_len,
        },
    );
    assert_eq!(others(&newest), ["old:1"]);
    assert_eq!(others(&newest), [""; 0]);
    for n in 2..20 {
        let old = start(&state.files, JournalRole::HandingOver);
        lines(&pull(&format!("own:{n}")))
            .iter()
            .for_each(|line| newest.write(line));
        lines(&pull(&format!("old:{n}")))
            .iter()
            .for_each(|line| old.write(line));
        old.close();
        lines(&pull(&format!("own:{n}b")))
            .iter()
            .for_each(|line| newest.write(line));
        assert_eq!(others(&newest), [format!("old:{n}")]);
    }
    newest.close();
    let (_, replayed) = state.replay();
    assert_eq!((replayed.lines, replayed.damaged), (5 + 1 + 18 * 3, 0));
}

#[test]
fn a_process_that_hands_over_follows_to_the_new_file_and_begins_none() {
    let state = state(1000);
    let newest = start(&state.files, JournalRole::Newest { replayed: 0 });
    let old = start(&state.files, JournalRole::HandingOver);
    let mut read = Vec::new();
    for n in 0..12 {
        lines(&read_calls(&format!("pull own:{n} 1s +1s")))
            .iter()
            .for_each(|line| newest.write(line));
        read.extend(others(&newest));
        lines(&read_calls(&format!("pull old:{n} 1s +1s")))
            .iter()
            .for_each(|line| old.write(line));
    }
    old.close();
    read.extend(others(&newest));
    newest.close();
    let all: Vec<_> = (0..12).map(|n| format!("old:{n}")).collect();
    assert_eq!(read, all);
    assert!(state.files.older().exists());
}

#[test]
fn calls_of_a_process_that_hands_over_are_not_lost_with_the_next() {
    let state = state(MAX_FILE_LEN);
    let calls = read_calls("pull app:1 0 +60s; pull side:1 10s +3s; pull next:1 20s +60s");
    let [pull, side, next] = &calls[..] else {
        panic!("three calls");
    };
    let lost = |call: &EpisodeCall| call.clone().lost_at(at(5000));
    let down = NodeFact {
        to: Some(at(30_000)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(25_000), "")
    };
    let written = [
        JournalLine::running(lost(pull)),
        JournalLine::handed_over(lost(pull)),
        JournalLine::handed_over(lost(side)),
        JournalLine::call(side),
        JournalLine::running(lost(next)),
        Some(JournalLine::node(&down)),
    ];
    state.write(&written.into_iter().flatten().collect::<Vec<_>>());
    let (_, replayed) = state.replay();
    assert_eq!(replayed.running, []);
    let targets: Vec<_> = replayed
        .handed_over
        .iter()
        .map(|call| call.target())
        .collect();
    assert_eq!(targets, ["app:1"]);
}
