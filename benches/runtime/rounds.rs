//! One pod after the other: in each round each side has its turn, so that changes of the machine's performance affect all
//! of them, and comparisons are made within a round.

use std::time::Duration;

use serde::Serialize;

use crate::bare::{Bare, Floor};
use crate::cri::{Cri, Life};
use crate::error::{Error, Result};
use crate::process::adopt_orphans;
use crate::stats::Spread;

/// The groups of calls that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Group {
    /// RunPodSandbox; ADD.
    Run,
    /// CreateContainer and StartContainer; `create` and `start`.
    Start,
    /// ExecSync; `exec`.
    Exec,
    /// StopContainer and RemoveContainer; `kill` and `delete`.
    Remove,
    /// StopPodSandbox and RemovePodSandbox; `kill`, `delete` and DEL.
    End,
}

impl Group {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [Self::Run, Self::Start, Self::Exec, Self::Remove, Self::End];

    /// The calls of the CRI.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "RunPodSandbox",
            Self::Start => "CreateContainer + StartContainer",
            Self::Exec => "ExecSync",
            Self::Remove => "StopContainer(0) + RemoveContainer",
            Self::End => "StopPodSandbox + RemovePodSandbox",
        }
    }

    fn floor(self, floor: &Floor) -> Duration {
        match self {
            Self::Run => floor.add,
            Self::Start => floor.start,
            Self::Exec => floor.exec,
            Self::Remove => floor.delete,
            Self::End => floor.delete + floor.del,
        }
    }

    fn of(self, life: &Life) -> Duration {
        match self {
            Self::Run => life.run,
            Self::Start => life.start,
            Self::Exec => life.exec,
            Self::Remove => life.remove,
            Self::End => life.end,
        }
    }
}

/// A runtime, and its name in the report.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) cri: Cri,
}

/// The durations of one round.
struct Round {
    floor: Floor,
    lives: Vec<Life>,
}

/// One group of calls over all rounds, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) group: Group,
    pub(crate) floor: Spread,
    pub(crate) sides: Vec<Cell>,
}

/// One side of it.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) side: &'static str,
    /// The whole duration.
    pub(crate) whole: Spread,
    /// The part above the lower bound of the same round.
    pub(crate) added: Spread,
}

/// Runs rounds of complete pods, after one that is not counted.
///
/// # Errors
/// If a call fails.
pub(crate) async fn run(
    bare: &Bare,
    sides: &mut [Side],
    cgroup: &str,
    rounds: usize,
) -> Result<Vec<Row>> {
    let mut seen = Vec::new();
    for number in 0..=rounds {
        let floor = one_bare(bare, &format!("bare-{number}"), cgroup).await?;
        let mut lives = Vec::new();
        // The order of the sides alternates.
        let turn = number % sides.len().max(1);
        sides.rotate_left(turn);
        for side in &mut *sides {
            lives.push(side.cri.live(&format!("round-{number}")).await?);
        }
        sides.rotate_right(turn);
        lives.rotate_right(turn);
        if number > 0 {
            seen.push(Round { floor, lives });
        }
    }
    let row = |group: Group| Row {
        group,
        floor: Spread::of(seen.iter().map(|round| ms(group.floor(&round.floor)))),
        sides: sides
            .iter()
            .enumerate()
            .map(|(at, side)| cell(group, side.name, at, &seen))
            .collect(),
    };
    Ok(Group::ALL.map(row).into())
}

fn cell(group: Group, side: &'static str, at: usize, seen: &[Round]) -> Cell {
    let whole = |round: &Round| ms(group.of(&round.lives[at]));
    let floor = |round: &Round| ms(group.floor(&round.floor));
    Cell {
        side,
        whole: Spread::of(seen.iter().map(whole)),
        added: Spread::of(seen.iter().map(|round| whole(round) - floor(round))),
    }
}

async fn one_bare(bare: &Bare, id: &str, cgroup: &str) -> Result<Floor> {
    let pod = bare.prepare(id, cgroup).await?;
    // Only while it runs runc itself: children of the measured daemons are reparented to init.
    adopt_orphans(true)?;
    let measured = bare.measure(&pod);
    adopt_orphans(false)?;
    bare.clear(pod).await?;
    measured
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Row {
    /// One side of it.
    ///
    /// # Errors
    /// If it was not measured.
    pub(crate) fn side(&self, name: &str) -> Result<&Cell> {
        let found = self.sides.iter().find(|cell| cell.side == name);
        found.ok_or_else(|| Error::Setup(format!("{name} was not measured")))
    }
}
