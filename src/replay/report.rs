//! Differences between the recording and the target: calls with another code first, then a table of the methods.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::plan::{RecordedStep, SkipReason};
use super::play::PlayedOutcome;
use crate::cri::Method;
use crate::cri::status::code_name;
use crate::cri::visible::visible;
use crate::units;

/// Most differing calls that the text shows.
const MAX_DIFFERENCES_SHOWN: usize = 50;

/// The result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Calls in the capture.
    pub calls: usize,
    /// Calls that were played.
    pub played: usize,
    /// Calls whose codes were compared.
    pub compared: usize,
    /// Calls that were not played, by reason.
    pub skipped: BTreeMap<&'static str, usize>,
    /// Calls with another code.
    pub different: Vec<CodeDifference>,
    /// The methods that were played.
    pub methods: Vec<MethodComparison>,
    /// Objects left on the target.
    pub left: Vec<String>,
    /// True if the replay was interrupted.
    pub interrupted: bool,
}

/// A call with another code.
#[derive(Clone, Debug, Serialize)]
pub struct CodeDifference {
    /// The method.
    pub method: Method,
    /// When it began in the recording, after the first call.
    pub at_ms: f64,
    /// `NAMESPACE/NAME`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The recorded code.
    pub recorded: &'static str,
    /// The target's code.
    pub replayed: &'static str,
    /// The target's error.
    pub error: String,
}

/// The calls of a method.
#[derive(Clone, Debug, Serialize)]
pub struct MethodComparison {
    /// The method.
    pub method: Method,
    /// Calls compared.
    pub calls: usize,
    /// Calls with the same code.
    pub equal: usize,
    /// Median and 99th percentile of the recorded calls.
    pub recorded_ms: [f64; 2],
    /// Median and 99th percentile on the target, in milliseconds.
    pub replayed_ms: [f64; 2],
    /// Replayed to recorded median; absent if the recorded one is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

#[derive(Default)]
struct DurationSummary {
    recorded: Vec<Duration>,
    replayed: Vec<Duration>,
    equal: usize,
}

impl ReplayReport {
    pub(super) fn new(steps: &[RecordedStep], played: &[PlayedOutcome], left: Vec<String>) -> Self {
        let mut report = Self {
            calls: steps.len(),
            played: 0,
            compared: 0,
            skipped: BTreeMap::new(),
            different: Vec::new(),
            methods: Vec::new(),
            left,
            interrupted: false,
        };
        let mut times: BTreeMap<usize, DurationSummary> = BTreeMap::new();
        for (step, played) in steps.iter().zip(played) {
            let call = &step.call;
            let (code, text, elapsed) = match played {
                PlayedOutcome::Skipped(why) => {
                    report.interrupted |= *why == SkipReason::Interrupted;
                    *report.skipped.entry(why.text()).or_default() += 1;
                    continue;
                }
                PlayedOutcome::Done {
                    code,
                    text,
                    elapsed,
                } => (*code, text, *elapsed),
            };
            report.played += 1;
            if !step.is_comparable() {
                continue;
            }
            report.compared += 1;
            let of_method = times.entry(call.method.index()).or_default();
            of_method.recorded.push(Duration::from_micros(call.elapsed));
            of_method.replayed.push(elapsed);
            if code == call.code() {
                of_method.equal += 1;
                continue;
            }
            let pod = call.pod.as_deref();
            report.different.push(CodeDifference {
                method: call.method,
                at_ms: step.at.as_secs_f64() * 1e3,
                pod: pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)),
                recorded: code_name(call.code()),
                replayed: code_name(code),
                error: text.to_string(),
            });
        }
        let rows = times.into_iter().filter_map(|(method, times)| {
            let method = *Method::ALL.get(method)?;
            Some(times.row(method))
        });
        report.methods = rows.collect();
        report
    }

    /// Returns whether the target did as recorded: every code is the same, there was one, and nothing is left.
    pub fn is_equal(&self) -> bool {
        self.compared > 0 && self.different.is_empty() && self.left.is_empty() && !self.interrupted
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let codes = match (self.compared, self.different.len()) {
            (0, _) => "no call could be compared".to_owned(),
            (compared, 0) => format!("{compared} calls compared, every code as recorded"),
            (compared, n) => format!("{n} of {compared} calls ended with another code"),
        };
        writeln!(out, "{codes}")?;
        if self.interrupted {
            writeln!(out, "the replay was interrupted")?;
        }
        self.write_different(out)?;
        self.write_methods(out)?;
        for (why, n) in &self.skipped {
            writeln!(out, "{n} calls not played: {why}")?;
        }
        if self.played > self.compared {
            let n = self.played - self.compared;
            writeln!(
                out,
                "{n} calls not compared: cancelled by their caller, or with an injected fault"
            )?;
        }
        for left in &self.left {
            writeln!(out, "left on the target: {}", visible(left))?;
        }
        Ok(())
    }

    fn write_different(&self, out: &mut String) -> std::fmt::Result {
        for it in self.different.iter().take(MAX_DIFFERENCES_SHOWN) {
            let pod = it.pod.as_deref().unwrap_or("-");
            write!(
                out,
                "  +{}  {}  {}  {} -> {}",
                units::duration(it.at_ms),
                it.method,
                visible(pod),
                it.recorded,
                it.replayed
            )?;
            match &*it.error {
                "" => writeln!(out)?,
                error => writeln!(out, ": {}", visible(error))?,
            }
        }
        if self.different.len() > MAX_DIFFERENCES_SHOWN {
            let more = self.different.len() - MAX_DIFFERENCES_SHOWN;
            writeln!(out, "  and {more} more: see -o json")?;
        }
        Ok(())
    }

    fn write_methods(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<26} {:>6} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10} {:>7}",
            "METHOD",
            "CALLS",
            "EQUAL",
            "OTHER",
            "REC P50",
            "REC P99",
            "NOW P50",
            "NOW P99",
            "RATIO"
        )?;
        for row in &self.methods {
            let [rec50, rec99] = row.recorded_ms.map(units::duration);
            let [now50, now99] = row.replayed_ms.map(units::duration);
            let ratio = row
                .ratio
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            writeln!(
                out,
                "{:<26} {:>6} {:>6} {:>6} {rec50:>10} {rec99:>10} {now50:>10} {now99:>10} {ratio:>7}",
                row.method.name(),
                row.calls,
                row.equal,
                row.calls - row.equal
            )?;
        }
        Ok(())
    }
}

impl DurationSummary {
    fn row(mut self, method: Method) -> MethodComparison {
        let recorded_ms = percentiles(&mut self.recorded);
        let replayed_ms = percentiles(&mut self.replayed);
        let ratio = replayed_ms[0] / recorded_ms[0];
        MethodComparison {
            method,
            calls: self.recorded.len(),
            equal: self.equal,
            recorded_ms,
            replayed_ms,
            ratio: ratio.is_finite().then_some(ratio),
        }
    }
}

/// Median and 99th percentile (nearest rank).
fn percentiles(times: &mut [Duration]) -> [f64; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        let time = times.get(rank - 1).copied().unwrap_or_default();
        time.as_secs_f64() * 1e3
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Ending, Sealed};
    use crate::lifecycle::capture::requests::RecordedCall;
    use crate::replay::plan::plan;
    use tonic::Code;

    fn call(seq: u64, ending: Ending, elapsed: u64) -> RecordedCall {
        RecordedCall {
            seq,
            method: Method::Version,
            began: seq * 1000,
            elapsed,
            deadline: None,
            ending,
            code: 0,
            injected: false,
            pod: None,
            made: None,
            request: Sealed::new(Default::default()),
        }
    }

    fn done(code: Code, ms: u64) -> PlayedOutcome {
        PlayedOutcome::Done {
            code,
            text: "it is broken".into(),
            elapsed: Duration::from_millis(ms),
        }
    }

    #[test]
    fn differences_come_first_and_decide() {
        let steps = plan(vec![
            call(0, Ending::Ok, 2000),
            call(1, Ending::Ok, 4000),
            call(2, Ending::Cancelled, 9000),
            call(3, Ending::Ok, 1),
        ]);
        let equal = [
            done(Code::Ok, 4),
            done(Code::Ok, 4),
            done(Code::Ok, 1),
            PlayedOutcome::Skipped(SkipReason::Unknown),
        ];
        let report = ReplayReport::new(&steps, &equal, Vec::new());
        assert!(report.is_equal());
        assert_eq!((report.calls, report.played, report.compared), (4, 3, 2));
        assert_eq!(report.methods[0].recorded_ms, [2.0, 4.0]);
        assert_eq!(report.methods[0].ratio, Some(2.0));
        let text = report.text();
        assert!(
            text.contains("1 calls not played: about objects older"),
            "{text}"
        );
        assert!(text.contains("1 calls not compared"), "{text}");

        let mut other = equal.clone();
        other[1] = done(Code::NotFound, 4);
        let report = ReplayReport::new(&steps, &other, Vec::new());
        assert!(!report.is_equal());
        let text = report.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "1 of 2 calls ended with another code");
        assert!(
            lines[1].contains("Version  -  OK -> NOT_FOUND: it is broken"),
            "{text}"
        );

        // A replay that compared nothing has shown nothing.
        let skipped = steps
            .iter()
            .map(|_| PlayedOutcome::Skipped(SkipReason::Unknown))
            .collect::<Vec<_>>();
        assert!(!ReplayReport::new(&steps, &skipped, Vec::new()).is_equal());
        let left = vec!["sandbox a".to_owned()];
        assert!(!ReplayReport::new(&steps, &equal, left).is_equal());
    }
}
