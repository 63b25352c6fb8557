//! Scenarios: what happened to a pod, in a few words each, and what criscope says of it.
//!
//! ```text
//! # A comment.
//! a slow network plugin
//!     run 0 +9700 cni calico 100..9600; up app 9700
//!     60s => network: 9.5 s of 9.9 s in the CNI plugin calico, during RunPodSandbox
//!     60s state => ok
//! ```
//!
//! The title of a scenario begins a line, its steps are indented. `;` separates the steps of a line. A time is a number of
//! milliseconds since an arbitrary day began, or has a unit (`1.5s`, `2m`, `1h`); `+TIME` is a duration. Texts of several words
//! stand between backticks.
//!
//! | step | meaning |
//! |---|---|
//! | `TIME => TEXT` | at this time the first line on the pod is this; `*` stands for any text, `!>` for "is not" |
//! | `TIME SUBJECT => TEXT` | the same of another subject, see [`expect`] |
//! | `run`, `pull IMAGE`, `create C`, `kill C`, `stop`, ... `TIME +TIME` | a call of the kubelet, see [`calls`] |
//! | `up C TIME` | CreateContainer and StartContainer, 100 ms each or as given with `+TIME +TIME` |
//! | `exit C CODE FROM..TO`, `fact ...`, `sync ...` | other events, see [`events`] |
//! | `listed TIME ...` | the runtime lists the pod, see [`lists`] |
//! | `pod NAME`, `pod NAME/UID`, `sandbox N` | the pod, and the attempt of its sandbox, of the steps that follow; first `web`, 0 |
//! | `tick TIME`, `learn` | closes what is over by then; learns the usual durations from what has been closed |
//! | `with BLOCK`, `with BLOCK from TIME` | the steps of a block, which has the title `[BLOCK]`; its times begin at TIME |
//! | `repeat N every TIME: STEPS` | repeats the rest of the line; in it and its blocks `{n}`, `{n+1}` are numbers that begin with 0 |
//! | `each A B in 1 x \| 2 y` | first line: plays the scenario once with `$A` and `$B` as `1` and `x`, once as `2` and `y` |
//!
//! Each expectation is held twice: against the store that saw the steps, and against one that read the journal of these steps, as a
//! criscope that was restarted does.
//!
//! C is a container and the number of its run, `app/0`, or a name alone for the first run.

pub(crate) mod calls;
mod events;
mod expect;
mod file;
mod journal;
mod lists;
mod player;
mod requests;
pub(crate) mod words;

use std::fs;
use std::path::Path;

pub(crate) use self::calls::read_calls;
use self::file::ScenarioFile;
use self::player::Player;

/// Plays the scenarios of the `.txt` files in a folder of this crate. Panics with the file, line and title of each that fails.
pub(crate) fn play_folder(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).expect("a folder of this crate");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scenarios in {}", folder.display());
    let mut failures = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("UTF-8");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        failures.extend(play(&text).into_iter().map(|text| format!("{name}:{text}")));
    }
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Plays the scenarios of a file, and returns what failed, each with its line and the title of its scenario.
fn play(text: &str) -> Vec<String> {
    match ScenarioFile::read(text) {
        Ok(file) => {
            let scenarios = file.scenarios.iter();
            scenarios
                .flat_map(|scenario| Player::play(&file, scenario))
                .collect()
        }
        Err(error) => vec![error],
    }
}

#[cfg(test)]
mod tests {
    use super::play;

    #[test]
    fn a_scenario_that_holds_says_nothing() {
        let text = "
# A comment.
[started]
    run 0 +900; up app 1s
each and repeat
    each CODE WORD in 1 with | 0 `with a space`
    with started
    repeat 2 every 10s: exit app/{n} $CODE 2s..3s; up app/{n+1} 4s
    30s episodes => start* | restart app#1 * | restart app#2 *
    30s => *exit code $CODE*
";
        assert_eq!(play(text), Vec::<String>::new());
    }

    #[test]
    fn a_failure_names_line_title_and_what_was_said() {
        let text = "a start\n    run 0 +900; up app 1s\n    60s => *slow as ever\n    60s cause !> quick\n";
        let failures = play(text);
        let said = "app up after 1.2 s, nothing slow";
        assert_eq!(
            failures,
            [
                format!("3: a start: at 60s\n  wanted: *slow as ever\n  said:   {said}"),
                "4: a start: at 60s cause\n  not:    quick\n  said:   quick".to_owned()
            ]
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (steps, mistake) in [
            ("run", "2: t: `run`: a time is missing"),
            (
                "run 0 900",
                "2: t: `run 0 900`: `900`: a duration begins with +",
            ),
            ("run x +1", "2: t: `run x +1`: `x`: no time"),
            ("fly 0 +1", "2: t: `fly 0 +1`: unknown step `fly`"),
            (
                "run 0 +1 fast",
                "2: t: `run 0 +1 fast`: unknown word `fast`",
            ),
            (
                "run 0 +1 fails ODD `x`",
                "2: t: `run 0 +1 fails ODD `x``: `ODD`: no code of gRPC",
            ),
            (
                "exit app/x 1 0..1",
                "2: t: `exit app/x 1 0..1`: `app/x`: no container and run",
            ),
            (
                "with nothing",
                "2: t: `with nothing`: there is no block [nothing]",
            ),
            (
                "run 0 +1 fails OK `x",
                "2: t: `run 0 +1 fails OK `x`: a text without end",
            ),
            ("60s mood => x", "2: t: `60s mood`: unknown subject `mood`"),
            ("run 0 +1", "1: t: nothing is expected"),
        ] {
            assert_eq!(play(&format!("t\n    {steps}\n")), [mistake]);
        }
        assert_eq!(play("    run 0 +1\n"), ["1: a step without a scenario"]);
    }
}
