//! Sentences on failed calls.

use std::fmt::{self, Display, Formatter};

use super::{caller, subject, times};
use crate::cri::Method;
use crate::cri::status::code_name;
use crate::lifecycle::diagnosis::cause::{Failure, How};
use crate::lifecycle::diagnosis::failure::message;
use crate::lifecycle::episode_call::EpisodeCall;
use crate::units::{self, duration};

/// Longest error text in a headline, in bytes.
const MESSAGE: usize = 300;

impl Display for Failure<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.how {
            How::Late { .. } => self.late(f),
            How::Reserved { times: n } => {
                write!(
                    f,
                    "{} is refused {}: an earlier try still holds the name (name is reserved)",
                    subject(self.last),
                    times(*n)
                )?;
                self.work(f)
            }
            How::Cancelled { longest } => {
                write!(
                    f,
                    "{} was broken off by the {} {} after {}",
                    subject(self.last),
                    caller(self.last),
                    times(self.tries),
                    duration(*longest)
                )?;
                self.work(f)
            }
            How::Network { .. } | How::Error => self.error(f),
        }
    }
}

impl Failure<'_> {
    /// The observed work, as a suffix.
    fn work(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.work {
            Some(worker) => write!(f, "; {} in {worker}", duration(worker.ms)),
            None => Ok(()),
        }
    }

    fn late(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let How::Late {
            first,
            deadline,
            times: n,
            refused,
        } = self.how
        else {
            return Ok(());
        };
        write!(
            f,
            "{} passed the {}'s deadline of {}",
            subject(first),
            caller(first),
            duration(deadline)
        )?;
        if n > 1 {
            write!(f, " {}", times(n))?;
        }
        if refused > 0 {
            let tries = if refused == 1 {
                "try was"
            } else {
                "tries were"
            };
            write!(
                f,
                ", and {refused} more {tries} refused while the first went on (name is reserved)"
            )?;
        }
        self.work(f)
    }

    fn error(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation(), said(self.last))?;
        match (self.past, self.tries) {
            (true, 1) => write!(f, " (1 try failed first)"),
            (true, n) => write!(f, " ({n} tries failed first)"),
            (false, 1) => write!(f, " ({})", self.since()),
            (false, n) => write!(f, " ({n} tries, the last {})", self.since()),
        }
    }

    fn since(&self) -> String {
        units::since(self.now, self.last.end_us())
    }

    /// The failed operation, without the reason.
    fn operation(&self) -> String {
        let cannot = if self.past { "could not" } else { "cannot" };
        let target = self.last.target();
        if let How::Network { plugin } = &self.how {
            return match (self.last.method, plugin) {
                (Method::StopPodSandbox, _) => format!("network: it {cannot} be taken down"),
                (_, Some(plugin)) => format!("network: the CNI plugin {plugin} fails"),
                (_, None) => format!("network: it {cannot} be set up"),
            };
        }
        match self.last.method {
            Method::PullImage => format!("image {target} {cannot} be pulled"),
            Method::CreateContainer => format!("container {target} {cannot} be created"),
            Method::StartContainer => format!("container {target} {cannot} be started"),
            Method::StopContainer => format!("container {target} {cannot} be stopped"),
            Method::RunPodSandbox => format!("the sandbox {cannot} be made"),
            Method::StopPodSandbox => format!("the sandbox {cannot} be stopped"),
            Method::RemovePodSandbox => format!("the sandbox {cannot} be removed"),
            method if self.past => format!("{} failed", method.name()),
            method => format!("{} fails", method.name()),
        }
    }
}

/// Status code and error message.
fn said(call: &EpisodeCall) -> String {
    let message = message(call).trim();
    let code = call.outcome().map(|outcome| code_name(outcome.code));
    let mut text = code.unwrap_or_default().to_owned();
    if !message.is_empty() {
        let cut = message.floor_char_boundary(MESSAGE);
        text += " ";
        text += message[..cut].trim_end();
        if cut < message.len() {
            text += " ...";
        }
    }
    text
}
