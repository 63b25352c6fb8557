//! The log lines of calls, target `criscope::rpc`. Fields are named like the attributes of the spans of a call, where
//! these have them; unknown ones are omitted.

use tracing::Level;

use super::StuckCallReport;
use crate::call::{Call, Ending, Outcome};
use crate::cri::method::Class;
use crate::cri::status::{Code, code_name, is_server_fault};
use crate::cri::subject::{ContainerIdentity, PodIdentity};
use crate::units::times::millis;

/// Longest error message in a line, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Writes one event of a call at a level known at run time. The fields are computed only if the level is enabled.
macro_rules! event {
    ($level:expr, $event:literal, $call:ident, $text:literal, {$($more:tt)*}) => {
        match $level {
            Level::WARN => event!(@ Level::WARN, $event, $call, $text, {$($more)*}),
            Level::INFO => event!(@ Level::INFO, $event, $call, $text, {$($more)*}),
            _ => event!(@ Level::DEBUG, $event, $call, $text, {$($more)*}),
        }
    };
    (@ $level:expr, $event:literal, $call:ident, $text:literal, {$($more:tt)*}) => {
        tracing::event!(
            target: "criscope::rpc",
            $level,
            event = $event,
            seq = $call.seq,
            trace_id = $call.placement().map(|p| tracing::field::display(p.trace_id)),
            span_id = $call.placement().map(|p| tracing::field::display(p.server)),
            rpc.method = $call.method.full_name(),
            rpc.method_original = $call.other_path.as_deref().map(|path| path.strip_prefix('/').unwrap_or(path)),
            criscope.client = $call.peer.client.name(),
            criscope.client.pid = $call.peer.pid,
            criscope.backend = $call.route.get().map(|r| &*r.backend),
            criscope.deadline_ms = $call.deadline.map(|limit| limit.as_millis() as u64),
            k8s.namespace.name = pod($call).map(|p| &*p.namespace),
            k8s.pod.name = pod($call).map(|p| &*p.name),
            k8s.pod.uid = pod($call).map(|p| &*p.uid),
            criscope.sandbox.id = $call.sandbox_id().map(|id| &**id),
            k8s.container.name = container($call).map(|c| &*c.name),
            container.id = $call.container_id().map(|id| &**id),
            criscope.sandbox.attempt = pod($call).map(|p| p.attempt),
            k8s.container.restart_count = container($call).map(|c| c.attempt),
            criscope.fault = $call.injected($call.age()).map(|fault| fault.kind().name()),
            criscope.image.ref = $call.subject.get().and_then(|s| s.image.as_deref()),
            $($more)*
            $text
        )
    };
}

/// The line of a call that ended.
pub(super) fn end(call: &Call, outcome: &Outcome, slow: bool) {
    let level = level(call.method.class(), outcome, slow);
    if outcome.ending == Ending::Cancelled {
        event!(level, "rpc.cancelled", call, "call cancelled by its caller", {
            rpc.status_code = code_name(outcome.code),
            duration_ms = millis(outcome.elapsed),
            stuck = was_stuck(call),
        });
        return;
    }
    event!(level, "rpc.end", call, "call ended", {
        rpc.status_code = code_name(outcome.code),
        duration_ms = millis(outcome.elapsed),
        stuck = was_stuck(call),
        error.type = (outcome.code != Code::Ok).then(|| code_name(outcome.code)),
        criscope.error.source = (outcome.code != Code::Ok).then(|| outcome.source.name()),
        error.message = outcome.message.as_deref().map(|m| cut(m, MAX_MESSAGE_BYTES)),
    });
}

/// The line of a slow call in flight.
pub(super) fn stuck(call: &Call, stuck: &StuckCallReport) {
    event!(Level::WARN, "rpc.stuck", call, "call is slow", {
        duration_ms = millis(call.age()),
        percent = stuck.percent,
        phase = call.stage().name(),
        criscope.doing = stuck.activity.as_deref(),
    });
}

/// The last share of its deadline that was reported while it ran, in percent.
fn was_stuck(call: &Call) -> Option<u32> {
    Some(call.share_used()).filter(|percent| *percent > 0)
}

/// Polls come several times a second and are logged only on errors or when slow. A watch normally ends because its caller
/// cancels it.
fn level(class: Class, outcome: &Outcome, slow: bool) -> Level {
    match outcome.ending {
        Ending::Error | Ending::Deadline if is_server_fault(outcome.code) => Level::WARN,
        Ending::Error | Ending::Deadline => Level::INFO,
        Ending::Cancelled if class == Class::Watch => Level::DEBUG,
        Ending::Cancelled => Level::INFO,
        Ending::Ok if slow || class == Class::Mutating => Level::INFO,
        Ending::Ok => Level::DEBUG,
    }
}

fn pod(call: &Call) -> Option<&PodIdentity> {
    call.subject.get()?.pod.as_deref()
}

fn container(call: &Call) -> Option<&ContainerIdentity> {
    call.subject.get()?.container.as_deref()
}

/// The longest prefix with at most this many bytes, cut between characters.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::Source;

    #[test]
    fn levels() {
        use {Class::*, Ending::*};
        let table = [
            (Mutating, Ok, Code::Ok, false, Level::INFO),
            (Poll, Ok, Code::Ok, false, Level::DEBUG),
            (Watch, Ok, Code::Ok, false, Level::DEBUG),
            (Poll, Ok, Code::Ok, true, Level::INFO),
            (Poll, Error, Code::NotFound, false, Level::INFO),
            (Mutating, Error, Code::AlreadyExists, true, Level::INFO),
            (Poll, Error, Code::Unavailable, false, Level::WARN),
            (Mutating, Error, Code::Unknown, false, Level::WARN),
            (
                Mutating,
                Deadline,
                Code::DeadlineExceeded,
                true,
                Level::WARN,
            ),
            (Mutating, Cancelled, Code::Cancelled, false, Level::INFO),
            (Poll, Cancelled, Code::Cancelled, false, Level::INFO),
            (Watch, Cancelled, Code::Cancelled, false, Level::DEBUG),
        ];
        for (class, ending, code, slow, wanted) in table {
            let outcome = Outcome {
                ending,
                code,
                source: Source::Backend,
                message: None,
                elapsed: Duration::ZERO,
            };
            assert_eq!(
                level(class, &outcome, slow),
                wanted,
                "{class:?} {ending:?} {code:?} {slow}"
            );
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "abc");
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("", 2), "");
    }
}
