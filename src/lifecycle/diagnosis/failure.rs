//! What failed, and whether it still does.

use super::words::{caller, subject, times};
use super::work;
use crate::lifecycle::view::{Call, Episode};
use crate::units;

/// Longest error text in a headline, in bytes.
const MESSAGE: usize = 300;

/// Whether a call failed. What is to be gone and is not there is gone.
pub(super) fn is_bad(call: &Call) -> bool {
    let takes_away = call.method.starts_with("Stop") || call.method.starts_with("Remove");
    match &*call.outcome {
        "ok" | "in_flight" => false,
        _ => !(takes_away && call.code == "NOT_FOUND"),
    }
}

fn is_same(one: &Call, other: &Call) -> bool {
    one.method == other.method && one.image == other.image && one.container == other.container
}

/// The newest failure that was not made good.
pub(super) fn unresolved(episode: &Episode) -> Option<&Call> {
    let calls = &episode.calls;
    let bad = calls
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, call)| is_bad(call));
    bad.map(|(i, call)| (&calls[i + 1..], call))
        .find(|(later, call)| !later.iter().any(|c| makes_good(c, call)))
        .map(|(_, call)| call)
}

/// A container that starts was created; a call that succeeds makes good what failed of its kind.
fn makes_good(later: &Call, failed: &Call) -> bool {
    let started = later.method == "StartContainer"
        && failed.method == "CreateContainer"
        && later.container == failed.container;
    later.outcome == "ok" && (started || is_same(later, failed))
}

/// The failure that was tried most often, of an episode in which all were made good.
pub(super) fn worst(episode: &Episode) -> Option<&Call> {
    let bad = || episode.calls.iter().filter(|call| is_bad(call));
    bad().max_by_key(|call| bad().filter(|c| is_same(c, call)).count())
}

/// All tries of the same that failed.
#[derive(Debug)]
struct Tries<'a> {
    episode: &'a Episode,
    last: &'a Call,
    failed: Vec<&'a Call>,
}

/// Says what fails. `past` if it no longer does.
pub(super) fn sentence(episode: &Episode, call: &Call, now: u64, past: bool) -> String {
    let calls = episode.calls.iter();
    let tries = Tries {
        episode,
        last: call,
        failed: calls.filter(|c| is_bad(c) && is_same(c, call)).collect(),
    };
    let late: Vec<_> = tries.of("deadline");
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
    if tries.failed.iter().all(|c| c.outcome == "cancelled") {
        return tries.cut_off();
    }
    tries.refused(now, past)
}

/// Whether a runtime refused because it still works on the same.
fn is_refusal(call: &Call) -> bool {
    let Some(error) = &call.error else {
        return false;
    };
    error.contains("is reserved") || error.contains("name is in use")
}

impl<'a> Tries<'a> {
    fn of(&self, outcome: &str) -> Vec<&'a Call> {
        let calls = self.failed.iter().copied();
        calls.filter(|c| c.outcome == outcome).collect()
    }

    /// What was seen of the work, to be appended.
    fn work(&self) -> String {
        let calls = work::calls_of(self.episode, &self.last.method);
        work::most(&calls).map_or_else(String::new, |work| format!("; {work}"))
    }

    fn late(&self, first: &Call, late: usize, reserved: usize) -> String {
        let deadline = first.deadline_ms.unwrap_or(first.duration_ms);
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
        let longest = self.failed.iter().map(|c| c.duration_ms);
        let longest = longest.fold(0.0, f64::max);
        format!(
            "{} was broken off by the {} {} after {}{}",
            subject(self.last),
            caller(self.last),
            times(self.failed.len()),
            units::duration(longest),
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
        let ended = self.last.offset_ms + self.last.duration_ms;
        let ended = self.episode.began_unix_us + (ended * 1000.0) as u64;
        let since = units::since(now, ended);
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

/// What cannot be done.
fn lead(call: &Call, past: bool) -> String {
    let cannot = if past { "could not" } else { "cannot" };
    let what = |of: &Option<String>| of.clone().unwrap_or_default();
    match &*call.method {
        "PullImage" => format!("image {} {cannot} be pulled", what(&call.image)),
        "CreateContainer" => format!("container {} {cannot} be created", what(&call.container)),
        "StartContainer" => format!("container {} {cannot} be started", what(&call.container)),
        "StopContainer" => format!("container {} {cannot} be stopped", what(&call.container)),
        "RunPodSandbox" if is_of_network(call) => match plugin(call) {
            Some(plugin) => format!("network: the CNI plugin {plugin} fails"),
            None => format!("network: it {cannot} be set up"),
        },
        "StopPodSandbox" if is_of_network(call) => format!("network: it {cannot} be taken down"),
        "RunPodSandbox" => format!("the sandbox {cannot} be made"),
        "StopPodSandbox" => format!("the sandbox {cannot} be stopped"),
        "RemovePodSandbox" => format!("the sandbox {cannot} be removed"),
        method => format!("{method} {}", if past { "failed" } else { "fails" }),
    }
}

/// Whether the error speaks of the network.
fn is_of_network(call: &Call) -> bool {
    let error = call
        .error
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    ["network", "cni", "plugin type", "ipam"]
        .iter()
        .any(|word| error.contains(word))
}

/// The plugin: that which the error names, or which was seen.
fn plugin(call: &Call) -> Option<String> {
    let error = call.error.as_deref().unwrap_or_default();
    let named = error.split_once("plugin type=").and_then(|(_, rest)| {
        let name: String = rest
            .trim_start_matches(['"', '\\'])
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            .collect();
        (!name.is_empty()).then_some(name)
    });
    named.or_else(|| {
        let worker = work::longest("cni", &std::iter::once(call))?;
        Some(worker.name.to_owned())
    })
}

/// Code and message.
fn said(call: &Call) -> String {
    let message = call.error.as_deref().unwrap_or_default().trim();
    let mut text = call.code.clone();
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
