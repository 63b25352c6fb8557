//! Sentences on failed calls.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::{caller, duration, subject, times};
use crate::diagnosis::cause::{CallFailure, FailureKind, WorkProgress};
use crate::diagnosis::failure::error_message;
use crate::episode_call::EpisodeCall;
use criscope_cri::status::code_name;
use criscope_cri::units;
use criscope_cri::{Method, error_chain};

const NAME_HELD: &str = "the runtime still holds its name (name is reserved)";

/// Longest error text in a headline, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 300;

impl Display for CallFailure<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_kind(f)?;
        if self.is_not_tried_again {
            let ago = duration(self.now.since(self.last.ended_at()));
            write!(f, "; not tried again for {ago}, as when the pod is deleted")?;
        }
        Ok(())
    }
}

impl CallFailure<'_> {
    fn write_kind(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::DeadlinePassed { deadline, times: n } => {
                self.write_deadline(f, deadline, n)
            }
            FailureKind::RuntimeGaveUp { after, deadline } => {
                self.write_gave_up(f, after, deadline)
            }
            FailureKind::NameReserved { times: n } => {
                write!(
                    f,
                    "{} is refused {}: an earlier try still holds the name (name is reserved)",
                    subject(self.last),
                    times(n)
                )?;
                self.write_work(f)
            }
            FailureKind::CallerCancelled { longest, times: n } => {
                write!(
                    f,
                    "{} was broken off by {} {} after {}",
                    subject(self.last),
                    caller(self.last),
                    times(n),
                    duration(longest)
                )?;
                self.write_refused(f)?;
                self.write_work(f)
            }
            FailureKind::Injected
            | FailureKind::Network { .. }
            | FailureKind::PauseImage { .. }
            | FailureKind::Error { .. } => self.write_error(f),
        }
    }

    /// Writes the observed work, as a suffix.
    fn write_work(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.work {
            WorkProgress::Current(worker) | WorkProgress::SoFar(worker) => {
                write!(f, "; {} in {worker}", duration(worker.took))
            }
            WorkProgress::Unseen => Ok(()),
        }
    }

    /// Writes the tries that were refused later, as a suffix.
    fn write_refused(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tries = match self.refused_tries {
            0 => return Ok(()),
            1 => "1 more try was",
            n => return write!(f, ", and {n} more tries were refused since: {NAME_HELD}"),
        };
        write!(f, ", and {tries} refused since: {NAME_HELD}")
    }

    fn write_deadline(&self, f: &mut Formatter<'_>, deadline: Duration, n: usize) -> fmt::Result {
        let (subject, caller) = (subject(self.last), caller(self.last));
        let deadline = duration(deadline);
        write!(f, "{subject} passed {caller}'s deadline of {deadline}")?;
        if n > 1 {
            write!(f, " {}", times(n))?;
        }
        self.write_refused(f)?;
        if let Some(text) = beyond_deadline(error_message(self.last)) {
            write!(
                f,
                "; the runtime says: {}",
                error_chain::shortened(&error_chain::innermost(text), MAX_MESSAGE_BYTES)
            )?;
        }
        self.write_work(f)
    }

    fn write_gave_up(
        &self,
        f: &mut Formatter<'_>,
        after: Duration,
        deadline: Option<Duration>,
    ) -> fmt::Result {
        let (operation, caller) = (self.operation(), caller(self.last));
        write!(
            f,
            "{operation}: the runtime gave up after {}",
            duration(after)
        )?;
        match deadline {
            Some(deadline) => write!(f, " of {caller}'s {}", duration(deadline))?,
            None => write!(f, ", {caller} set no deadline")?,
        }
        write!(f, ": {}", said(self.last))?;
        self.write_tries(f)?;
        self.write_work(f)
    }

    fn write_error(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.operation())?;
        if let Some(words) = self.kind.fault().and_then(|class| class.words(self.last)) {
            write!(f, "{words}: ")?;
        }
        write!(f, "{}", said(self.last))?;
        self.write_tries(f)?;
        self.write_refused(f)
    }

    /// Writes the number of tries and the age of the last one.
    fn write_tries(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.is_resolved, self.tries) {
            (true, 1) => write!(f, " (1 try failed first)"),
            (true, n) => write!(f, " ({n} tries failed first)"),
            (false, 1) => write!(f, " ({})", self.since()),
            (false, n) => write!(f, " ({n} tries, the last {})", self.since()),
        }
    }

    fn since(&self) -> String {
        units::since(self.now.since(self.last.ended_at()))
    }

    /// The failed operation, without the reason.
    fn operation(&self) -> String {
        let cannot = if self.is_resolved {
            "could not"
        } else {
            "cannot"
        };
        let target = self.last.target();
        match &self.kind {
            FailureKind::Network { plugin, .. } => {
                return match (self.last.method, plugin) {
                    (Method::StopPodSandbox, Some(plugin)) => {
                        format!("network: the CNI plugin {plugin} {cannot} take it down")
                    }
                    (Method::StopPodSandbox, None) => format!("network: it {cannot} be taken down"),
                    (_, Some(plugin)) if self.is_resolved => {
                        format!("network: the CNI plugin {plugin} failed")
                    }
                    (_, Some(plugin)) => format!("network: the CNI plugin {plugin} fails"),
                    (_, None) => format!("network: it {cannot} be set up"),
                };
            }
            FailureKind::PauseImage { .. } => {
                return format!("the sandbox {cannot} be made, its pause image {cannot} be pulled");
            }
            _ => {}
        }
        match self.last.method {
            Method::PullImage => format!("image {target} {cannot} be pulled"),
            Method::CreateContainer => format!("container {target} {cannot} be created"),
            Method::StartContainer => format!("container {target} {cannot} be started"),
            Method::StopContainer => format!("container {target} {cannot} be stopped"),
            Method::RunPodSandbox => format!("the sandbox {cannot} be made"),
            Method::StopPodSandbox => format!("the sandbox {cannot} be stopped"),
            Method::RemovePodSandbox => format!("the sandbox {cannot} be removed"),
            method if self.is_resolved => format!("{} failed", method.name()),
            method => format!("{} fails", method.name()),
        }
    }
}

/// Status code and error message.
fn said(call: &EpisodeCall) -> String {
    let message = error_chain::innermost(error_message(call));
    let code = call.outcome().map(|outcome| code_name(outcome.code));
    let code = code.unwrap_or_default();
    match &*message {
        "" => code.to_owned(),
        message => format!(
            "{code} {}",
            error_chain::shortened(message, MAX_MESSAGE_BYTES)
        ),
    }
}

/// The text of a call that passed its deadline, without the words on the deadline; `None` if nothing remains.
fn beyond_deadline(message: &str) -> Option<&str> {
    let ends = [
        "context deadline exceeded",
        "DeadlineExceeded",
        "deadline exceeded",
    ];
    let mut text = message.trim();
    for end in ends {
        text = text.strip_suffix(end).unwrap_or(text);
    }
    let text = text.trim_end_matches([':', ' ']);
    (!text.is_empty()).then_some(text)
}
