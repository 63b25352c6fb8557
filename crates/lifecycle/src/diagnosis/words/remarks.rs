//! Sentences of a whole diagnosis: its cause, its remarks, and the next step.

use std::fmt::{self, Display, Formatter};

use super::{duration, subject};
use crate::diagnosis::remarks::{Diagnosis, NextStep, Remark};
use criscope_cri::call::FaultKind;
use criscope_cri::call::episode::Kind;

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
            Self::StartTook(took) => write!(f, "the start took {}", duration(*took)),
            Self::UpAgain { run, .. } => {
                let up = if run.is_up { "up" } else { "started" };
                write!(f, "{up} again {} later", duration(run.again_after))
            }
            Self::Outcome(quick) => f.write_str(&quick.outcome()),
            Self::Ended { kind, took } => {
                let state = match kind {
                    Kind::Stop => "gone",
                    Kind::Start | Kind::Restart => "up",
                };
                write!(f, "{state} after {}", duration(*took))
            }
            Self::BeganUnseen(downtime) => {
                write!(f, "what came before is not known: {downtime}")
            }
            Self::ConcurrentStarts(starts) => {
                write!(f, "{starts} pods started at the same time")
            }
            Self::ShortOf(short) => write!(
                f,
                "the node was short of {}: some task waited for it {:.0} % of {}",
                short.resource,
                short.share * 100.0,
                duration(short.over)
            ),
            Self::FullDisk(fact) => fact.fmt(f),
            Self::InjectedFault { fault, call, more } => {
                let subject = subject(call);
                match fault.kind() {
                    FaultKind::Fail => write!(f, "an injected fault let {subject} fail")?,
                    kind @ (FaultKind::Delay | FaultKind::Hang) => {
                        let (kind, held) = (kind.name(), duration(fault.held()));
                        write!(f, "an injected fault ({kind}) held {subject} for {held}")?;
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

impl Display for NextStep {
    fn fmt(&self, _: &mut Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
