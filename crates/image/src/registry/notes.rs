//! Warnings and limits that servers send with their answers, for the people who read about a pull.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::blocking::lock;
use crate::observer::RateLimit;

/// Most notes of one pull, and most servers with a limit.
const MAX_NOTES: usize = 8;

/// The notes of a pull, from all its servers.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    notes: Vec<String>,
    /// The latest of each server.
    limits: BTreeMap<String, RateLimit>,
}

impl Notes {
    /// Adds a sentence, unless it is known or there are many.
    pub(super) fn add(&self, note: String) {
        let notes = &mut lock(&self.0).notes;
        if notes.len() < MAX_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Replaces the limit of a server.
    pub(super) fn set_limit(&self, server: &str, limit: RateLimit) {
        let limits = &mut lock(&self.0).limits;
        if limits.len() < MAX_NOTES || limits.contains_key(server) {
            limits.insert(server.to_owned(), limit);
        }
    }

    /// All notes, each once. A limit is one of them if little of it is left.
    pub(crate) fn all(&self) -> Vec<String> {
        let state = lock(&self.0);
        let low = state.limits.iter().filter(|(_, limit)| limit.is_low());
        let low = low.map(|(server, limit)| {
            format!("{server} limits requests, and the limit is near: {limit}")
        });
        state.notes.iter().cloned().chain(low).collect()
    }
}
