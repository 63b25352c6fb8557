//! How a rollout proceeds: the arguments of the installer that say how many nodes at a time, and which first.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

/// How many nodes may be worked on at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxParallel {
    /// A count.
    Nodes(u32),
    /// A percentage of the nodes with an installer, rounded up as in the update strategy of a DaemonSet.
    Percent(u32),
}

impl MaxParallel {
    /// The number of nodes, of this many. At least one.
    pub fn of_nodes(self, nodes: usize) -> usize {
        let count = match self {
            Self::Nodes(count) => count as usize,
            Self::Percent(percent) => (nodes * percent as usize).div_ceil(100),
        };
        count.max(1)
    }
}

impl fmt::Display for MaxParallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The reason why a text is no [`MaxParallel`].
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is neither a count of nodes such as 5, nor a percentage such as 10%, and at least 1"
)]
pub struct MaxParallelError(String);

impl FromStr for MaxParallel {
    type Err = MaxParallelError;

    fn from_str(text: &str) -> Result<Self, MaxParallelError> {
        let parsed = match text.strip_suffix('%') {
            Some(percent) => percent
                .parse()
                .ok()
                .filter(|percent| (1..=100).contains(percent))
                .map(Self::Percent),
            None => text
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .map(Self::Nodes),
        };
        parsed.ok_or_else(|| MaxParallelError(text.to_owned()))
    }
}

/// How a rollout proceeds.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct RolloutPolicy {
    /// How many nodes are worked on at the same time: a count, or a percentage of the nodes such as 10%
    #[arg(long, value_name = "N|N%", default_value = "1")]
    pub max_parallel: MaxParallel,
    /// How long a node keeps its turn after it has become healthy, and must stay healthy: 90s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub soak: Duration,
    /// Nodes with these labels go first; the others wait until all of them are done
    #[arg(long, value_name = "SELECTOR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub canary: Option<String>,
}

/// Parses a duration as Kubernetes writes it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok();
    let parsed = parsed.and_then(|duration| Duration::try_from(duration).ok());
    parsed.ok_or_else(|| format!("{text:?} is not a duration such as 90s, 10m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_nodes_is_a_count_or_a_percentage() {
        for (text, of_50, of_1) in [("1", 1, 1), ("7", 7, 7), ("10%", 5, 1), ("1%", 1, 1)] {
            let max: MaxParallel = text.parse().expect(text);
            assert_eq!((max.of_nodes(50), max.of_nodes(1)), (of_50, of_1), "{text}");
            assert_eq!(max.to_string(), text);
        }
        for text in ["", "0", "0%", "101%", "-1", "5 %", "all"] {
            assert!(text.parse::<MaxParallel>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_in_kubernetes() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("10m", 600), ("1h30m", 5400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "-5s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
