//! What requests for containers said is known again.

use super::*;
use crate::diagnosis::Diagnoser;

#[test]
fn requests_are_known_again() {
    let state = state(MAX_FILE_LEN);
    let calls = read_calls(
        "pod a; run 0 +100; up app 100 memory 24 mount empty_dir /lib; \
         UpdateContainerResources app 400 +10 memory 64; create side 500 +10 mount host_path /opt/srv; \
         start side 600 +10 fails UNKNOWN `exec: \"/opt/srv/run\": stat /opt/srv/run: no such file or directory`",
    );
    let web = pod("a");
    let exit = ExitRecord {
        reason: ExitReason::OomKilled,
        ..web.exit(("app", 0), 137, 300, 900)
    };
    let mut lines = lines(&calls);
    lines.push(JournalLine::exit(&web.0, None, &exit));
    state.write(&lines);
    let (again, replayed) = state.replay();
    assert_eq!((replayed.lines, replayed.damaged), (7, 0));
    let mut live = store();
    calls.into_iter().for_each(|call| {
        live.apply(call);
    });
    live.note_exit(&web.0, None, exit);
    let said = first_line(&again);
    assert_eq!(said, first_line(&live));
    assert!(
        said.contains("a hostPath over /opt/srv") && said.contains("limit 64 MiB"),
        "{said}"
    );
}

fn first_line(store: &EpisodeStore) -> String {
    let episodes: Vec<_> = store.episodes().collect();
    let newest = Diagnoser::new(&episodes, store.node(), at(2000)).newest_verdict();
    newest.expect("a cause").diagnosis.to_string()
}
