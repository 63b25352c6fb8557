//! Plays a scenario, line by line, on a store as real calls reach it.

use super::file::{Scenario, ScenarioFile};
use super::journal::ScenarioJournal;
use super::words::{self, Words};
use super::{calls, events, expect, lists};
use crate::episode_call::EpisodeCall;
use crate::episode_store::EpisodeStore;
use crate::journal::JournalLine;
use crate::kubelet::execs;
use crate::kubelet::images::ImageLookup;
use crate::tests::script::{ScriptedPod, at, pod, store};
use criscope_cri::Method;
use criscope_cri::call::episode::is_episodic;
use criscope_cri::units::times::UnixMicros;

/// A scenario while it is played.
#[derive(Debug)]
pub(super) struct Player<'a> {
    file: &'a ScenarioFile,
    store: EpisodeStore,
    journal: ScenarioJournal,
    /// The pod and sandbox of the next steps.
    pod: ScriptedPod,
    /// Calls that have not ended: they are shown, and not part of the store.
    in_flight: Vec<EpisodeCall>,
    /// Probes in flight, which are no calls of episodes.
    probes_in_flight: Vec<EpisodeCall>,
    /// Number of calls so far. Each has its own, also if two begin at the same time.
    applied: u64,
    /// The time from which the times of the next steps count, in milliseconds.
    from: u64,
    /// The number of the round in a `repeat`.
    round: u64,
    /// Number of expectations.
    expected: usize,
    /// Expectations that did not come true, with the line of the scenario.
    failures: Vec<String>,
}

impl<'a> Player<'a> {
    /// Plays a scenario of this file and returns what failed.
    pub(super) fn play(file: &'a ScenarioFile, scenario: &Scenario) -> Vec<String> {
        let mut player = Self {
            file,
            store: store(),
            journal: ScenarioJournal::default(),
            pod: pod("web"),
            in_flight: Vec::new(),
            probes_in_flight: Vec::new(),
            applied: 0,
            from: 0,
            round: 0,
            expected: 0,
            failures: Vec::new(),
        };
        let mut failures = Vec::new();
        for line in &scenario.lines {
            let played = player.line(&line.text);
            let failed = player.failures.drain(..).chain(played.err());
            failures.extend(
                failed.map(|failure| format!("{}: {}: {failure}", line.number, scenario.title)),
            );
        }
        if player.expected == 0 && failures.is_empty() {
            let Scenario { number, title, .. } = scenario;
            failures.push(format!("{number}: {title}: nothing is expected"));
        }
        failures
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(repeated) = line.strip_prefix("repeat ") {
            return self.repeat(repeated);
        }
        if let Some((steps, repeated)) = line.split_once("; repeat ") {
            self.line(steps)?;
            return self.repeat(repeated);
        }
        let line = numbered(line, self.round)?;
        for operator in [" => ", " !> "] {
            if let Some((steps, wanted)) = line.split_once(operator) {
                let (steps, subject) = steps.rsplit_once(';').unwrap_or(("", steps));
                self.steps(steps)?;
                return self.expect(subject.trim(), operator == " => ", wanted.trim());
            }
        }
        self.steps(&line)
    }

    /// `N every TIME [from TIME]: STEPS`.
    fn repeat(&mut self, line: &str) -> Result<(), String> {
        let (head, steps) = line.split_once(": ").ok_or("`repeat` without `: `")?;
        let mut words = Words::new(head, 0)?;
        let times: u64 = words.number()?;
        if !words.take("every") {
            return Err("`repeat N every TIME: STEPS`".to_owned());
        }
        let period = words.length()?;
        let first = words.length_after("from")?.unwrap_or(0);
        words.end()?;
        let outer = self.round;
        for round in 0..times {
            self.round = round;
            self.shifted(first + round * period, |player| player.line(steps))?;
        }
        self.round = outer;
        Ok(())
    }

    /// Plays steps whose times begin this much later.
    fn shifted(
        &mut self,
        by: u64,
        play: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.from += by;
        let played = play(self);
        self.from -= by;
        played
    }

    fn steps(&mut self, steps: &str) -> Result<(), String> {
        for step in words::split_steps(steps) {
            let played = self.step(step);
            played.map_err(|error| format!("`{step}`: {error}"))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &str) -> Result<(), String> {
        let mut words = Words::new(step, self.from)?;
        let verb = words.word("a step")?;
        if let Some(pod) = calls::read_pod(&self.pod, &verb, &mut words)? {
            self.pod = pod;
            return Ok(());
        }
        match &*verb {
            "up" => {
                let calls = calls::read_up(&self.pod, &mut words)?;
                calls.into_iter().for_each(|call| self.apply(call));
            }
            "listed" => lists::apply(&mut self.store, &self.pod, &mut words)?,
            "tick" => self.tick(at(words.time()?)),
            "learn" => {
                for number in self.store.take_closed() {
                    self.store.learn(number);
                }
            }
            "with" => {
                let name = words.word("a block")?;
                let block = self.file.blocks.get(&name);
                let block = block.ok_or_else(|| format!("there is no block [{name}]"))?;
                let by = words.length_after("from")?.unwrap_or(0);
                let mut lines = block.iter();
                self.shifted(by, |player| {
                    lines.try_for_each(|line| player.line(&line.text))
                })?;
            }
            verb => match calls::read(&self.pod, verb, &mut words)? {
                Some(call) => self.apply(call),
                None => {
                    let Self {
                        store,
                        journal,
                        pod,
                        ..
                    } = self;
                    if !events::apply(store, journal, pod, verb, &mut words)? {
                        return Err(format!("unknown step `{verb}`"));
                    }
                }
            },
        }
        words.end()
    }

    /// Applies a call as the aggregator does.
    fn apply(&mut self, mut call: EpisodeCall) {
        self.in_flight.retain(|other| !is_same(other, &call));
        self.probes_in_flight.retain(|other| !is_same(other, &call));
        self.applied += 1;
        call.record_mut().seq = self.applied;
        let is_told = is_episodic(call.method)
            || call.method.checkpoints()
            || execs::is_hook(&call)
            || call.method == Method::UpdateContainerResources;
        if is_told && call.is_in_flight() {
            self.in_flight.push(call);
        } else if is_told {
            let now = call.ended_at();
            self.tick(now);
            self.store.observe(&mut call);
            let effect = self.store.apply(call.clone());
            self.journal.write_call(&call, effect);
            self.journal.write_closed(&self.store, now);
        } else if execs::is_probe(&call) && call.is_in_flight() {
            self.probes_in_flight.push(call);
        } else if execs::is_probe(&call) {
            self.store.note_probe(&call);
        } else if matches!(call.method, Method::ExecSync | Method::Exec) {
            if !call.is_in_flight() && self.store.note_intervention(&call) {
                self.journal.write(&JournalLine::intervention(&call));
            }
        } else if let Some(lookup) = ImageLookup::from_record(&call) {
            self.journal.note_image_lookup(&mut self.store, &lookup);
        }
    }

    /// Closes the episodes that are over by then.
    fn tick(&mut self, now: UnixMicros) {
        self.store.tick(now, &self.in_flight);
        self.journal.write_closed(&self.store, now);
    }

    /// What is said of a subject by the store, or by one that was restarted.
    fn say(
        &mut self,
        subject: &str,
        restarted: Option<&mut EpisodeStore>,
    ) -> Result<String, String> {
        let mut words = Words::new(subject, self.from)?;
        let said = expect::say(
            restarted.unwrap_or(&mut self.store),
            &self.pod,
            (&self.in_flight, &self.probes_in_flight),
            &mut words,
        );
        said.map_err(|error| format!("`{subject}`: {error}"))
    }

    fn expect(&mut self, subject: &str, is_wanted: bool, wanted: &str) -> Result<(), String> {
        self.expected += 1;
        let said = self.say(subject, None)?;
        self.journal
            .write_closed(&self.store, at(Words::new(subject, self.from)?.time()?));
        if expect::is_same_after_restart(subject) {
            let mut restarted = self.journal.replay(&self.store);
            let again = self.say(subject, Some(&mut restarted))?;
            if again != said {
                let failure =
                    format!("at {subject}, restarted\n  before: {said}\n  after:  {again}");
                self.failures.push(failure);
            }
        }
        if expect::is_like(&said, wanted) != is_wanted {
            let wants = if is_wanted { "wanted: " } else { "not:    " };
            self.failures
                .push(format!("at {subject}\n  {wants}{wanted}\n  said:   {said}"));
        }
        Ok(())
    }
}

/// Returns whether two calls are the same one at different times.
fn is_same(a: &EpisodeCall, b: &EpisodeCall) -> bool {
    (a.method, a.began, &a.pod, a.target()) == (b.method, b.began, &b.pod, b.target())
}

/// The text with `{n}`, `{n+1}` and so on as numbers.
fn numbered(text: &str, n: u64) -> Result<String, String> {
    let mut parts = text.split("{n");
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (more, rest) = part.split_once('}').ok_or("`{n` without end")?;
        let more: i64 = match more {
            "" => 0,
            more => more.parse().map_err(|_| format!("`{{n{more}}}`"))?,
        };
        numbered += &(n as i64 + more).to_string();
        numbered += rest;
    }
    Ok(numbered)
}
