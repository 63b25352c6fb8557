//! Sentences on failed calls.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::exit::ago_of;
use super::request::missing_in;
use super::{caller, duration, stopped_by, subject, times};
use crate::diagnosis::cause::{CallFailure, FailureKind, WorkProgress};
use crate::diagnosis::evidence::RequestEvidence;
use crate::diagnosis::failure::error_message;
use crate::diagnosis::fault::FaultClass;
use crate::episode_call::EpisodeCall;
use crate::kubelet::execs::program;
use criscope_cri::status::code_name;
use criscope_cri::{Method, error_chain};

/// A network that stays when its sandbox is stopped.
const STOPPED_NETWORK: &str = "the network is not taken down";

/// Longest time between two tries of the kubelet. An older try is not the last one of a series that goes on.
const MAX_BACK_OFF: Duration = Duration::from_secs(5 * 60);

/// Longest error text in a headline, in bytes. The whole text stands on the second line.
pub(crate) const MAX_MESSAGE_BYTES: usize = 160;

impl Display for CallFailure<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_kind(f)?;
        if self.is_not_tried_again {
            let ago = duration(self.now.since(self.last.ended_at()));
            write!(f, "; no retry for {ago} (deleted?)")?;
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
            FailureKind::NetworkHung {
                deadline, times, ..
            } => self.write_network_hung(f, deadline, times),
            FailureKind::RuntimeGaveUp { after, deadline } => {
                self.write_gave_up(f, after, deadline)
            }
            FailureKind::NameReserved { times: n } => {
                write!(
                    f,
                    "{} was refused {}: an earlier try still holds the name (name is reserved)",
                    subject(self.last),
                    times(n)
                )?;
                self.write_work(f)
            }
            FailureKind::CallerCancelled { longest, times: n } => {
                let (caller, subject) = (caller(self.last), subject(self.last));
                let longest = duration(longest);
                match n {
                    1 => write!(f, "{caller} cancelled {subject} after {longest}")?,
                    n => write!(
                        f,
                        "{caller} cancelled {subject} {}, after up to {longest}",
                        times(n)
                    )?,
                }
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
            1 => "1 more try was".to_owned(),
            n => format!("{n} more tries were"),
        };
        write!(
            f,
            "; {tries} refused since: the runtime still holds the name (name is reserved)"
        )
    }

    fn write_deadline(&self, f: &mut Formatter<'_>, deadline: Duration, n: usize) -> fmt::Result {
        let (subject, caller) = (subject(self.last), caller(self.last));
        let deadline = duration(deadline);
        write!(
            f,
            "{subject} timed out at {caller}'s deadline of {deadline}"
        )?;
        if n > 1 {
            write!(f, ", {}", times(n))?;
        }
        self.write_refused(f)?;
        if let Some(text) = beyond_deadline(error_message(self.last)) {
            write!(
                f,
                "; the runtime says: {}",
                error_chain::shortened(&error_chain::innermost(&text), MAX_MESSAGE_BYTES)
            )?;
        }
        self.write_work(f)
    }

    fn write_network_hung(
        &self,
        f: &mut Formatter<'_>,
        deadline: Duration,
        n: usize,
    ) -> fmt::Result {
        let within = format!(
            "within {}'s deadline of {}",
            caller(self.last),
            duration(deadline)
        );
        let is_stop = self.last.method == Method::StopPodSandbox;
        match &self.kind {
            FailureKind::NetworkHung {
                plugin: Some(plugin),
                ..
            } => {
                let network = if is_stop {
                    STOPPED_NETWORK
                } else {
                    "no network"
                };
                write!(
                    f,
                    "{network}: the CNI plugin {plugin} did not answer {within}"
                )?;
            }
            _ if is_stop => write!(f, "the network was not taken down {within}")?,
            _ => write!(f, "no network {within}")?,
        }
        if n > 1 {
            write!(f, ", {}", times(n))?;
        }
        self.write_refused(f)
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
        write!(f, "{}{}", self.operation(), stopped_by(self.last))?;
        f.write_str(self.joint())?;
        let class = self.kind.fault();
        let words = class.and_then(|class| class.words(self.last));
        let text = said(self.last);
        match (&self.evidence, words) {
            (Some(evidence @ RequestEvidence::HidingVolume(_)), _) => {
                let program = program(error_message(self.last)).unwrap_or("its command");
                let interpreter = match class {
                    Some(FaultClass::CommandMissing) => "",
                    _ => ", or its interpreter,",
                };
                write!(f, "{program}{interpreter} is not found: {evidence}")?;
            }
            (Some(RequestEvidence::HoldingVolume(mount)), _)
                if class.is_some_and(FaultClass::is_missing_program) =>
            {
                let program = program(error_message(self.last)).unwrap_or("its command");
                f.write_str(&missing_in(mount, program, error_message(self.last)))?;
            }
            (Some(evidence), Some(words)) if words.is_whole => {
                write!(f, "{}, {evidence}", words.words)?;
            }
            (Some(evidence), Some(words)) => write!(f, "{}, {evidence}: {text}", words.words)?,
            (Some(evidence), None) => write!(f, "{text}, {evidence}")?,
            (None, Some(words)) if words.is_whole || error_message(self.last).is_empty() => {
                f.write_str(&words.words)?;
            }
            (None, Some(words)) => write!(f, "{}: {text}", words.words)?,
            (None, None) => f.write_str(&text)?,
        }
        self.write_tries(f)?;
        self.write_refused(f)
    }

    /// Writes the number of tries and their time, or the age of the only one.
    fn write_tries(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ago = self.now.since(self.last.ended_at());
        let over = duration(self.last.ended_at().since(self.first));
        match (self.is_resolved, self.tries) {
            (true, 1) => write!(f, " (1 try failed first)"),
            (true, n) => write!(f, " ({n} tries failed first)"),
            (false, 1) => write!(f, " ({})", ago_of(ago)),
            (false, n) if ago < MAX_BACK_OFF => write!(f, " ({n} tries in {over})"),
            (false, n) => write!(f, " ({n} tries in {over}, the last {})", ago_of(ago)),
        }
    }

    /// Stands between the operation and the reason.
    fn joint(&self) -> &'static str {
        match &self.kind {
            FailureKind::Network {
                plugin: Some(_),
                fault: Some(fault),
            } => match (fault, self.is_past()) {
                (FaultClass::Addresses, false) => " has ",
                (FaultClass::Addresses, true) => " had ",
                (FaultClass::PluginMissing, _) => " cannot run: ",
                (_, false) => " fails: ",
                (_, true) => " failed: ",
            },
            FailureKind::Network {
                plugin: Some(_), ..
            } if self.is_past() => " failed: ",
            FailureKind::Network {
                plugin: Some(_), ..
            } => " fails: ",
            _ => ": ",
        }
    }

    /// The failed operation, without the reason.
    fn operation(&self) -> String {
        let cannot = if self.is_past() {
            "could not"
        } else {
            "cannot"
        };
        let target = self.last.target();
        match &self.kind {
            FailureKind::Network { plugin, .. } => {
                let network = match self.last.method {
                    Method::StopPodSandbox => STOPPED_NETWORK,
                    _ if self.is_resolved => "no network at first",
                    _ => "no network",
                };
                return match plugin {
                    Some(plugin) => format!("{network}: the CNI plugin {plugin}"),
                    None => network.to_owned(),
                };
            }
            FailureKind::PauseImage { .. } => {
                return format!("{cannot} create the sandbox: its pause image {cannot} be pulled");
            }
            FailureKind::Error {
                fault: Some(FaultClass::Platform),
            } if self.last.method == Method::PullImage => {
                return format!("{cannot} run {target} here");
            }
            _ => {}
        }
        match self.last.method {
            Method::PullImage => format!("{cannot} pull {target}"),
            Method::CreateContainer => format!("{cannot} create {target}"),
            Method::StartContainer => format!("{target} {cannot} start"),
            Method::StopContainer => format!("{cannot} stop {target}"),
            Method::RemoveContainer => format!("{cannot} remove {target}"),
            Method::RunPodSandbox => format!("{cannot} create the sandbox"),
            Method::RestorePod => format!("{cannot} restore the pod"),
            Method::StopPodSandbox => format!("{cannot} stop the sandbox"),
            Method::RemovePodSandbox => format!("{cannot} remove the sandbox"),
            method if self.is_past() => format!("{} failed", method.name()),
            method => format!("{} fails", method.name()),
        }
    }
}

/// The error message, or the status code if there is no message.
fn said(call: &EpisodeCall) -> String {
    let message = error_chain::innermost(error_message(call));
    match &*message {
        "" => {
            let code = call.outcome().map(|outcome| code_name(outcome.code));
            format!("{}, without a text", code.unwrap_or_default())
        }
        message => error_chain::shortened(message, MAX_MESSAGE_BYTES).into_owned(),
    }
}

/// The text of a call that passed its deadline, without the clauses that only say that; `None` if none remains.
fn beyond_deadline(message: &str) -> Option<String> {
    let clauses = message.trim().split(": ").filter_map(|clause| {
        // The prefix of a status within the text of another one.
        let (_, text) = clause.rsplit_once(" desc = ").unwrap_or(("", clause));
        let lower = text.to_ascii_lowercase();
        let is_told = ["deadline exceeded", "deadlineexceeded", "'s deadline"];
        let says_more = !is_told.iter().any(|words| lower.contains(words));
        (says_more && !matches!(text, "" | "rpc error" | "unknown")).then_some(text)
    });
    let text: Vec<_> = clauses.collect();
    (!text.is_empty()).then(|| text.join(": "))
}
