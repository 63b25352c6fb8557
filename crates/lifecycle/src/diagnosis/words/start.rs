//! Sentences on starts: which containers are up, which have ended, and which are not started.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use super::exit::{ago_of, ended};
use super::{all_of, duration, list, times};
use crate::diagnosis::init_retries::{InitRetries, RetriedInit};
use crate::diagnosis::late_probes::LateProbe;
use crate::diagnosis::reasons::{one_of, words};
use crate::diagnosis::waits;
use crate::episode_store::{AwaitedContainers, ExitRecord};

/// The kubelet notices the end of a container and creates the next one within this time, unless something holds it up.
const NEXT_CONTAINER_WITHIN: Duration = Duration::from_secs(10);

/// Writes which containers a start waits for. `since`: since the begin or the end of the run of the container that was started last.
pub(super) fn write_awaited(
    f: &mut Formatter<'_>,
    awaited: &AwaitedContainers<'_>,
    since: Duration,
    end: Option<(&ExitRecord, usize)>,
) -> fmt::Result {
    let AwaitedContainers { last, missing, .. } = awaited;
    let init = if awaited.is_init {
        "init container "
    } else {
        ""
    };
    match end {
        None => write!(f, "{init}{last} has run for {}", duration(since))?,
        Some((exit, failed)) => {
            write!(f, "{init}{last} {} ({}", ended(exit), ago_of(since))?;
            match failed {
                0 | 1 => f.write_char(')')?,
                n => write!(f, ", failed {})", times(n))?,
            }
        }
    }
    match &missing[..] {
        [] => write!(
            f,
            "; {last} was an init container in other pods, so others may follow"
        ),
        [one] if awaited.is_init && end.is_none() => write!(f, "; {one} waits for it"),
        some => {
            let have = if some.len() == 1 { "has" } else { "have" };
            write!(f, "; {} {have} not been started yet", all_of(some))?;
            match end {
                Some((exit, _)) if exit.code == 0 && since >= NEXT_CONTAINER_WITHIN => write!(
                    f,
                    "; held up by {}",
                    one_of(&[&["its turn to pull"], &*words(&waits::steps_after_image())].concat())
                ),
                _ => Ok(()),
            }
        }
    }
}

/// Writes that containers were never started. `last`: the container that was started last.
pub(super) fn write_never_started(
    f: &mut Formatter<'_>,
    missing: &[&str],
    last: &str,
) -> fmt::Result {
    match missing {
        [] => write!(
            f,
            "only {last} was started, an init container in other pods"
        ),
        [one] => write!(f, "{one} was never started"),
        some => write!(f, "{} were never started", all_of(some)),
    }
}

/// How containers ended; several good ends share one clause.
pub(super) fn ends(exits: &[&ExitRecord]) -> Vec<String> {
    let (done, others): (Vec<&ExitRecord>, Vec<&ExitRecord>) = exits
        .iter()
        .partition(|exit| exit.code == 0 && !exit.stop_requested);
    let mut texts: Vec<_> = match &done[..] {
        [_, _, ..] => {
            let names: Vec<_> = done.iter().map(|exit| &*exit.container).collect();
            vec![format!("{} ended with exit code 0", list(&names))]
        }
        few => few.iter().map(|exit| end(exit)).collect(),
    };
    texts.extend(others.iter().map(|exit| end(exit)));
    texts
}

fn end(exit: &ExitRecord) -> String {
    format!("{} {}", exit.container, ended(exit))
}

impl Display for InitRetries<'_> {
    /// `init container mig failed twice (exit code 7); 15 s of 16 s were the kubelet's back-off`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.containers.iter().map(RetriedInit::to_string).collect();
        f.write_str(&texts.join(", "))?;
        let waited = duration(self.waited());
        // The kubelet runs a container again at once after its first failure.
        if self
            .containers
            .iter()
            .any(|retried| retried.failed.len() > 1)
        {
            let total = duration(self.total);
            write!(f, "; {waited} of {total} were the kubelet's back-off")
        } else {
            write!(f, "; {waited} until the next run")
        }
    }
}

impl Display for RetriedInit<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, tries) = (self.container, times(self.failed.len()));
        let Some(last) = self.failed.last() else {
            return Ok(());
        };
        let code = last.code;
        let are_equal = self.failed.iter().all(|exit| exit.code == code);
        if self.failed.iter().all(|exit| exit.is_out_of_memory()) {
            return write!(
                f,
                "init container {name} was OOMKilled {tries} (exit code {code})"
            );
        }
        let which = if are_equal { "" } else { "the last time with " };
        write!(
            f,
            "init container {name} failed {tries} ({which}exit code {code})"
        )?;
        if self.ran > self.waited {
            write!(f, " and then ran for {}", duration(self.ran))?;
        }
        Ok(())
    }
}

impl Display for LateProbe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an exec probe of {} failed {} before its first success, {} after the start (startup, readiness or another: the CRI does not say which)",
            self.container,
            times(self.failed as usize),
            duration(self.after)
        )
    }
}
