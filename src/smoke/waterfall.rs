//! Draws the timeline as text: one bar per step, from its start to its end, on the scale of the whole run.

use std::fmt::Write as _;
use std::time::Duration;

use super::timeline::{FinishedStep, StepOutcome, rounded_millis};
use crate::cri::visible::visible;
use crate::pages::terminal::{WaterfallStyle, bar};
use crate::units;

const MIN_COLUMNS: usize = 60;
/// Widths of start and length.
const TIME_WIDTH: usize = 10;
/// Follows the bar of a failed step.
const FAILED: &str = " failed";

const RESET: &str = "\x1b[0m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";

/// The bars of all steps under a header, each line terminated by a newline.
pub fn render(steps: &[FinishedStep], look: WaterfallStyle) -> String {
    let end = steps.iter().map(|step| step.start + step.took).max();
    let total = end.unwrap_or_default();
    let name = steps
        .iter()
        .map(|step| step.name.len())
        .max()
        .unwrap_or(0)
        .max(4);
    let marked = if steps.iter().all(FinishedStep::ok) {
        0
    } else {
        FAILED.len()
    };
    let room = look
        .width
        .max(MIN_COLUMNS)
        .saturating_sub(name + 2 * TIME_WIDTH + 2 + marked)
        .max(10);

    let mut text = String::new();
    let axis = time(total);
    let header = format!(
        "{:<name$}{:>TIME_WIDTH$}{:>TIME_WIDTH$}  0{axis:>rest$}",
        "step",
        "start",
        "took",
        rest = room - 1
    );
    line(&mut text, look, DIM, &header);
    for step in steps {
        let bar = bar((step.start, step.took), total, room, look.unicode);
        let _ = write!(
            text,
            "{:<name$}{:>TIME_WIDTH$}{:>TIME_WIDTH$}  ",
            step.name,
            time(step.start),
            time(step.took)
        );
        let colour = if step.ok() { GREEN } else { RED };
        let mark = if step.ok() { "" } else { FAILED };
        line(&mut text, look, colour, &format!("{bar}{mark}"));
    }
    text
}

fn line(text: &mut String, look: WaterfallStyle, colour: &str, content: &str) {
    if look.colour {
        let _ = writeln!(text, "{colour}{content}{RESET}");
    } else {
        let _ = writeln!(text, "{content}");
    }
}

/// Formats a duration.
fn time(length: Duration) -> String {
    units::duration(rounded_millis(length))
}

/// A line for a step that has just ended, without the newline, with its hint on the next line.
pub fn progress(step: &FinishedStep, colour: bool) -> String {
    let codes = [GREEN, RED, DIM, RESET];
    let [green, red, dim, reset] = codes.map(|code| if colour { code } else { "" });
    let took = time(step.took);
    match &step.ended {
        StepOutcome::Ok(detail) => {
            let text = format!(
                "  {green}ok{reset}    {:<18}{took:>TIME_WIDTH$}  {dim}{}{reset}",
                step.name,
                visible(detail)
            );
            text.trim_end().to_owned()
        }
        StepOutcome::Failed(failure) => {
            let hint = failure
                .hint
                .as_ref()
                .map(|hint| format!("\n        hint: {hint}"));
            format!(
                "  {red}FAIL{reset}  {:<18}{took:>TIME_WIDTH$}  {}{}",
                step.name,
                visible(&failure.error),
                hint.unwrap_or_default()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::FailureDetail;
    use super::*;

    fn step(name: &'static str, start: u64, took: u64, ok: bool) -> FinishedStep {
        let failure = FailureDetail {
            error: "no".into(),
            hint: Some("try again".into()),
        };
        FinishedStep {
            name,
            start: Duration::from_micros(start),
            took: Duration::from_micros(took),
            ended: if ok {
                StepOutcome::Ok("fine".into())
            } else {
                StepOutcome::Failed(failure)
            },
        }
    }

    fn steps() -> [FinishedStep; 4] {
        [
            step("Version", 0, 1_200, true),
            step("RunPodSandbox", 1_200, 118_800, true),
            step("StartContainer", 120_000, 60_000, true),
            step("ExecSync", 180_000, 20_000, false),
        ]
    }

    #[test]
    fn bars_show_start_and_length() {
        let look = WaterfallStyle {
            width: 83,
            colour: false,
            unicode: true,
        };
        let want = "\
step               start      took  0                                 200 ms
Version          0.00 ms   1.20 ms  ▏
RunPodSandbox    1.20 ms    119 ms  ████████████████████████
StartContainer    120 ms   60.0 ms                          ████████████
ExecSync          180 ms   20.0 ms                                      ████ failed
";
        assert_eq!(render(&steps(), look), want);
    }

    #[test]
    fn ascii_in_a_narrow_terminal() {
        let look = WaterfallStyle {
            width: 67,
            colour: false,
            unicode: false,
        };
        let want = "\
step               start      took  0                 200 ms
Version          0.00 ms   1.20 ms  |
RunPodSandbox    1.20 ms    119 ms  ##############
StartContainer    120 ms   60.0 ms                ########
ExecSync          180 ms   20.0 ms                        ## failed
";
        assert_eq!(render(&steps(), look), want);
    }

    #[test]
    fn only_bars_are_coloured_and_only_on_request() {
        let look = WaterfallStyle {
            width: 80,
            colour: true,
            unicode: true,
        };
        let text = render(&steps(), look);
        let failed = text.lines().last().unwrap_or_default();
        assert!(failed.contains(" ms  \x1b[31m ") && failed.ends_with("█ failed\x1b[0m"));
        assert_eq!(text.matches(RESET).count(), 5);
    }

    #[test]
    fn runs_without_steps_or_duration_are_drawn() {
        let look = WaterfallStyle {
            width: 80,
            colour: false,
            unicode: true,
        };
        assert_eq!(render(&[], look).lines().count(), 1);
        assert!(render(&[step("Version", 0, 0, true)], look).ends_with("▏\n"));
    }

    #[test]
    fn messages_of_a_runtime_cannot_control_the_terminal() {
        let mut step = step("Version", 0, 0, true);
        step.ended = StepOutcome::Ok("a\x1b[2J\nb".into());
        assert!(progress(&step, false).ends_with("a [2J b"));
        step.ended = StepOutcome::Failed(FailureDetail {
            error: "a\x1b[2J\nb".into(),
            hint: None,
        });
        assert!(progress(&step, false).ends_with("a [2J b"));
    }

    #[test]
    fn progress_lines_show_the_outcome() {
        assert_eq!(
            progress(&step("Version", 0, 1_200, true), false),
            "  ok    Version              1.20 ms  fine"
        );
        assert_eq!(
            progress(&step("Version", 0, 12_345_000, false), false),
            "  FAIL  Version               12.3 s  no\n        hint: try again"
        );
    }
}
