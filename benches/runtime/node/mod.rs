//! A node full of pods with a container each: what grows with their number.

mod budget;
mod idle;
mod lists;
mod report;
mod restart;
mod starts;

use std::path::Path;
use std::sync::Arc;

use criscope_testkit::bench::{progress, report::Report};
use nix::unistd::Pid;
use serde::Serialize;

use self::idle::Idle;
use self::lists::Lists;
use crate::bare::Bare;
use crate::crowd::{BARE, bare_crowd};
use crate::daemons::Daemon;
use crate::error::Result;
use crate::held::pss;

pub(crate) use self::idle::{Proxy, watch};
pub(crate) use self::report::report;

/// Numbers of pods.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    /// Pods before the first measurement.
    pub(crate) few: usize,
    /// Pods whose starts are measured: after the few, and as the last ones.
    pub(crate) batch: usize,
    /// The usual limit of a kubelet, at which the idle node is measured.
    pub(crate) usual: usize,
    /// All of them.
    pub(crate) many: usize,
    /// Seconds of an idle node.
    pub(crate) idle: u64,
}

impl Plan {
    pub(crate) const FULL: Self = Self {
        few: 10,
        batch: 50,
        usual: 110,
        many: 500,
        idle: 60,
    };
    pub(crate) const QUICK: Self = Self {
        batch: 20,
        many: 200,
        idle: 20,
        ..Self::FULL
    };
}

/// One runtime.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    /// Starts in a second, ten at a time, with few pods and with many.
    pub(crate) starts: [f64; 2],
    /// With the usual number of pods, and with many.
    pub(crate) lists: [Lists; 2],
    /// Seconds from the start of a killed daemon until it lists all pods.
    pub(crate) restart: f64,
    /// Memory of the daemon with many pods, in bytes.
    pub(crate) memory: u64,
    pub(crate) idle: Idle,
    /// criscope as a proxy in front of it.
    pub(crate) proxy: Option<Idle>,
}

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) plan: Plan,
    /// Lives of pods by the bare calls in a second, ten at a time, with few pods on the node and with many.
    pub(crate) bare: [f64; 2],
    pub(crate) sides: Vec<Side>,
}

/// Measures one runtime after the other, each on a node that has no other pods.
///
/// # Errors
/// If a call fails.
pub(crate) async fn run(
    plan: Plan,
    bare: &Arc<Bare>,
    daemons: &mut [(&'static str, Daemon)],
    cgroup: &str,
    criscope: &Path,
) -> Result<Results> {
    let mut bare_rates = None;
    let mut sides = Vec::new();
    for (number, (name, daemon)) in daemons.iter_mut().enumerate() {
        // The first one is criscope itself, and the floor is measured beside its pods.
        let beside = (number == 0).then_some(bare);
        let proxied = (number > 0).then_some(criscope);
        let (side, floor) = side(plan, name, daemon, beside, cgroup, proxied).await?;
        bare_rates = bare_rates.or(floor);
        sides.push(side);
    }
    Ok(Results {
        facts: Vec::new(),
        plan,
        bare: bare_rates.unwrap_or_default(),
        sides,
    })
}

async fn side(
    plan: Plan,
    name: &'static str,
    daemon: &mut Daemon,
    bare: Option<&Arc<Bare>>,
    cgroup: &str,
    proxied: Option<&Path>,
) -> Result<(Side, Option<[f64; 2]>)> {
    let floor = async |of: &str| match bare {
        Some(bare) => {
            progress(&format!("{BARE} with {of} pods"));
            let took = bare_crowd(bare, &format!("beside-{of}"), cgroup, plan.batch).await?;
            Ok(Some(plan.batch as f64 / took.as_secs_f64()))
        }
        None => Ok::<_, crate::error::Error>(None),
    };
    progress(&format!("{name}: starts with few pods"));
    let mut pods = starts::fill(&daemon.cri, 0, plan.few).await?.pods;
    let begun = starts::fill(&daemon.cri, pods.len(), plan.batch).await?;
    let few = begun.rate();
    pods.extend(begun.pods);
    let floor_of_few = floor("few").await?;
    let rest = plan.usual.saturating_sub(pods.len());
    pods.extend(starts::fill(&daemon.cri, pods.len(), rest).await?.pods);
    progress(&format!("{name}: lists of {} pods", pods.len()));
    let lists_of_usual = lists::measure(&mut daemon.cri, pods.len()).await?;
    progress(&format!("{name}: {} idle pods", pods.len()));
    let watched = daemon.watched();
    let idle = idle::measure(plan.idle, &mut daemon.cri, watched).await?;
    let proxy = match proxied {
        Some(criscope) => {
            progress("a proxy in front of them");
            let mut proxy = Proxy::start(criscope, daemon).await?;
            let watched = proxy.watched();
            Some(idle::measure(plan.idle, &mut proxy.cri, watched).await?)
        }
        None => None,
    };
    let rest = plan.many.saturating_sub(pods.len() + plan.batch);
    progress(&format!("{name}: starts with many pods"));
    pods.extend(starts::fill(&daemon.cri, pods.len(), rest).await?.pods);
    let ended = starts::fill(&daemon.cri, pods.len(), plan.batch).await?;
    let many = ended.rate();
    pods.extend(ended.pods);
    let floor_of_many = floor("many").await?;
    progress(&format!("{name}: lists of {} pods", pods.len()));
    let lists_of_many = lists::measure(&mut daemon.cri, pods.len()).await?;
    let memory = pss(Pid::from_raw(daemon.process.pid().cast_signed()))?;
    progress(&format!("{name}: restart with {} pods", pods.len()));
    let restart = restart::measure(daemon, pods.len()).await?;
    progress(&format!("{name}: ending {} pods", pods.len()));
    starts::end(&daemon.cri, pods).await?;
    let side = Side {
        name,
        starts: [few, many],
        lists: [lists_of_usual, lists_of_many],
        restart: restart.as_secs_f64(),
        memory,
        idle,
        proxy,
    };
    Ok((side, floor_of_few.zip(floor_of_many).map(|(a, b)| [a, b])))
}
