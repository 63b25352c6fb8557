//! Budgets: a limit on a measured value, and whether it is met.

use std::fmt;

use serde::Serialize;

/// A limit and a measurement.
#[derive(Debug, Serialize)]
pub struct Budget {
    what: String,
    measured: f64,
    limit: Limit,
    aim: Option<f64>,
    unit: &'static str,
    /// Decimal places.
    #[serde(skip)]
    digits: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Budget {
    /// A budget shown with two decimal places.
    pub fn new(what: impl Into<String>, measured: f64, limit: Limit, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            measured,
            limit,
            aim: None,
            unit,
            digits: 2,
        }
    }

    /// Adds a stricter target, which is shown but not enforced.
    pub fn aim(mut self, aim: Option<f64>) -> Self {
        self.aim = aim;
        self
    }

    pub fn digits(mut self, digits: usize) -> Self {
        self.digits = digits;
        self
    }

    /// Returns whether the measurement is within the limit.
    pub fn met(&self) -> bool {
        self.within(match self.limit {
            Limit::AtMost(limit) | Limit::AtLeast(limit) => limit,
        })
    }

    fn within(&self, limit: f64) -> bool {
        match self.limit {
            Limit::AtMost(_) => self.measured <= limit,
            Limit::AtLeast(_) => self.measured >= limit,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.aim {
            _ if !self.met() => "MISSED",
            Some(aim) if self.within(aim) => "ok, aim met",
            _ => "ok",
        };
        let (word, limit) = match self.limit {
            Limit::AtMost(limit) => ("at most", limit),
            Limit::AtLeast(limit) => ("at least", limit),
        };
        let (what, unit, digits) = (&self.what, self.unit, self.digits);
        write!(f, "{verdict}: {what}, {:.digits$}{unit}", self.measured)?;
        write!(f, " ({word} {limit:.digits$}{unit}")?;
        match self.aim {
            Some(aim) => write!(f, ", aim {aim:.digits$}{unit})"),
            None => f.write_str(")"),
        }
    }
}
