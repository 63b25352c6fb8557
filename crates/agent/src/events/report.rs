//! Decides which episodes are events, and words them.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use criscope::lifecycle::view::{EpisodeState, EpisodeView, RecentEpisodes};
use criscope::units::times::UnixMicros;
use sha2::{Digest as _, Sha256};

/// The longest note, in bytes (`NoteLengthLimit` of the API server).
pub const MAX_NOTE_LEN: usize = 1024;

/// Older episodes are not reported: the API server forgets events after an hour, so that a late report by a restarted agent could
/// be a second one.
const MAX_AGE: Duration = Duration::from_secs(600);

/// A failure shorter than this is not reported.
const MIN_FAILURE_TIME: Duration = Duration::from_secs(10);

/// Longest part of a pod's name in the name of an event: names of objects have at most 253 bytes.
const MAX_POD_NAME_LEN: usize = 200;

/// A report about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeReport {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod. For a static pod it is the hash of its configuration, which kubectl looks for, too.
    pub uid: String,
    /// One word for machines.
    pub reason: &'static str,
    /// The action: `Start`, `Restart` or `Stop`.
    pub action: &'static str,
    /// Set if the pod needs attention.
    pub warning: bool,
    /// The sentence.
    pub note: String,
    /// Number of occurrences.
    pub count: u32,
    /// Begin of the episode.
    pub began_unix_us: UnixMicros,
    /// Time of the last occurrence.
    pub last_unix_us: UnixMicros,
    /// A key that differs between reports of this pod with this reason.
    episode: String,
}

impl EpisodeReport {
    /// The name of the event, the same whenever it is reported.
    pub fn name(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&*self.uid, self.reason, &self.episode] {
            hash.update(part);
            hash.update([0]);
        }
        let digest = hash.finalize();
        let mut name = cut(&self.pod, MAX_POD_NAME_LEN)
            .trim_end_matches(['.', '-'])
            .to_owned();
        name.push('.');
        for byte in &digest[..8] {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

/// The beginning of a text, of at most `bytes`.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The reports of a list of episodes, the newest first. A crash loop has one report.
pub fn reports(recent: &RecentEpisodes, slow: Duration) -> Vec<EpisodeReport> {
    let mut loops = HashSet::new();
    let now = recent.now_unix_us;
    let episodes = recent.episodes.iter();
    let reports = episodes.filter_map(|episode| report(episode, now, slow));
    reports
        .filter(|report| {
            report.reason != CRASH_LOOP
                || loops.insert((report.uid.clone(), report.episode.clone()))
        })
        .collect()
}

const CRASH_LOOP: &str = "CrashLoop";

fn report(episode: &EpisodeView, now: UnixMicros, slow: Duration) -> Option<EpisodeReport> {
    let [action, failing, failed, slowly] = match episode.kind.as_str() {
        "start" => ["Start", "StartFailing", "StartFailed", "SlowStart"],
        "restart" => ["Restart", "RestartFailing", "RestartFailed", "SlowRestart"],
        "stop" => ["Stop", "StopFailing", "StopFailed", "SlowStop"],
        _ => return None,
    };
    let ended = episode.began_unix_us + length(episode.duration_ms);
    let so_far = now.since(episode.began_unix_us);
    let slow = slow.as_secs_f64() * 1e3;
    let (reason, warning, last) = match (episode.state, &episode.crash_loop) {
        (EpisodeState::Failing, _) if so_far >= MIN_FAILURE_TIME => (failing, true, now),
        (EpisodeState::Failed, _) => (failed, true, ended),
        (_, Some(_)) => (CRASH_LOOP, true, ended),
        (EpisodeState::Ok, None) if episode.duration_ms >= slow => (slowly, false, ended),
        _ => return None,
    };
    // A failing episode is as old as its last call.
    if now.since(ended) > MAX_AGE {
        return None;
    }
    let container = episode.container.as_deref().unwrap_or_default();
    let (text, next, key, count) = match (reason, &episode.crash_loop) {
        (CRASH_LOOP, Some(text)) => (
            text,
            episode.crash_loop_next.as_deref(),
            container.to_owned(),
            episode.attempt,
        ),
        _ => {
            let key = format!("{container}/{}/{}", episode.began_unix_us, episode.cause);
            let count = if reason == failing {
                episode.failures
            } else {
                1
            };
            (&episode.headline, episode.next.as_deref(), key, count)
        }
    };
    Some(EpisodeReport {
        namespace: episode.namespace.clone(),
        pod: episode.name.clone(),
        uid: episode.uid.clone(),
        reason,
        action,
        warning,
        note: note(text, next),
        count: count.max(1),
        began_unix_us: episode.began_unix_us,
        last_unix_us: last,
        episode: key,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn length(ms: f64) -> Duration {
    Duration::from_micros((ms * 1e3) as u64)
}

/// The sentence and the next step on one line. A sentence that is too long is truncated, and the step is kept.
fn note(text: &str, next: Option<&str>) -> String {
    let next = next.map_or(String::new(), |next| format!("; next: {}", one_line(next)));
    let (text, room) = (one_line(text), MAX_NOTE_LEN.saturating_sub(next.len()));
    if text.len() <= room {
        return format!("{text}{next}");
    }
    format!("{}...{next}", cut(&text, room.saturating_sub(3)))
}

fn one_line(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMicros = UnixMicros::new(1_750_000_000_000_000);
    const SLOW: Duration = Duration::from_secs(5);

    fn episode(kind: &str, state: EpisodeState, took_ms: f64, ago_s: u64) -> EpisodeView {
        EpisodeView {
            kind: kind.to_owned(),
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            uid: "uid-0".to_owned(),
            state,
            began_unix_us: NOW - Duration::from_secs(ago_s) - length(took_ms),
            duration_ms: took_ms,
            headline: "network 9.5 s of 9.8 s".to_owned(),
            cause: "slow_network".to_owned(),
            ..EpisodeView::default()
        }
    }

    fn of(episodes: Vec<EpisodeView>) -> Vec<EpisodeReport> {
        let recent = RecentEpisodes {
            now_unix_us: NOW,
            episodes,
            forgotten: 0,
        };
        reports(&recent, SLOW)
    }

    #[test]
    fn what_is_slow_or_fails_is_reported_and_nothing_else() {
        let reasons = |kind, state, took, ago| {
            let reports = of(vec![episode(kind, state, took, ago)]);
            reports.first().map(|it| (it.reason, it.warning))
        };
        assert_eq!(
            reasons("start", EpisodeState::Ok, 9_800.0, 1),
            Some(("SlowStart", false))
        );
        assert_eq!(
            reasons("stop", EpisodeState::Ok, 9_800.0, 1),
            Some(("SlowStop", false))
        );
        assert_eq!(reasons("start", EpisodeState::Ok, 4_999.0, 1), None);
        assert_eq!(reasons("start", EpisodeState::Open, 9_800.0, 1), None);
        assert_eq!(reasons("start", EpisodeState::Cancelled, 9_800.0, 1), None);
        assert_eq!(
            reasons("start", EpisodeState::Ok, 9_800.0, 601),
            None,
            "too old"
        );
        assert_eq!(
            reasons("start", EpisodeState::Failing, 100.0, 2),
            None,
            "brief"
        );
        assert_eq!(
            reasons("start", EpisodeState::Failing, 100.0, 30),
            Some(("StartFailing", true))
        );
        assert_eq!(
            reasons("restart", EpisodeState::Failed, 100.0, 1),
            Some(("RestartFailed", true))
        );
    }

    #[test]
    fn a_crash_loop_is_one_report_that_counts_restarts() {
        let restart = |attempt: u32| {
            let mut it = episode("restart", EpisodeState::Ok, 50.0, 60 - u64::from(attempt));
            it.crash_loop = Some(format!("container app ended {attempt} times"));
            it.container = Some("app".to_owned());
            it.attempt = attempt;
            it
        };
        let reports = of(vec![restart(5), restart(4), restart(3)]);
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].reason, reports[0].count), ("CrashLoop", 5));
        assert_eq!(reports[0].name(), of(vec![restart(9)])[0].name());
    }

    #[test]
    fn a_report_keeps_its_name_until_its_cause_changes() {
        let first = episode("start", EpisodeState::Failing, 100.0, 30);
        let mut again = first.clone();
        again.failures = 7;
        again.duration_ms = 9_000.0;
        let mut other = first.clone();
        other.cause = "image_pull_failed".to_owned();
        let names: Vec<_> = [first, again, other]
            .map(|it| of(vec![it])[0].name())
            .into();
        assert_eq!(names[0], names[1]);
        assert_ne!(names[0], names[2]);
        assert!(
            names[0].starts_with("web-0.") && names[0].len() == 22,
            "{names:?}"
        );
    }

    #[test]
    fn long_texts_fit_the_limits_of_the_api_server() {
        let mut long = episode("start", EpisodeState::Ok, 9_800.0, 1);
        long.headline = "\u{e9}\n".repeat(900);
        long.name = "a".repeat(253);
        let report = of(vec![long]).remove(0);
        assert!(report.note.len() <= MAX_NOTE_LEN && report.note.ends_with("..."));
        assert!(!report.note.contains('\n') && report.name().len() <= 253);
    }

    #[test]
    fn the_next_step_follows_the_sentence_and_is_never_cut() {
        let mut failing = episode("start", EpisodeState::Failing, 60_000.0, 1);
        failing.next = Some("`kubectl logs -n shop web-0 -c app`".to_owned());
        let said = of(vec![failing.clone()])[0].note.clone();
        let next = "; next: `kubectl logs -n shop web-0 -c app`";
        assert_eq!(said, format!("{}{next}", failing.headline));
        failing.headline = "\u{e9}".repeat(900);
        let long = of(vec![failing])[0].note.clone();
        assert!(
            long.len() <= MAX_NOTE_LEN && long.ends_with(&format!("...{next}")),
            "{long}"
        );
    }

    #[test]
    fn the_step_of_a_crash_loop_is_that_of_the_loop() {
        let mut restart = episode("restart", EpisodeState::Ok, 100.0, 1);
        restart.crash_loop = Some("app keeps ending".to_owned());
        restart.crash_loop_next = Some("`kubectl logs -p -n shop web-0 -c app`".to_owned());
        let note = &of(vec![restart])[0].note;
        assert_eq!(
            note,
            "app keeps ending; next: `kubectl logs -p -n shop web-0 -c app`"
        );
    }
}
