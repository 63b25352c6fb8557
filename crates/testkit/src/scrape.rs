//! Parser for the Prometheus text format.

use std::collections::BTreeMap;

/// One scrape.
#[derive(Clone, Debug)]
pub struct Scrape {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    pub fn parse(text: &str) -> Self {
        let lines = text
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'));
        Self {
            samples: lines.map(Sample::parse).collect(),
        }
    }

    /// The samples of one metric.
    pub fn metric(&self, name: &str) -> Samples<'_> {
        let all = self.samples.iter();
        Samples(all.filter(|s| s.name == name).collect())
    }
}

impl Sample {
    fn parse(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("series and value");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect("brace")),
            None => (series, ""),
        };
        // No label value contains a comma or a quote.
        let labels = labels.split(',').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        });
        Self {
            name: name.to_owned(),
            labels: labels.collect(),
            value: value.parse().expect(line),
        }
    }
}

/// Selected samples of one metric.
#[derive(Debug)]
pub struct Samples<'a>(Vec<&'a Sample>);

impl Samples<'_> {
    /// Keeps samples with this label.
    pub fn with(mut self, label: &str, value: &str) -> Self {
        self.0
            .retain(|s| s.labels.get(label).is_some_and(|v| v == value));
        self
    }

    /// The sum of the samples; 0 if there are none.
    pub fn sum(&self) -> f64 {
        self.0.iter().map(|s| s.value).sum()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
