//! Files of scenarios: titles, and lines of steps.

use std::collections::BTreeMap;

/// The scenarios and blocks of a file.
#[derive(Debug, Default)]
pub(super) struct ScenarioFile {
    pub(super) scenarios: Vec<Scenario>,
    pub(super) blocks: BTreeMap<String, Vec<StepLine>>,
}

/// A title, and the steps below it.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) title: String,
    pub(super) number: usize,
    pub(super) lines: Vec<StepLine>,
}

/// A line with steps, and its number in the file.
#[derive(Clone, Debug)]
pub(super) struct StepLine {
    pub(super) number: usize,
    pub(super) text: String,
}

impl ScenarioFile {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut sections = Vec::<Scenario>::new();
        for (number, line) in (1..).zip(text.lines()) {
            let text = line.trim().to_owned();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if !line.starts_with(' ') {
                let lines = Vec::new();
                sections.push(Scenario {
                    title: text,
                    number,
                    lines,
                });
                continue;
            }
            let last = sections.last_mut();
            let last = last.ok_or_else(|| format!("{number}: a step without a scenario"))?;
            last.lines.push(StepLine { number, text });
        }
        let mut file = Self::default();
        for section in sections {
            let title = section.title.strip_prefix('[');
            match title.and_then(|title| title.strip_suffix(']')) {
                Some(name) => _ = file.blocks.insert(name.to_owned(), section.lines),
                None => file.scenarios.extend(section.variants()?),
            }
        }
        Ok(file)
    }
}

impl Scenario {
    /// The scenario with each set of values that its first line, `each NAME... in VALUE... | VALUE...`, gives.
    fn variants(self) -> Result<Vec<Self>, String> {
        let first = self.lines.first();
        let Some(each) = first.and_then(|line| line.text.strip_prefix("each ")) else {
            return Ok(vec![self]);
        };
        let parts = each.split_once(" in ");
        let (names, sets) =
            parts.ok_or_else(|| format!("{}: `each` without `in`", self.number + 1))?;
        let names: Vec<_> = names.split_whitespace().collect();
        let variants = sets.split(" | ").map(|set| {
            // The last value may have several words.
            let values = set.trim().splitn(names.len(), ' ');
            let values: Vec<_> = names.iter().zip(values).collect();
            let lines = self.lines[1..].iter().map(|line| line.filled(&values));
            Self {
                title: format!("{} ({})", self.title, set.trim()),
                number: self.number,
                lines: lines.collect(),
            }
        });
        Ok(variants.collect())
    }
}

impl StepLine {
    /// The line with `$NAME` replaced by its value.
    fn filled(&self, values: &[(&&str, &str)]) -> Self {
        let text = self.text.clone();
        let text = values.iter().fold(text, |text, (name, value)| {
            text.replace(&format!("${name}"), value)
        });
        Self { text, ..*self }
    }
}
