//! Failed calls, current and past.

use super::words::{caller, subject, times};
use super::work;
use crate::call::Ending;
use crate::cri::Method;
use crate::cri::status::code_name;
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::process_scanner::WorkKind;
use crate::units;

/// Longest error text in a headline, in bytes.
const MESSAGE: usize = 300;

fn is_same(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    one.method == other.method
        && one.image == other.image
        && one.container_name() == other.container_name()
}

/// The newest failure that no later call resolved.
pub(super) fn unresolved(episode: &Episode) -> Option<&EpisodeCall> {
    let calls = episode.calls.iter().enumerate().rev();
    let mut bad = calls.filter(|(_, call)| call.is_bad());
    let is_open = |&(i, call): &(usize, &EpisodeCall)| {
        let mut later = episode.calls.range(i + 1..);
        !later.any(|later| makes_good(later, call))
    };
    bad.find(is_open).map(|(_, call)| call)
}

/// Returns whether a success resolves an earlier failure: that of the same call, and for a StartContainer also that of its
/// CreateContainer.
fn makes_good(later: &EpisodeCall, failed: &EpisodeCall) -> bool {
    let started = later.method == Method::StartContainer
        && failed.method == Method::CreateContainer
        && later.container_name() == failed.container_name();
    later.has_ended(Ending::Ok) && (started || is_same(later, failed))
}

/// The failure with the most tries, of an episode in which all were resolved.
pub(super) fn worst(episode: &Episode) -> Option<&EpisodeCall> {
    let bad = || episode.calls.iter().filter(|call| call.is_bad());
    bad().max_by_key(|call| bad().filter(|c| is_same(c, call)).count())
}

/// All failed attempts at the same call.
#[derive(Debug)]
struct Tries<'a> {
    episode: &'a Episode,
    last: &'a EpisodeCall,
    failed: Vec<&'a EpisodeCall>,
}

/// The sentence on a failure. `past`: it was resolved.
pub(super) fn sentence(episode: &Episode, call: &EpisodeCall, now: u64, past: bool) -> String {
    let calls = episode.calls.iter();
    let tries = Tries {
        episode,
        last: call,
        failed: calls.filter(|c| c.is_bad() && is_same(c, call)).collect(),
    };
    let late: Vec<_> = tries.of(Ending::Deadline);
    let reserved = tries.failed.iter().filter(|c| is_refusal(c)).count();
    if let Some(first) = late.first() {
        return tries.late(first, late.len(), reserved);
    }
    if reserved > 0 {
        return format!(
            "{} is refused {}: an earlier try still holds the name (name is reserved){}",
            subject(call),
            times(reserved),
            tries.work()
        );
    }
    if tries.failed.iter().all(|c| c.has_ended(Ending::Cancelled)) {
        return tries.cut_off();
    }
    tries.refused(now, past)
}

/// Returns whether the runtime refused because an earlier attempt still runs.
fn is_refusal(call: &EpisodeCall) -> bool {
    let Some(error) = call.error() else {
        return false;
    };
    error.contains("is reserved") || error.contains("name is in use")
}

impl<'a> Tries<'a> {
    fn of(&self, ending: Ending) -> Vec<&'a EpisodeCall> {
        let calls = self.failed.iter().copied();
        calls.filter(|c| c.has_ended(ending)).collect()
    }

    /// The observed work, as a suffix.
    fn work(&self) -> String {
        let calls = work::calls_of(self.episode, self.last.method);
        work::most(&calls).map_or_else(String::new, |work| format!("; {work}"))
    }

    fn late(&self, first: &EpisodeCall, late: usize, reserved: usize) -> String {
        let deadline = first.deadline_ms().unwrap_or(first.duration_ms());
        let mut text = format!(
            "{} passed the {}'s deadline of {}",
            subject(first),
            caller(first),
            units::duration(deadline)
        );
        if late > 1 {
            text += &format!(" {}", times(late));
        }
        if reserved > 0 {
            text += &format!(
                ", and {} more {} refused while the first went on (name is reserved)",
                reserved,
                if reserved == 1 {
                    "try was"
                } else {
                    "tries were"
                }
            );
        }
        text + &self.work()
    }

    fn cut_off(&self) -> String {
        let longest = self.failed.iter().map(|c| c.elapsed_us()).max();
        format!(
            "{} was broken off by the {} {} after {}{}",
            subject(self.last),
            caller(self.last),
            times(self.failed.len()),
            units::duration(millis(longest.unwrap_or_default())),
            self.work()
        )
    }

    fn refused(&self, now: u64, past: bool) -> String {
        let lead = lead(self.last, past);
        let said = said(self.last);
        let tries = self.failed.len();
        if past {
            return format!("{lead}: {said} ({} failed first)", plural(tries));
        }
        let since = units::since(now, self.last.end_us());
        match tries {
            1 => format!("{lead}: {said} ({since})"),
            n => format!("{lead}: {said} ({n} tries, the last {since})"),
        }
    }
}

fn plural(tries: usize) -> String {
    match tries {
        1 => "1 try".to_owned(),
        n => format!("{n} tries"),
    }
}

/// The failed operation, without the reason.
fn lead(call: &EpisodeCall, past: bool) -> String {
    let cannot = if past { "could not" } else { "cannot" };
    let target = call.target();
    match call.method {
        Method::PullImage => format!("image {target} {cannot} be pulled"),
        Method::CreateContainer => format!("container {target} {cannot} be created"),
        Method::StartContainer => format!("container {target} {cannot} be started"),
        Method::StopContainer => format!("container {target} {cannot} be stopped"),
        Method::RunPodSandbox if is_of_network(call) => match plugin(call) {
            Some(plugin) => format!("network: the CNI plugin {plugin} fails"),
            None => format!("network: it {cannot} be set up"),
        },
        Method::StopPodSandbox if is_of_network(call) => {
            format!("network: it {cannot} be taken down")
        }
        Method::RunPodSandbox => format!("the sandbox {cannot} be made"),
        Method::StopPodSandbox => format!("the sandbox {cannot} be stopped"),
        Method::RemovePodSandbox => format!("the sandbox {cannot} be removed"),
        method => format!(
            "{} {}",
            method.name(),
            if past { "failed" } else { "fails" }
        ),
    }
}

fn message(call: &EpisodeCall) -> &str {
    call.error().map_or("", |error| error)
}

/// Returns whether the error message is about the network.
fn is_of_network(call: &EpisodeCall) -> bool {
    let error = message(call).to_ascii_lowercase();
    ["network", "cni", "plugin type", "ipam"]
        .iter()
        .any(|word| error.contains(word))
}

/// The CNI plugin in the error message, or the observed one.
fn plugin(call: &EpisodeCall) -> Option<String> {
    let named = message(call)
        .split_once("plugin type=")
        .and_then(|(_, rest)| {
            let name: String = rest
                .trim_start_matches(['"', '\\'])
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
                .collect();
            (!name.is_empty()).then_some(name)
        });
    named.or_else(|| {
        let worker = work::longest(WorkKind::Cni, &std::iter::once(call))?;
        Some(worker.name.to_owned())
    })
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
