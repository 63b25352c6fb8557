//! Sentences of a whole diagnosis: its cause, its remarks, and the next step.

use std::fmt::{self, Display, Formatter};

use super::exit::{ago_of, code};
use super::request::{cpus, hidden_by};
use super::{duration, start, subject, times};
use crate::diagnosis::remarks::{Diagnosis, Remark};
use criscope_cri::call::FaultKind;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

impl Display for Diagnosis<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        let mut remarks = self.remarks.iter();
        remarks.try_for_each(|remark| write!(f, "; {remark}"))
    }
}

impl Display for Remark<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Also(cause) => cause.fmt(f),
            Self::SecondFault(cause) => write!(f, "and also: {cause}"),
            Self::FailedBefore { exit, times: n } => {
                let how = if exit.is_out_of_memory() {
                    "been OOMKilled"
                } else {
                    "failed"
                };
                let (name, code) = (&exit.container, code(exit));
                write!(
                    f,
                    "{name} had {how} {} before (exit code {code})",
                    times(*n)
                )
            }
            Self::StartTook(took) => write!(f, "the start took {}", duration(*took)),
            Self::StopTook(took) => write!(f, "the stop took {}", duration(*took)),
            Self::DownForImage(down) => {
                let image = if down.is_new_image {
                    " for its new image"
                } else {
                    ""
                };
                let (name, ago) = (down.container, ago_of(down.ago));
                write!(f, "{name} is down: stopped by the kubelet {ago}{image}")
            }
            Self::Intervened(done) => done.fmt(f),
            Self::Checkpointed(checkpoint) => checkpoint.fmt(f),
            Self::OnlyEphemeral => f.write_str("only an ephemeral container is affected"),
            Self::UpAgain(run) => {
                let up = if run.is_up { "up" } else { "started" };
                write!(f, "{up} again {} later", duration(run.again_after))?;
                match run.delayed_by {
                    // The downtime has ended, so its sentence does not depend on the time.
                    Some(fact) => write!(f, ": {}", fact.sentence(UnixMicros::EPOCH)),
                    None => Ok(()),
                }
            }
            Self::Outcome(quick) => f.write_str(&quick.outcome()),
            Self::ContainersEnded(exits) => f.write_str(&start::ends(exits).join("; ")),
            Self::PodStopped { by, ago } => {
                let (by, ago) = (by.in_words(), ago_of(*ago));
                write!(f, "the pod was stopped by {by} {ago}")
            }
            Self::Ended { kind, took } => {
                let state = match kind {
                    Kind::Stop => "gone",
                    Kind::Start | Kind::Restart => "up",
                };
                write!(f, "{state} after {}", duration(*took))
            }
            Self::HiddenBy(mount) => f.write_str(&hidden_by(mount)),
            Self::AnsweredDriver { runtime, driver } => write!(
                f,
                "{runtime} does not implement RuntimeConfig: criscope answered with the cgroup driver {driver}"
            ),
            Self::CpuLimit { container, millis } => {
                write!(f, "{container} is limited to {}", cpus(*millis))
            }
            Self::PodCpuLimit { millis } => {
                write!(f, "the pod is limited to {}", cpus(*millis))
            }
            Self::BeganUnseen(downtime) => {
                write!(f, "what came before is unknown: {downtime}")
            }
            Self::BeganWithKubelet(absence) => write!(f, "before that {absence}"),
            Self::ShortOf(short) => {
                let short_of = match short.resource {
                    "cpu" => "CPU was saturated",
                    "memory" => "memory was short",
                    _ => "disks were saturated",
                };
                let (percent, over) = (short.share * 100.0, duration(short.over));
                write!(
                    f,
                    "the node's {short_of} (pressure {percent:.0} % over {over})"
                )
            }
            Self::RetryJoined { deadline, retries } => {
                let deadline = duration(*deadline);
                let who = match retries {
                    1 => "its retry".to_owned(),
                    n => format!("{n} retries"),
                };
                write!(
                    f,
                    "the kubelet's deadline of {deadline} passed, and {who} joined the same call"
                )
            }
            Self::InjectedFault { fault, call, more } => {
                let subject = subject(call);
                match fault.kind() {
                    FaultKind::Fail => write!(f, "an injected fault made {subject} fail")?,
                    kind @ (FaultKind::Delay | FaultKind::Hang) => {
                        let (kind, held) = (kind.name(), duration(fault.held()));
                        write!(f, "an injected {kind} held {subject} for {held}")?;
                    }
                }
                match more {
                    0 => Ok(()),
                    1 => f.write_str(", and 1 more call had one"),
                    n => write!(f, ", and {n} more calls had one"),
                }
            }
        }
    }
}
