//! The results.

use serde::Serialize;

use crate::crowd::Crowd;
use crate::held::Held;
use crate::rounds::Row;
use crate::sessions::Sessions;

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) crowds: Vec<Crowd>,
    pub(crate) held: Vec<Held>,
    pub(crate) sessions: Sessions,
}
