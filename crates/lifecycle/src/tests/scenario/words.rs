//! The words of a step: numbers, times, containers and texts.

use std::collections::VecDeque;
use std::str::FromStr;

/// The words of a step that have not been read.
#[derive(Debug)]
pub(crate) struct Words {
    words: VecDeque<String>,
    /// The time from which the times of the step count, in milliseconds.
    from: u64,
}

impl Words {
    /// Splits a step at spaces, except within backticks.
    pub(crate) fn new(step: &str, from: u64) -> Result<Self, String> {
        let mut words = VecDeque::new();
        for (n, part) in step.split('`').enumerate() {
            if n % 2 == 1 {
                words.push_back(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        match step.matches('`').count() % 2 {
            0 => Ok(Self { words, from }),
            _ => Err("a text without end".to_owned()),
        }
    }

    /// The next word, if there is one.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    /// The next word, which is a `wanted` thing.
    pub(crate) fn word(&mut self, wanted: &str) -> Result<String, String> {
        self.next().ok_or_else(|| format!("{wanted} is missing"))
    }

    /// Returns whether the next word is this one, and reads it then.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.front().is_some_and(|next| next == word);
        if is_next {
            self.words.pop_front();
        }
        is_next
    }

    /// Returns whether all words have been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns whether a word with this beginning comes next.
    fn begins(&self, prefix: char) -> bool {
        self.words
            .front()
            .is_some_and(|next| next.starts_with(prefix))
    }

    pub(crate) fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word("a number")?;
        word.parse().map_err(|_| format!("`{word}`: no number"))
    }

    /// A point in time.
    pub(crate) fn time(&mut self) -> Result<u64, String> {
        Ok(self.from + millis(&self.word("a time")?)?)
    }

    /// A duration without a plus.
    pub(crate) fn length(&mut self) -> Result<u64, String> {
        millis(&self.word("a duration")?)
    }

    /// `+TIME`.
    pub(crate) fn took(&mut self) -> Result<u64, String> {
        let word = self.word("a duration")?;
        let took = word.strip_prefix('+');
        millis(took.ok_or_else(|| format!("`{word}`: a duration begins with +"))?)
    }

    /// The text after this word, if the word comes next.
    pub(crate) fn text_after(&mut self, word: &str) -> Result<Option<String>, String> {
        let is_next = self.take(word);
        is_next.then(|| self.word("a text")).transpose()
    }

    /// The duration after this word, if the word comes next.
    pub(crate) fn length_after(&mut self, word: &str) -> Result<Option<u64>, String> {
        let is_next = self.take(word);
        is_next.then(|| self.length()).transpose()
    }

    /// `+TIME`, if it comes next.
    pub(crate) fn took_or(&mut self, default: u64) -> Result<u64, String> {
        if self.begins('+') {
            self.took()
        } else {
            Ok(default)
        }
    }

    /// `FROM..TO` or `FROM..`, in milliseconds without the begin of the step.
    pub(crate) fn offsets(&mut self) -> Result<(u64, Option<u64>), String> {
        let word = self.word("FROM..TO")?;
        let (from, to) = word
            .split_once("..")
            .ok_or_else(|| format!("`{word}`: no FROM..TO"))?;
        let to = match to {
            "" => None,
            to => Some(millis(to)?),
        };
        Ok((millis(from)?, to))
    }

    /// `FROM..TO` or `FROM..` as points in time.
    pub(crate) fn range(&mut self) -> Result<(u64, Option<u64>), String> {
        let (from, to) = self.offsets()?;
        Ok((self.from + from, to.map(|to| self.from + to)))
    }

    /// The name of a container and the number of its run.
    pub(crate) fn container(&mut self) -> Result<(String, u32), String> {
        let word = self.word("a container")?;
        let (name, run) = word.split_once('/').unwrap_or((&word, "0"));
        let run = run.parse();
        Ok((
            name.to_owned(),
            run.map_err(|_| format!("`{word}`: no container and run"))?,
        ))
    }

    /// Nothing more may follow.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.next()
            .map_or(Ok(()), |word| Err(format!("unknown word `{word}`")))
    }
}

/// The steps of a line, which are separated by `;` outside of texts.
pub(crate) fn split_steps(line: &str) -> Vec<&str> {
    let mut is_text = false;
    let steps = line.split(|c: char| {
        is_text ^= c == '`';
        c == ';' && !is_text
    });
    let steps = steps.map(str::trim).filter(|step| !step.is_empty());
    steps.collect()
}

/// A number of milliseconds, or one with a unit.
fn millis(word: &str) -> Result<u64, String> {
    let (number, unit) = match word {
        _ if word.ends_with("ms") => (&word[..word.len() - 2], 1.0),
        _ if word.ends_with('s') => (&word[..word.len() - 1], 1e3),
        _ if word.ends_with('m') => (&word[..word.len() - 1], 60e3),
        _ if word.ends_with('h') => (&word[..word.len() - 1], 3600e3),
        _ => (word, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{word}`: no time"))?;
    Ok((number * unit).round() as u64)
}

/// One of these values by its name.
pub(crate) fn named<T: Copy>(
    word: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.iter().copied().find(|value| name(*value) == word);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|value| name(*value)).collect();
        format!("`{word}`: none of {}", names.join(", "))
    })
}
