//! Sentences on calls that a downtime broke off.

use std::fmt::{self, Display, Formatter};

use super::{duration, subject};
use crate::diagnosis::broken_off::{BrokenOffCall, KUBELET_SYNCS_WITHIN, RetryState};
use criscope_cri::Method;

impl Display for BrokenOffCall<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let call = match self.call.method {
            Method::PullImage => format!("the pull of {}", self.call.target()),
            Method::ExecSync => {
                let container = self.call.container_name().unwrap_or("a container");
                format!("the hook of {container}")
            }
            _ => format!("the {}", subject(self.call)),
        };
        let fact = self.fact.fact.sentence_of_time(self.fact.now);
        let lost = if self.call.is_lost {
            "lost"
        } else {
            "broken off"
        };
        write!(f, "{fact}; {call} that was in progress was {lost}")?;
        match self.retry {
            RetryState::Impossible => Ok(()),
            RetryState::Awaited(since) if since >= KUBELET_SYNCS_WITHIN => {
                let since = duration(since);
                write!(f, ", and the kubelet has not tried again for {since}")
            }
            RetryState::Awaited(_) => f.write_str(", and the kubelet has not tried again yet"),
            RetryState::InProgress => f.write_str(", and is being tried again"),
            RetryState::Succeeded => f.write_str(" and tried again"),
        }
    }
}
