//! In each round each side fetches each image once, so that changes of the machine's performance affect all of them, and
//! comparisons are made within a round.

use std::time::Duration;

use nix::unistd::sync;
use serde::Serialize;

use crate::args::Plan;
use crate::daemons::Daemon;
use crate::error::Result;
use crate::floors::Floor;
use crate::process::Proportional;
use crate::progress;
use crate::registry::Registries;
use crate::shapes::Image;
use crate::stats::Spread;

/// How long a daemon may take to give memory back.
const IDLE: Duration = Duration::from_secs(10);

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) memory: Vec<Memory>,
}

/// One image from one registry.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) image: String,
    pub(crate) is_slow: bool,
    pub(crate) sides: Vec<Cell>,
}

/// One side of it. A round's time can be compared with that of another side in the same place.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) side: &'static str,
    /// Seconds, by round.
    pub(crate) seconds: Vec<f64>,
    /// Seconds of another pull while the image is there, by round. Nothing for floors.
    pub(crate) again: Vec<f64>,
}

/// The memory of a daemon, in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) side: &'static str,
    /// Before the first pull.
    pub(crate) before: Proportional,
    /// Some time after the last.
    pub(crate) after: Proportional,
    /// Peak of the resident memory.
    pub(crate) peak: u64,
}

impl Row {
    fn new(image: &Image, is_slow: bool, daemons: &[Daemon], floors: &[Floor]) -> Self {
        let names = daemons.iter().map(|daemon| daemon.name);
        let names = names.chain(floors.iter().map(|floor| floor.name));
        let cell = |side| Cell {
            side,
            seconds: Vec::new(),
            again: Vec::new(),
        };
        Self {
            image: image.name.clone(),
            is_slow,
            sides: names.map(cell).collect(),
        }
    }

    /// The median of the ratios of two sides within a round.
    pub(crate) fn ratio(&self, side: &str, other: &str) -> Option<f64> {
        let of = |name| self.sides.iter().find(|cell| cell.side == name);
        let pairs = of(side)?.seconds.iter().zip(&of(other)?.seconds);
        Some(Spread::of(pairs.map(|(ours, theirs)| ours / theirs)).median)
    }
}

/// Runs all rounds.
///
/// # Errors
/// If a pull fails.
pub(crate) async fn run(
    plan: &Plan,
    images: &[Image],
    registries: &Registries,
    daemons: &mut [Daemon],
    floors: &[Floor],
) -> Result<Results> {
    let mut memory = Vec::new();
    for daemon in &mut *daemons {
        daemon.process.reset_peak()?;
        memory.push(Memory {
            side: daemon.name,
            before: daemon.memory()?,
            after: Proportional::default(),
            peak: 0,
        });
    }
    let mut rows = Vec::new();
    for (registry, is_slow) in [(&registries.fast, false), (&registries.slow, true)] {
        for image in images {
            progress(&format!(
                "{}{}",
                image.name,
                if is_slow { ", slow registry" } else { "" }
            ));
            let mut row = Row::new(image, is_slow, daemons, floors);
            for round in 0..plan.rounds {
                one(image, registry, round, &mut row, daemons, floors).await?;
            }
            rows.push(row);
        }
    }
    tokio::time::sleep(IDLE).await;
    for (daemon, memory) in daemons.iter_mut().zip(&mut memory) {
        daemon.process.check()?;
        memory.after = daemon.memory()?;
        memory.peak = daemon.process.peak_rss()?;
    }
    Ok(Results {
        facts: Vec::new(),
        rows,
        memory,
    })
}

/// One round, in which the order of the sides differs from that of the last one. Before each turn all earlier ones are on disk.
async fn one(
    image: &Image,
    registry: &str,
    round: usize,
    row: &mut Row,
    daemons: &mut [Daemon],
    floors: &[Floor],
) -> Result<()> {
    let name = format!("{registry}/{}:1", image.repository);
    let count = daemons.len() + floors.len();
    for turn in 0..count {
        let turn = (turn + round) % count;
        sync();
        let cell = &mut row.sides[turn];
        let Some(daemon) = daemons.get_mut(turn) else {
            let floor = &floors[turn - daemons.len()];
            cell.seconds
                .push(floor.fetch(image, registry)?.as_secs_f64());
            continue;
        };
        cell.seconds.push(daemon.pull(&name).await?.as_secs_f64());
        cell.again.push(daemon.pull(&name).await?.as_secs_f64());
        daemon.remove(&name).await?;
    }
    Ok(())
}
