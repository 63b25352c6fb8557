//! How a first line is scored: what it has to say, and whom it must not blame.

use std::fmt;

/// What the first line must say, as an engineer would want to read it at night: the object, the cause, the evidence.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    /// Facts that it must name, the cause first: `a; b` is both, `a|b` is either of them, `~2..5` is a duration of 2 to 5 seconds.
    pub(super) says: &'static str,
    /// Words that would blame another component.
    pub(super) never: &'static str,
    /// The states of the pod in `criscope pods` that would be right, with `|` between them; empty for any.
    pub(super) state: &'static str,
}

/// What a person sees of a pod at one time.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// The first line of `criscope explain`.
    pub(super) line: String,
    /// The state in `criscope pods`.
    pub(super) state: String,
}

impl From<String> for Seen {
    fn from(line: String) -> Self {
        Self {
            line,
            state: String::new(),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.state {
            "" => f.write_str(&self.line),
            state => write!(f, "[{state}] {}", self.line),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// All facts, and no wrong blame.
    Right,
    /// Some of the facts, and no wrong blame.
    Partly,
    /// None of the facts, and nothing that would be taken for a cause.
    Silent,
    /// Another cause.
    Wrong,
    /// The case could not be played.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Right => "right",
            Self::Partly => "partly",
            Self::Silent => "silent",
            Self::Wrong => "WRONG",
            Self::Broken => "BROKEN",
        })
    }
}

/// That nothing is wrong.
const ALL_CLEAR: &str = "nothing slow";

/// Beginnings and words of a line that names no cause.
const SILENT: [&str; 4] = [ALL_CLEAR, "no record", "so far", "no call"];

impl Expected {
    pub(super) fn verdict(&self, seen: &Seen) -> Verdict {
        if !self.has_state(seen) {
            return Verdict::Wrong;
        }
        let line = seen.line.to_lowercase();
        let named = facts(self.says).filter(|fact| says(&line, fact)).count();
        let is_whole = named == facts(self.says).count();
        // What is well beside what is not may be said, but not alone.
        let mut words = facts(self.never);
        if words.any(|word| says(&line, word) && !(is_whole && word == ALL_CLEAR)) {
            return Verdict::Wrong;
        }
        match named {
            _ if is_whole => Verdict::Right,
            1.. => Verdict::Partly,
            0 if line.is_empty() || SILENT.iter().any(|word| line.contains(word)) => {
                Verdict::Silent
            }
            0 => Verdict::Wrong,
        }
    }

    fn has_state(&self, seen: &Seen) -> bool {
        self.state.is_empty() || self.state.split('|').any(|state| state == seen.state)
    }

    /// The facts that are missing in it.
    pub(super) fn missing(&self, seen: &Seen) -> Vec<String> {
        let line = seen.line.to_lowercase();
        let state = (!self.has_state(seen)).then(|| format!("STATE {}", self.state));
        let wrong = facts(self.never).filter(|word| says(&line, word));
        let wrong = wrong.map(|word| format!("NOT {word}"));
        let missing = facts(self.says).filter(|fact| !says(&line, fact));
        let missing = missing.map(str::to_owned);
        state.into_iter().chain(wrong).chain(missing).collect()
    }
}

/// The single facts of a list; an empty list has none.
fn facts(list: &str) -> impl Iterator<Item = &str> {
    list.split("; ").filter(|fact| !fact.is_empty())
}

fn says(line: &str, fact: &str) -> bool {
    fact.split('|').any(|one| match one.strip_prefix('~') {
        Some(range) => {
            let (least, most) = range.split_once("..").expect("a range of seconds");
            let [least, most] = [least, most].map(|s| s.parse::<f64>().expect("seconds"));
            durations(line).any(|s| (least..=most).contains(&s))
        }
        None => line.contains(&one.to_lowercase()),
    })
}

/// The durations in a line, in seconds: `3.20 s`, `450 ms`, `2m 05s`.
fn durations(line: &str) -> impl Iterator<Item = f64> {
    let words: Vec<_> = line
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()))
        .collect();
    let pairs = words.windows(2).filter_map(|pair| {
        let [number, unit] = [pair[0], pair[1]];
        if let (Some(m), Some(s)) = (number.strip_suffix('m'), unit.strip_suffix('s')) {
            return Some(m.parse::<f64>().ok()? * 60.0 + s.parse::<f64>().ok()?);
        }
        let number: f64 = number.parse().ok()?;
        match unit {
            "s" => Some(number),
            "ms" => Some(number / 1e3),
            "min" => Some(number * 60.0),
            _ => None,
        }
    });
    pairs.collect::<Vec<_>>().into_iter()
}

#[test]
fn a_line_is_scored() {
    let expected = Expected {
        says: "image a/b:1; not found|not there; ~2..4",
        never: "kubelet",
        state: "",
    };
    for (line, verdict) in [
        ("image a/b:1 is NOT FOUND after 3.20 s", Verdict::Right),
        ("image a/b:1 is not there (2100 ms)", Verdict::Right),
        ("image a/b:1 is not there, 1m 03s", Verdict::Partly),
        ("up after 0.2 s, nothing slow", Verdict::Silent),
        ("the kubelet: image a/b:1 not found, 3 s", Verdict::Wrong),
        ("the disk is full", Verdict::Wrong),
    ] {
        assert_eq!(expected.verdict(&line.to_owned().into()), verdict, "{line}");
    }
    let expected = Expected {
        state: "ok|completed",
        ..expected
    };
    let seen = |state: &str| Seen {
        line: "image a/b:1 not found, 3 s".to_owned(),
        state: state.to_owned(),
    };
    assert_eq!(expected.verdict(&seen("completed")), Verdict::Right);
    assert_eq!(expected.verdict(&seen("failing")), Verdict::Wrong);
    assert!(says("(1m 03s)", "~62..64"));
}
