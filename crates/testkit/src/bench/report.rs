//! A report: Markdown that is readable in a terminal, JSON, and a section of the documentation.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::Options;
use super::budget::Budget;
use crate::error::{Error, IoContext, Result};

/// The page with the reports.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PERFORMANCE.md");

/// The results of a run.
pub struct Report<'a, R> {
    pub results: &'a R,
    pub budgets: Vec<Budget>,
    /// Tables and other paragraphs, in order; empty ones are left out.
    pub parts: Vec<String>,
    /// Facts about the machine and the programs, as name and value.
    pub facts: &'a [(&'static str, String)],
    /// The lines around the report in the documentation.
    pub markers: [&'static str; 2],
}

impl<R: Serialize> Report<'_, R> {
    /// Prints the report and writes it where the options say. Returns whether every budget was met.
    ///
    /// # Errors
    /// When a file cannot be written, or the documentation has no markers.
    pub fn publish(&self, options: &Options) -> Result<bool> {
        let markdown = self.markdown();
        println!("\n{markdown}");
        if let Some(file) = &options.json {
            let whole = serde_json::json!({ "results": self.results, "budgets": self.budgets });
            fs::write(file, format!("{whole:#}\n"))
                .during(|| format!("writing {}", file.display()))?;
        }
        if options.write_docs {
            write_between(self.markers, &markdown, Path::new(DOCS))?;
        }
        Ok(self.budgets.iter().all(Budget::met))
    }

    fn markdown(&self) -> String {
        let budgets = self.budgets.iter().map(|budget| format!("- {budget}\n"));
        let facts = self.facts.iter();
        let facts = facts.map(|(name, value)| format!("- {name}: {value}\n"));
        let lists = [budgets.collect(), facts.collect()];
        let parts = self.parts.iter().chain(&lists);
        let parts: Vec<_> = parts
            .map(String::as_str)
            .filter(|p| !p.is_empty())
            .collect();
        parts.join("\n")
    }
}

fn write_between([begin, end]: [&str; 2], report: &str, file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).during(|| format!("reading {}", file.display()))?;
    let parts = text
        .split_once(begin)
        .and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let Some((head, tail)) = parts else {
        return Err(Error::Setup(format!("{} has no markers", file.display())));
    };
    let text = format!("{head}{begin}\n{report}\n{end}{tail}");
    fs::write(file, text).during(|| format!("writing {}", file.display()))
}

/// A Markdown table with padded columns. The first row is the header; all but the first column are right-aligned.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            text.push_str(&match column {
                0 => format!("| {cell:width$} "),
                _ => format!("| {cell:>width$} "),
            });
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                text.push_str(&match column {
                    0 => format!("|{}", "-".repeat(width + 2)),
                    _ => format!("|{}:", "-".repeat(width + 1)),
                });
            }
            text.push_str("|\n");
        }
    }
    text
}
