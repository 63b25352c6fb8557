//! A disk without space: lines wait for it, and calls do not.

use std::os::unix::fs::symlink;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::*;
use crate::journal::writer::lines_on_disk;

/// A journal whose file is one that takes nothing: every write to `/dev/full` fails with ENOSPC. A file that is removed is made anew.
fn full() -> (Dir, JournalWriter) {
    let state = state(MAX_FILE_LEN);
    fs::create_dir(&state.files.dir).expect("made");
    symlink("/dev/full", state.files.newer()).expect("linked");
    let journal = JournalWriter::start_in(&state.files.newer(), &state.drops).expect("thread");
    (state, journal)
}

#[test]
fn a_disk_that_takes_nothing_costs_lines_only() {
    let (state, journal) = full();
    for line in lines(&calls()) {
        journal.write(&line);
    }
    journal.close();
    assert_eq!(state.drops.count(DropReason::JournalFailed), 5);
    assert_eq!(state.drops.journal_waiting(), 0);
}

#[test]
fn nothing_is_lost_when_the_disk_has_space_again() {
    let (state, journal) = full();
    let calls = calls();
    let lines = lines(&calls);
    let (first, last) = lines.split_at(3);
    first.iter().for_each(|line| journal.write(line));
    let patience = Instant::now() + Duration::from_secs(60);
    while state.drops.journal_waiting() < 3 {
        assert!(Instant::now() < patience, "the lines do not wait");
        sleep(Duration::from_millis(1));
    }
    fs::remove_file(state.files.newer()).expect("removed");
    // Without another line.
    while state.drops.journal_waiting() > 0 {
        assert!(Instant::now() < patience, "the lines still wait");
        sleep(Duration::from_millis(1));
    }
    last.iter().for_each(|line| journal.write(line));
    journal.close();
    assert_eq!(state.drops.count(DropReason::JournalFailed), 0);
    let (_, replayed) = state.replay();
    assert_eq!((replayed.lines, replayed.damaged), (5, 0));
}

#[test]
fn a_line_is_written_again_unless_only_its_end_is_missing() {
    for (written, on_disk) in [(0, 0), (1, 0), (2, 3), (3, 3), (4, 3), (5, 6), (6, 6)] {
        assert_eq!(lines_on_disk(b"{}\n[]\n", written), on_disk, "{written}");
    }
}

#[test]
fn lines_that_wait_are_bounded() {
    let (state, journal) = full();
    let calls = calls();
    let lines = lines(&calls);
    let patience = Instant::now() + Duration::from_secs(60);
    let mut written = 0;
    while state.drops.count(DropReason::JournalFailed) == 0 {
        assert!(Instant::now() < patience, "no line is lost");
        lines.iter().for_each(|line| journal.write(line));
        written += lines.len() as u64;
    }
    journal.close();
    let lost = state.drops.count(DropReason::JournalFailed);
    let unqueued = state.drops.count(DropReason::JournalQueueFull);
    assert_eq!(lost + unqueued, written, "all of them at the end");
}
